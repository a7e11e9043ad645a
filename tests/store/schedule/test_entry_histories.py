"""Histories of entries that wait: each is waiting, in the log or cancelled, and never early.

The real scripts run in the Redis of the simulator, whose time is given. Calls come late, owners
change, the clock jumps, and brokers ask too early. Mistakes in the scripts are found.
"""

import random
from dataclasses import replace

import pytest

from partq.core.model import BrokerId, PartitionId
from partq.errors import ConflictError
from partq.lab.simulate.machine.memory_redis import MemoryRedis, compile_script
from partq.store.keys import Keys
from partq.store.lua import load_scripts
from partq.store.records.log import AppendBatch, Log
from partq.store.records.partitions import Partitions
from partq.store.schedule.due_entries import DueEntries
from partq.store.schedule.scheduled_entries import ScheduledEntries

P = PartitionId(1, 0)
START_S = 1_800_000_000.0
STEPS = 120


class WrongError(Exception):
    """An entry is where it may not be."""


def as_bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


class MemoryStore:
    """What records need of a store, over the Redis of the simulator."""

    def __init__(self, scripts):
        self.now_s = START_S
        self.memory = MemoryRedis(lambda: self.now_s)
        self.calls = []
        self._scripts = {name: compile_script(name, each.source) for name, each in scripts.items()}

    async def run(self, name, keys, args=(), **_):
        call = (self._scripts[name], [as_bytes(k) for k in keys], [as_bytes(a) for a in args])
        if name in ("append_batches", "cancel_scheduled"):
            self.calls.append(call)
        return self.memory.run(*call)

    async def read(self, *command, **_):
        name, *args = command
        return self.memory.command(as_bytes(name), [as_bytes(a) for a in args])

    async def read_all(self, *commands, **_):
        return [await self.read(*each) for each in commands]


class History:
    def __init__(self, seed, scripts):
        self.draw = random.Random(seed)
        self.store = MemoryStore(scripts)
        self.keys = Keys("t", "ns", "q", "uid")
        self.partitions = Partitions(self.store, self.keys)
        self.log = Log(self.store, self.keys)
        self.due = DueEntries(self.store, self.keys)
        self.scheduled = ScheduledEntries(self.store, self.keys)
        self.epoch = self.number = self.end = 0
        self.due_ms, self.values = {}, {}
        self.cancelled = set()
        self.seen = 0
        self.told = set()

    def now_ms(self):
        return round(self.store.now_s * 1_000_000) // 1000

    async def run(self):
        await self.partitions.create(P)
        await self.claim()
        steps = (self.park, self.park, self.plain, self.tick, self.tick, self.enqueue)
        rarely = (self.too_early, self.cancel, self.late, self.claim, self.jump)
        for at in range(STEPS):
            await self.draw.choice((*steps, *steps, *rarely))(b"%d" % at)
            self.judge()

    async def claim(self, _=b""):
        claim = await self.partitions.claim(P, BrokerId("b"), "i", expected=self.epoch)
        self.epoch, self.number, self.end = claim.broker_epoch, 0, claim.next

    async def append(self, *batches):
        appended = await self.log.append(
            P,
            broker_epoch=self.epoch,
            number=self.number,
            expected=self.end,
            batches=batches,
            room_bytes=None,
        )
        self.number, self.end = self.number + 1, appended.next
        return appended.results

    async def plain(self, name):
        await self.append(AppendBatch("", 0, 1, b"plain " + name))

    async def park(self, name):
        after_ms = self.draw.choice((1, 5, 20, 20_000))
        batch = AppendBatch("p" + name.decode(), 0, 1, name, kind="schedule", after_ms=after_ms)
        (parked,) = await self.append(batch)
        assert parked.status == "parked"
        self.due_ms[name], self.values[parked.entry] = parked.due_ms, name

    async def tick(self, _):
        self.store.now_s += self.draw.choice((0.001, 0.004, 0.03))

    async def jump(self, _):
        self.store.now_s += self.draw.choice((-10.0, -0.01, 10.0))

    async def enqueue(self, _):
        page = await self.due.read(P, max_entries=self.draw.randint(1, 4), max_bytes=10**6)
        if page.entries:
            await self.append(*[self.entry(each.number, each.data) for each in page.entries])

    async def too_early(self, _):
        some = self.draw.sample(sorted(self.values), min(3, len(self.values)))
        if some:
            await self.append(*[self.entry(each, self.values[each]) for each in some])

    @staticmethod
    def entry(number, data):
        return AppendBatch("", number, 1, data, kind="enqueue")

    async def cancel(self, _):
        if not self.values:
            return
        number = self.draw.choice(sorted(self.values))
        found = await self.scheduled.cancel(P, [number], broker_epoch=self.epoch)
        if found.were_there[0]:
            self.cancelled.add(self.values[number])

    async def late(self, _):
        if not self.store.calls:
            return
        call = self.draw.choice(self.store.calls)
        if call[0].name == "cancel_scheduled":
            return  # its caller has had the answer
        self.store.memory.run(*call)

    def judge(self):
        memory = self.store.memory
        entries = memory.stream(self.keys.log(P).encode()).entries
        for each in entries[self.seen :]:
            value = dict(zip(each.fields[::2], each.fields[1::2], strict=True))[b"batch"]
            if value in self.due_ms:
                if value in self.told:
                    raise WrongError(f"{value} is in the log twice")
                if self.now_ms() < self.due_ms[value]:
                    raise WrongError(f"{value} is early")
            self.told.add(value)
        self.seen = len(entries)
        waiting = {
            self.values[int(number)]
            for number in memory.sorted_set(self.keys.due(P).encode()).scores
        }
        held = memory.hash(self.keys.scheduled(P).encode())
        if {self.values[int(number)] for number in held} != waiting:
            raise WrongError("an entry has no bytes, or bytes have no entry")
        for value in self.due_ms:
            places = (value in waiting, value in self.told, value in self.cancelled)
            if sum(places) != 1:
                raise WrongError(f"{value} waits, is stored, is cancelled: {places}")
        size = sum(len(text.partition(b" ")[2]) for text in held.values())
        if int(memory.hash(self.keys.meta(P).encode()).get(b"scheduled_bytes", 0)) != size:
            raise WrongError("the bytes that wait are miscounted")


async def first_mistake(scripts, seeds):
    for seed in seeds:
        try:
            await History(seed, scripts).run()
        except (WrongError, ConflictError) as error:
            return f"seed {seed}: {error}"
    return None


async def test_each_entry_is_in_one_place_and_never_early():
    assert await first_mistake(load_scripts((7,)), range(25)) is None


@pytest.mark.parametrize(
    ("script", "before", "after"),
    [
        pytest.param("append_batches", "tonumber(due_at) > now", "false", id="early"),
        pytest.param(
            "append_batches", '  redis.call("ZREM", due, member)\n', "", id="it stays due"
        ),
        pytest.param(
            "append_batches", '  redis.call("HDEL", scheduled, member)\n', "", id="its bytes stay"
        ),
        pytest.param(
            "append_batches", "if not due_at or", "if due_at and", id="enqueued when it is gone"
        ),
        pytest.param(
            "append_batches",
            "  parked_bytes = parked_bytes - #bytes\n",
            "",
            id="miscounted",
        ),
        pytest.param(
            "cancel_scheduled",
            'redis.call("ZREM", KEYS[2], number) == 1',
            'redis.call("ZSCORE", KEYS[2], number) ~= nil',
            id="cancelled, and due still",
        ),
    ],
)
async def test_a_mistake_is_found(script, before, after):
    scripts = dict(load_scripts((7,)))
    source = scripts[script].source
    assert source.count(before) == 1
    scripts[script] = replace(scripts[script], source=source.replace(before, after))
    assert await first_mistake(scripts, range(25)) is not None
