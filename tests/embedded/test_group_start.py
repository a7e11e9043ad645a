"""A group with `startAt` whose making was cut short by kill -9 begins where it says all the same.

Run as a program, this file is the process that forks those that die.
"""

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from partq.core.model import BrokerId, Offset, PartitionId
from partq.embedded.provision import provision
from partq.resources import group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.store.fail_point import EXIT_STATUS, FailPoint
from partq.store.keys import Keys
from partq.store.records.log import AppendBatch, Log
from partq.store.records.partitions import Partitions
from partq.testing import eventually

UID = "0f3a9c1e"
IDS = [PartitionId(1, index) for index in range(3)]
AFTER_START = 2


def declare(start_at=None):
    """Return the queue with its first group, and with one that begins at a time."""
    groups = [group_document("first", "orders")]
    if start_at is not None:
        groups.append(group_document("late", "orders", startAt=start_at))
    return resources_of(queue_document("orders", partitions=len(IDS)), *groups)


async def make(store, start_at=None):
    resources = declare(start_at)
    await provision(store, resources.queues[0], resources, uid=UID)


# ---- the process that forks those that die ------------------------------------------------------


async def make_elsewhere(url, prefix, start_at, point):
    store = await Store.open(url, prefix=prefix, fail_point=FailPoint(*point), timeout_s=60.0)
    await make(store, start_at)


def serve():
    """Fork a process for each line on stdin, and write how it ended."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            asyncio.run(make_elsewhere(*json.loads(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 # the answer


@pytest.fixture(scope="module")
def die():
    """Make the records in a process that ends at the fail point; return its status."""
    program = [sys.executable, "-m", "tests.embedded.test_group_start"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as forker:  # fmt: skip

        def die(*line):
            forker.stdin.write(json.dumps(line).encode() + b"\n")
            forker.stdin.flush()
            return int(forker.stdout.readline())

        yield die
        forker.stdin.close()
        forker.wait(10)


# ---- the tests ----------------------------------------------------------------------------------


class Logs:
    """The logs of the queue, each as its only broker writes it."""

    def __init__(self, store):
        self.store = store
        keys = Keys(store.prefix, "default", "orders", UID)
        self.partitions, self.log = Partitions(store, keys), Log(store, keys)
        self.epochs = {}
        self.ends = dict.fromkeys(IDS, 0)

    async def claim(self):
        for each in IDS:
            claim = await self.partitions.claim(each, BrokerId("b"), "i", expected=0)
            self.epochs[each] = claim.broker_epoch

    async def append(self, partition, count):
        for _ in range(count):
            end = self.ends[partition]
            await self.log.append(
                partition,
                broker_epoch=self.epochs[partition],
                number=end,
                expected=Offset(end),
                batches=[AppendBatch("p", end, 1, b"1")],
                room_bytes=None,
            )
            self.ends[partition] = end + 1

    async def clock_passes(self):
        """Return a time in ms, of Redis's clock, that everything before is below."""
        first = await self._now_ms()

        async def has_passed():
            now = await self._now_ms()
            return now if now > first else None

        return await eventually(has_passed, f"Redis's clock is past {first}")

    async def _now_ms(self):
        seconds, micros = await self.store.read("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def cursors(self):
        """Return where the group begins in the partitions that have its cursor."""
        found = {}
        for each, record in (await self.partitions.read_many(IDS)).items():
            if "late" in record.groups:
                found[each] = (await self.partitions.read_cursor(each, "late")).cursor
        return found

    async def births(self):
        return await self.partitions.births((each, "late") for each in IDS)


@pytest.mark.req("PUL-134")
@pytest.mark.parametrize(
    ("point", "made"),
    [
        pytest.param(("before", "add_group", 1), 0, id="before the first cursor"),
        pytest.param(("after", "add_group", 1), None, id="after the first cursor"),
        pytest.param(("after", "add_group", 2), None, id="after the second one"),
        pytest.param(("after", "add_group", 3), None, id="after the last answer"),
        pytest.param(("before", "write_config", 2), 3, id="all are there, the queue knows nothing"),
    ],
)
async def test_a_group_begins_at_its_time_though_its_making_was_cut_short(
    redis_server, store, die, point, made
):
    """Calls go out side by side: a death after one may leave the others, too."""
    await make(store)
    logs = Logs(store)
    await logs.claim()
    wanted = {}
    for before, each in enumerate(IDS):
        await logs.append(each, before)
        wanted[each] = before
    at_ms = await logs.clock_passes()
    start_at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    for each in IDS:
        await logs.append(each, AFTER_START)
    assert die(redis_server.url, store.prefix, start_at, point) == EXIT_STATUS
    left = await logs.cursors()
    assert left.items() <= wanted.items()
    assert made is None or len(left) == made
    born = await logs.births()

    # Until somebody makes the rest, there is more in the logs; and an older order comes late.
    for each in IDS:
        await logs.append(each, 1)
    for _ in range(2):
        await make(store, start_at)
        assert await logs.cursors() == wanted
    again = await logs.births()
    assert born.items() <= again.items(), "no cursor was made twice"
    for each in IDS:
        await logs.partitions.add_group(each, "late", start="Latest")
    assert (await logs.cursors(), await logs.births()) == (wanted, again)


if __name__ == "__main__":
    serve()
