"""The broker dies before and after the one write of a transaction: all of it is stored, or none."""

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import product

from aiohttp import ClientError

from partq import Producer
from partq.store.keys import Keys
from partq.testing import eventually
from partq.wire import batch
from tests.faults.processes import DieAt
from tests.faults.stage import PRODUCE
from tests.faults.traffic import LAYOUT, MOVES, WAIT_S

SIZE = 5
"""Messages of each transaction."""
KEY = next(key for key in map(str, range(100)) if LAYOUT.partition_for(key) == MOVES)
TIMES = 2
"""How often the broker dies at each step on each road."""


def values(number):
    return [f"{number}/{place}" for place in range(SIZE)]


async def by_python(stage, producer, number):
    """Return that it is stored: lost answers are the library's to ask for again."""
    async with producer.transaction(key=KEY) as tx:
        for value in values(number):
            tx.send(value.encode())
    return len(tx.positions) == SIZE


async def by_http(stage, producer, number, headers=None):
    """Publish at the other broker, which forwards; return the status of the answer."""
    port = stage.proxies["orders-0"].target_port
    url = f"http://127.0.0.1:{port}/v1/queues/orders/messages?atomic=true"
    body = [{"key": KEY, "value": value} for value in values(number)]
    if headers:
        body = [{**each, "sequence": place} for place, each in enumerate(body)]
    given = {"Authorization": f"Bearer {PRODUCE}", **(headers or {})}
    async with stage.http.post(url, json=body, headers=given) as answer:
        return answer.status


async def once_by_http(stage, producer, number):
    """Repeat a publish with numbers until it is stored."""
    headers = {"Partq-Producer": f"p{number}"}

    async def is_stored():
        with suppress(ClientError, TimeoutError):
            return await by_http(stage, producer, number, headers) == 201

    return await eventually(is_stored, "a repeat is stored", timeout_s=WAIT_S)


ROADS = (by_python, by_http, once_by_http)


async def stored(stage):
    """Return the values of each entry of the log."""
    keys = Keys(stage.store.prefix, "default", "orders", stage.uid)
    found = []
    for _, fields in await stage.store.read("XRANGE", keys.log(MOVES), "-", "+"):
        data = dict(zip(fields[::2], fields[1::2], strict=True))[b"batch"]
        found.append(tuple(each.value.decode() for each in batch.decode(data)))
    return found


async def test_all_messages_of_a_transaction_are_stored_or_none(bare_stage):
    stage = bare_stage
    armed = stage.directory / "armed"
    steps = list(product(ROADS, ("before", "after"), range(TIMES)))

    def die_at(number):
        phase = steps[number][1] if number < len(steps) else "before"
        return DieAt(phase, "append_batches", str(armed))

    await stage.open(die_at=die_at(0))
    await stage.kill("a")  # nothing is acknowledged from now on, so nothing is trimmed
    told = []
    async with Producer(
        stage.url, queue="orders", token=PRODUCE, delivery_timeout_s=WAIT_S, linger_ms=0
    ) as producer:
        for number, (road, *_) in enumerate(steps):
            await producer.send_and_wait(b"x", key=KEY)  # the partition is owned again
            await eventually(stage._are_served, "the other broker knows it")
            armed.touch()
            committing = asyncio.create_task(road(stage, producer, number))
            await stage.processes["orders-1"].ended()
            armed.unlink()
            stage.start_broker("orders-1", die_at=die_at(number + 1))
            told.append(await committing)
        assert await by_python(stage, producer, len(steps))  # it is served again
    counts = Counter(await stored(stage))
    wanted = {tuple(values(number)): number for number in range(len(steps) + 1)}
    assert all(each in wanted or each == ("x",) * len(each) for each in counts), "none is divided"
    for each, number in wanted.items():
        road, phase, _ = steps[number] if number < len(steps) else (by_python, "", 0)
        if road is by_http:
            assert told[number] in {503, 504}, "nobody says that it is stored"
            assert counts[each] == (phase == "after"), (number, told[number])
        else:
            assert counts[each] == 1, (number, road, phase)
