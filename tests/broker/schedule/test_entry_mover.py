"""Entries follow their slots in a change of the partition count: each once, whatever dies."""

import asyncio
from types import SimpleNamespace

import pytest

from partq.aio import Signal
from partq.broker.schedule.entry_mover import EntryMover
from partq.core.model import BrokerId, PartitionId
from partq.store.keys import Keys
from partq.store.records.layout.seals import Seals
from partq.store.records.log import AppendBatch, Log
from partq.store.records.partitions import Partitions
from partq.store.schedule.due_entries import DueEntries
from partq.store.schedule.entry_moves import NOT_SEALED, EntryMoves
from partq.store.schedule.scheduled_entries import ScheduledEntries
from partq.wire import batch

OLD, NEW, NEXT = PartitionId(1, 0), PartitionId(2, 4), PartitionId(3, 5)
STAYS, GOES = 1, 50_000
LEFT, GIVEN = (range(32_768),), (range(32_768, 65_536),)
FAR_MS = 2**52


class Dies(Exception):  # noqa: N818 # it is the end of a process
    """The process has died."""


class Mortal:
    """The store of entries, whose process dies before or after its n-th call."""

    def __init__(self, moves, call, phase):
        self._moves, self._left, self._phase = moves, call, phase

    def __getattr__(self, name):
        method = getattr(self._moves, name)

        async def call(*args, **more):
            self._left -= 1
            if self._left == 0 and self._phase == "before":
                raise Dies
            answer = await method(*args, **more)
            if self._left == 0:
                raise Dies
            return answer

        return call


class Stage:
    """Two partitions in the store: the first is sealed, and half of its slots are the second's."""

    def __init__(self, store):
        self.store = store
        self.keys = Keys(store.prefix, "ns", "orders", "0f3a9c1e")
        self.partitions, self.log = Partitions(store, self.keys), Log(store, self.keys)
        self.seals, self.moves = Seals(store, self.keys), EntryMoves(store, self.keys)
        self.epochs, self.numbers = {}, {}

    async def own(self, partition):
        seen = (await self.partitions.read(partition)).broker_epoch
        claim = await self.partitions.claim(partition, BrokerId("b"), "i", expected=seen)
        self.epochs[partition], self.numbers[partition] = claim.broker_epoch, 0

    async def park(self, partition, *batches):
        number, self.numbers[partition] = self.numbers[partition], self.numbers[partition] + 1
        appended = await self.log.append(
            partition,
            broker_epoch=self.epochs[partition],
            number=number,
            expected=0,
            batches=batches,
            room_bytes=None,
            id_window_ms=10**6,
            max_ids=100,
        )
        return [each.entry for each in appended.results]

    async def prepare(self, *entries):
        """Have entries wait in the first one, each by its slots, and seal it."""
        await self.partitions.create(OLD)
        await self.own(OLD)
        numbers = await self.park(OLD, *[entry(*slots, at=at) for at, slots in enumerate(entries)])
        await self.seal(OLD, NEW, LEFT, GIVEN)
        return numbers

    async def seal(self, giver, taker, stays, goes):
        await self.seals.create_successor(taker, {giver: goes}, goes)
        await self.own(taker)
        await self.seals.seal(
            giver, broker_epoch=self.epochs[giver], generation=taker.generation, slots=stays
        )

    def owned(self, partition, predecessors):
        return SimpleNamespace(
            id=partition,
            broker_epoch=self.epochs[partition],
            layout=SimpleNamespace(predecessors=predecessors),
            due_news=Signal(),
        )

    async def carry(self, moves=None, taker=NEW, predecessors=None):
        owned = self.owned(taker, predecessors or {OLD: GIVEN})
        return await EntryMover(moves or self.moves).carry(owned, lambda: True)

    async def waiting(self, partition):
        """Return the values of all messages that wait in a partition, in their order."""
        found = await self.moves.read(partition, None, max_entries=10**6, max_bytes=10**9)
        size = sum(len(each.data) for each in found)
        left = await self.store.read("HLEN", self.keys.leaving(partition))
        if not left:
            assert (await self.partitions.read(partition)).scheduled_bytes == size
        return [m.value.decode() for each in found for m in batch.decode(each.data)]


def entry(*slots, at=0, **more):
    values = [batch.encode_message(batch.Message("k", f"{at}.{slot}".encode())) for slot in slots]
    data = batch.encode(values, slots)
    return AppendBatch("", 0, len(slots), data, kind="schedule", due_ms=FAR_MS - at, **more)


@pytest.fixture
async def stage(store):
    return Stage(store)


ENTRIES = [(GOES,), (STAYS,), (GOES + 1, STAYS, GOES), (GOES,), (STAYS, STAYS + 1)]
GONE = ["3.50000", "2.50001", "2.50000", "0.50000"]
KEPT = ["4.1", "4.2", "2.1", "1.1"]


async def test_entries_follow_their_slots(stage):
    numbers = await stage.prepare(*ENTRIES)
    assert await stage.carry()
    assert await stage.waiting(NEW) == GONE
    assert await stage.waiting(OLD) == KEPT
    moved = await stage.moves.read(NEW, None, max_entries=9, max_bytes=10**6)
    assert {each.number for each in moved} == {numbers[at] for at in (0, 2, 3)}
    assert await stage.moves.is_complete(NEW)


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_a_death_at_any_call_loses_nothing_and_doubles_nothing(stage, phase, monkeypatch):
    """The next owner goes on, also if what it has got is gone from there by then."""
    monkeypatch.setattr("partq.broker.schedule.entry_mover.MAX_ENTRIES", 2)
    await stage.prepare(*ENTRIES)
    stored = []
    for call in range(1, 30):
        try:
            await stage.carry(Mortal(stage.moves, call, phase))
        except Dies:
            await stage.own(NEW)
        # What has arrived is appended and gone, at once.
        for each in await stage.moves.read(NEW, None, max_entries=9, max_bytes=10**6):
            stored += [m.value.decode() for m in batch.decode(each.data)]
            await stage.store.read("ZREM", stage.keys.due(NEW), f"{each.number:016}")
            await stage.store.read("HDEL", stage.keys.scheduled(NEW), f"{each.number:016}")
    assert sorted(stored) == sorted(GONE)
    assert await stage.waiting(OLD) == KEPT
    assert await stage.moves.is_complete(NEW)


async def test_calls_that_come_late_change_nothing(stage):
    await stage.prepare(*ENTRIES)
    late = []

    class Noted(Mortal):
        def __getattr__(self, name):
            method = getattr(self._moves, name)

            async def call(*args, **more):
                if name in ("give", "adopt", "forget"):
                    late.append((method, args, more))
                return await method(*args, **more)

            return call

    await stage.carry(Noted(stage.moves, 0, ""))
    assert len(late) == 3
    for method, args, more in late:
        await method(*args, **more)
    assert await stage.waiting(NEW) == GONE
    assert await stage.waiting(OLD) == KEPT


async def test_nothing_is_given_before_the_seal(stage):
    await stage.partitions.create(OLD)
    await stage.own(OLD)
    await stage.park(OLD, entry(GOES))
    await stage.seals.create_successor(NEW, {OLD: GIVEN}, GIVEN)
    (found,) = await stage.moves.read(OLD, None, max_entries=9, max_bytes=10**6)
    assert await stage.moves.give(OLD, NEW, [(found, b"", b"")]) == NOT_SEALED
    await stage.own(NEW)
    async with asyncio.timeout(10):
        assert not await stage.carry(), "it is tried again later"
    assert await stage.waiting(OLD) == ["0.50000"]
    assert not await stage.moves.is_complete(NEW)


async def test_a_number_that_is_in_use_grows(stage):
    """Partitions draw their numbers apart from each other."""
    (number,) = await stage.prepare((GOES,))
    await stage.store.read("ZADD", stage.keys.due(NEW), FAR_MS, f"{number:016}")
    data = entry(GOES + 5).data
    await stage.store.read("HSET", stage.keys.scheduled(NEW), f"{number:016}", b"0 " + data)
    await stage.store.read("HSET", stage.keys.meta(NEW), "scheduled_bytes", len(data))
    await stage.carry()
    found = await stage.moves.read(NEW, None, max_entries=9, max_bytes=10**6)
    assert [each.number for each in found] == [number, number + 1]
    assert await stage.waiting(NEW) == ["0.50005", "0.50000"]


async def test_an_entry_takes_its_time_to_live_and_its_id_along(stage):
    message_id = "a1" * 16
    await stage.partitions.create(OLD)
    await stage.own(OLD)
    (number,) = await stage.park(OLD, entry(GOES, ttl_ms=77, message_id=message_id))
    await stage.seal(OLD, NEW, LEFT, GIVEN)
    await stage.carry()
    await stage.store.read("ZADD", stage.keys.due(NEW), 1, f"{number:016}")
    page = await DueEntries(stage.store, stage.keys).read(NEW, max_entries=9, max_bytes=10**6)
    assert [(each.ttl_ms, each.message_id) for each in page.entries] == [(77, message_id)]
    names = [stage.keys.id_entries(each) for each in (OLD, NEW)]
    assert await stage.store.read("EXISTS", names[0]) == 0
    assert await stage.store.read("HGET", names[1], message_id) == str(number).encode()


async def test_the_id_of_an_entry_is_known_where_it_waits_and_nowhere_else(stage):
    message_id = "a1" * 16
    await stage.partitions.create(OLD)
    await stage.own(OLD)
    (number,) = await stage.park(OLD, entry(GOES, message_id=message_id))
    await stage.seal(OLD, NEW, LEFT, GIVEN)
    old, new = (stage.keys.ids(each) for each in (OLD, NEW))
    since = await stage.store.read("ZSCORE", old, bytes.fromhex(message_id))
    with pytest.raises(Dies):
        await stage.carry(Mortal(stage.moves, 4, "before"))
    for _ in range(2):  # a repeat
        await stage.own(NEW)
        await stage.carry()
        assert await stage.store.read("ZSCORE", new, bytes.fromhex(message_id)) == since
        assert await stage.store.read("EXISTS", old) == 0
    entries = ScheduledEntries(stage.store, stage.keys)
    await entries.cancel(NEW, [number], broker_epoch=stage.epochs[NEW])
    assert await stage.store.read("EXISTS", new, stage.keys.id_entries(NEW)) == 0


@pytest.mark.parametrize("place", [OLD, NEW])
async def test_an_id_that_a_later_message_has_made_known_again_stays_where_it_is(stage, place):
    message_id = "a1" * 16
    await stage.partitions.create(OLD)
    await stage.own(OLD)
    (number,) = await stage.park(OLD, entry(GOES, message_id=message_id))
    if place == OLD:
        await stage.store.read("HDEL", stage.keys.id_entries(OLD), message_id)
    await stage.store.read("ZADD", stage.keys.ids(place), 77, bytes.fromhex(message_id))
    await stage.seal(OLD, NEW, LEFT, GIVEN)
    await stage.carry()
    entries = ScheduledEntries(stage.store, stage.keys)
    cancelled = await entries.cancel(NEW, [number], broker_epoch=stage.epochs[NEW])
    assert cancelled.were_there == [True]
    score = await stage.store.read("ZSCORE", stage.keys.ids(place), bytes.fromhex(message_id))
    assert score == b"77"
    assert (await stage.partitions.read(OLD)).scheduled_bytes == 0


async def test_what_was_cut_after_it_was_read_is_read_again(stage):
    """Two partitions take their parts of one entry at the same time."""
    await stage.prepare((GOES, STAYS), (GOES + 1,))

    class Stale(Mortal):
        is_stale = True

        async def read(self, *args, **more):
            found = await self._moves.read(*args, **more)
            if found and self.is_stale:
                self.is_stale = False
                at = next(at for at, each in enumerate(found) if len(batch.decode(each.data)) == 2)
                found[at] = found[at]._replace(data=entry(GOES, STAYS, at=7).data)
            return found

    assert await stage.carry(Stale(stage.moves, 0, ""))
    assert sorted(await stage.waiting(NEW)) == ["0.50000", "1.50001"]
    assert await stage.waiting(OLD) == ["0.1"]


async def test_numbers_go_on_above_those_that_came(stage):
    (number,) = await stage.prepare((GOES,))
    ahead = number + 10**9  # of a burst, or of a clock that was ahead
    due, scheduled = stage.keys.due(OLD), stage.keys.scheduled(OLD)
    text = await stage.store.read("HGET", scheduled, f"{number:016}")
    await stage.store.read("HSET", scheduled, f"{ahead:016}", text)
    await stage.store.read("ZADD", due, FAR_MS, f"{ahead:016}")
    await stage.carry()
    last = await stage.store.read("HGET", stage.keys.meta(NEW), "scheduled_number")
    assert int(last) == ahead


async def test_numbers_that_are_in_use_are_looked_at_once(stage):
    """Two partitions in which very much was scheduled at once have the same numbers."""
    count = 200
    numbers = await stage.prepare(*[(GOES,)] * count)
    for number in numbers:
        await stage.store.read("ZADD", stage.keys.due(NEW), FAR_MS, f"{number:016}")
    before = await zscore_count(stage.store)
    await stage.carry()
    assert await stage.store.read("ZCARD", stage.keys.due(NEW)) == 2 * count
    looks = await zscore_count(stage.store) - before
    assert looks < 10 * count
    found = await stage.store.read("ZRANGE", stage.keys.due(NEW), 0, -1)
    assert len(found) == 2 * count


async def zscore_count(store):
    text = (await store.read("INFO", "commandstats")).decode()
    return int(text.partition("cmdstat_zscore:calls=")[2].partition(",")[0] or 0)


async def test_two_changes_one_after_the_other(stage):
    """The last partition waits until the one between them has all that is on its way."""
    await stage.prepare((GOES,), (STAYS,))
    await stage.store.read("HSET", stage.keys.meta(NEW), "open", "1")
    await stage.seal(NEW, NEXT, (), GIVEN)
    assert not await stage.carry(taker=NEXT, predecessors={NEW: GIVEN})
    assert await stage.waiting(NEXT) == []
    assert await stage.carry()
    assert await stage.carry(taker=NEXT, predecessors={NEW: GIVEN})
    assert (await stage.waiting(NEW), await stage.waiting(NEXT)) == ([], ["0.50000"])


async def test_what_nobody_can_read_stays_and_holds_up_nothing(stage):
    numbers = await stage.prepare((GOES,), (GOES,))
    await stage.store.read("HSET", stage.keys.scheduled(OLD), f"{numbers[0]:016}", b"0 junk")
    assert await stage.carry()
    assert await stage.waiting(NEW) == ["1.50000"]
    found = await stage.moves.read(OLD, None, max_entries=9, max_bytes=10**6)
    assert [each.data for each in found] == [b"junk"]


async def test_a_partition_whose_entries_wait_is_held(stage):
    await stage.prepare((GOES,))
    assert (await stage.partitions.read(OLD)).is_held(0)
    await stage.carry()
    assert not (await stage.partitions.read(OLD)).is_held(0)
