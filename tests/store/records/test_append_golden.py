"""The answers of an append without features are those that it always gave, letter for letter.

`golden_appends.json` was written by the script as it was before batches could wait or be known by
an id. WRITE_GOLDEN=1 writes it again: only for a change that is meant to change answers.
"""

import json
import os
import random
from hashlib import sha256
from pathlib import Path

import pytest

from partq.core.producer_series import series_name
from partq.errors import PartqError
from partq.store.records.log import AppendBatch

GOLDEN = Path(__file__).with_name("golden_appends.json")
SEEDS = range(16)
AT_MS = 2**52
"""The time of all that is stored: that of Redis never comes so far."""
NAMES = ("", "p", "q", series_name("p", "k"), series_name("q", "k"), "r@17/old")
FIELDS = (
    *(b"next", b"total_bytes", b"largest_bytes", b"at_ms", b"passed_ms", b"append_number"),
    *(b"append_answer", b"producers_forgotten_ms", b"series_forgotten_ms"),
)
SPARSE = ("dlq:UID#1.0@5/g", "dlq:replay@7/")


def calls(seed):
    """Return calls of one partition: batches, room and time that has passed, of each."""
    draw = random.Random(seed)  # a table, not a secret
    due = dict.fromkeys(NAMES + SPARSE, 0)
    last = {}
    found = []
    for _ in range(12):
        batches, sparse = [], set()
        for _ in range(draw.randint(1, 6)):
            name = draw.choice(NAMES + SPARSE)
            if name in sparse:
                continue  # one at a time, as their senders do
            if name in SPARSE:
                sparse.add(name)
            count = draw.randint(1, 4)
            first = max(0, due[name] + draw.choice((0, 0, 0, 0, -1, -count, -2 * count, 1, 3)))
            if name in last and draw.random() < 0.2:
                first, count = last[name]
            digest = draw.choice(("", "", "a.b.0", "c.b.0", "a.b.1", "d.e.1"))
            data = draw.choice((b"", *[bytes(draw.randint(23, 40))] * 7))
            batches.append(
                AppendBatch(
                    name,
                    first,
                    count,
                    data,
                    draw.choice((0, 0, 60_000)),
                    digest,
                    draw.choice((0, 0, 5, 10**9)),
                    start=draw.choice((-1, -1, -1, first, first + 2)),
                    content_crc=draw.choice((-1, 17)),
                )
            )
            if first in (0, due[name]) and data:
                due[name] = first + count
                last[name] = (first, count)
        found.append((batches, draw.choice((None, None, None, 60, 30, 0)), draw.choice((0, 5))))
    return found


async def answers(store, keys, log, partition, broker_epoch, seed):
    """Return what each call was answered, and the hash of all that is stored then."""
    meta = keys.meta(partition)
    state = ("audit", f"0 {'0' * 40} 0 b-0") if seed % 3 == 0 else ()
    forgotten = ("producers_forgotten_ms", AT_MS - 10**6) if seed % 4 == 0 else ()
    await store.read("HSET", meta, "at_ms", AT_MS, *state, *forgotten)
    told, number, end = [], 0, 0
    for at, (batches, room, passed_ms) in enumerate(calls(seed)):
        call = {"broker_epoch": broker_epoch, "number": number, "expected": end}
        if at == 5:
            call["number"] = max(0, number - 1)  # a repeat, or one that is too old
        try:
            appended = await log.append(
                partition, **call, batches=batches, room_bytes=room, passed_ms=passed_ms
            )
        except PartqError as error:
            told.append(type(error).__name__)
            continue
        end, number = appended.next, call["number"] + 1
        told.append((await store.read("HGET", meta, "append_answer")).decode())
    stored = [
        await store.read("XRANGE", keys.log(partition), "-", "+"),
        *[
            sorted(zip(*[iter(await store.read("HGETALL", name(partition)))] * 2, strict=True))
            for name in (keys.producers, keys.series)
        ],
    ]
    fields = dict(zip(*[iter(await store.read("HGETALL", meta))] * 2, strict=True))
    stored.append([fields.get(name) for name in FIELDS])
    audited = await store.read("XRANGE", keys.audit(partition), "-", "+")
    stored.append([entry[1][7].split(b"\n", 1)[1] for entry in audited])
    text = repr(stored).replace(str(broker_epoch), "EPOCH")
    return {"answers": told, "stored": sha256(text.encode()).hexdigest()}


@pytest.mark.parametrize("seed", SEEDS)
async def test_answers_are_those_of_before(store, keys, log, partition, broker_epoch, seed):
    found = await answers(store, keys, log, partition, broker_epoch, seed)
    if "WRITE_GOLDEN" in os.environ:
        known = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
        known[str(seed)] = found
        GOLDEN.write_text(json.dumps(known, indent=0) + "\n")
    assert found == json.loads(GOLDEN.read_text())[str(seed)]
