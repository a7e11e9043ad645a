"""Cursors are made and removed by what is on record, also while a group is being made."""

import asyncio

import pytest

from partq.coordinator.record_sync import RecordSync
from partq.errors import ConflictError
from tests.coordinator.provisioned import LAYOUT, PARTITIONS, CutShortError, births_of
from tests.store.record import born, write


async def die():
    raise CutShortError


class SeenBy:
    """Partitions; whenever a cursor was added, somebody else has a look."""

    def __init__(self, partitions, look):
        self._partitions = partitions
        self._look = look

    def __getattr__(self, name):
        return getattr(self._partitions, name)

    async def add_group(self, partition, group, **call):
        await self._partitions.add_group(partition, group, **call)
        await self._look()


async def generation(configs):
    return (await configs.read_queue()).resource_generation


async def having(partitions, group):
    records = await partitions.read_many(PARTITIONS)
    return [partition for partition, record in records.items() if group in record.groups]


async def test_a_group_that_is_being_made_keeps_its_cursors(configs, partitions, make):
    """A coordinator that knows only the groups of before looks after each step."""
    record_sync = RecordSync(partitions, None, configs)
    await make("first")

    async def look():
        await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
        assert await having(partitions, "first") == list(PARTITIONS)

    await make("first", "second", cursors=SeenBy(partitions, look))
    assert await having(partitions, "second") == list(PARTITIONS)


async def test_a_group_that_is_gone_loses_its_cursors(configs, partitions, make):
    record_sync = RecordSync(partitions, None, configs)
    await make("first", "second")
    await record_sync.sync(
        LAYOUT, {"first": "Earliest", "second": "Earliest"}, await generation(configs)
    )
    await make("first")
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    assert await having(partitions, "second") == []
    assert await having(partitions, "first") == list(PARTITIONS)


async def test_a_group_that_has_its_spec_still_is_looked_at_again(configs, partitions, make):
    """The queue does not name it any more; who removes it dies after the next step."""
    await make("first", "second", second="u1")
    record_sync = RecordSync(partitions, None, configs)

    async def look():
        await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
        return await having(partitions, "second")

    class ErasesLast:
        def __getattr__(self, name):
            return getattr(configs, name)

        async def erase_group(self, group, **which):
            assert await look() == list(PARTITIONS)
            await configs.erase_group(group, **which)
            raise CutShortError

    with pytest.raises(CutShortError):
        await make("first", "second", second="u2", configs=ErasesLast())
    assert await look() == []


async def test_a_group_whose_making_was_cut_short_can_be_given_up(configs, partitions, make):
    """Its resource is deleted while nobody is there; the queue has never named it."""
    await make("first")
    with pytest.raises(CutShortError):
        await make("first", "second", cursors=SeenBy(partitions, die))
    assert await having(partitions, "second") != []
    await make("first", repairs=True)
    record_sync = RecordSync(partitions, None, configs)
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    assert await having(partitions, "second") == []
    assert await configs.read_group("second") is None
    assert await having(partitions, "first") == list(PARTITIONS)


async def test_a_group_whose_making_was_cut_short_is_made(partitions, make):
    await make("first")
    with pytest.raises(CutShortError):
        await make("first", "second", cursors=SeenBy(partitions, die))
    await make("first", "second", repairs=True)
    assert await having(partitions, "second") == list(PARTITIONS)


async def test_a_group_made_again_begins_anew(partitions, make):
    """The removal of the one before it was cut short: nothing of that is left."""
    await make("first", "second")
    first = PARTITIONS[0]
    claim = await partitions.claim(first, "broker-0", "i1", expected=0)
    await partitions.flush(
        first,
        "second",
        **write(await born(partitions, first, "second")),
        broker_epoch=claim.broker_epoch,
        cursor=0,
        acked=[],
        redeliveries={0: 3},
    )
    await make("first")
    assert "second" in (await partitions.read(first)).groups
    await make("first", "second")
    assert (await partitions.read_cursor(first, "second")).redeliveries == {}


async def test_a_group_that_was_made_again_unseen_is_looked_at_again(configs, partitions, make):
    """The names are as they were; of what was removed late, a cursor is missing."""
    record_sync = RecordSync(partitions, None, configs)
    await make("first", "second")
    starts = {"first": "Earliest", "second": "Earliest"}
    await record_sync.sync(LAYOUT, starts, await generation(configs))
    await make("first")
    await make("first", "second")
    births = await births_of(partitions, "second")
    await partitions.remove_group(PARTITIONS[0], "second", born=births[PARTITIONS[0], "second"])
    await record_sync.sync(LAYOUT, starts, await generation(configs))
    assert await having(partitions, "second") == list(PARTITIONS)


async def test_a_removal_that_was_decided_before_a_group_was_made_again_takes_nothing(
    configs, partitions, make
):
    """A coordinator stands still between its look at the specs and its calls."""
    await make("first", "second")
    await make("first")
    made = []

    class MadeAgainMeanwhile:
        def __getattr__(self, name):
            return getattr(partitions, name)

        async def remove_group(self, partition, group, *, born):
            if not made:
                made.append(group)
                await make("first", "second")
            await partitions.remove_group(partition, group, born=born)

    record_sync = RecordSync(MadeAgainMeanwhile(), None, configs)
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    assert made == ["second"]
    assert await having(partitions, "second") == list(PARTITIONS)


class Recorded:
    """Partitions; remembers each addition of a group, for a packet that comes twice."""

    def __init__(self, partitions):
        self._partitions = partitions
        self.calls = []

    def __getattr__(self, name):
        return getattr(self._partitions, name)

    async def add_group(self, *args, **call):
        self.calls.append((args, call))
        await self._partitions.add_group(*args, **call)

    async def again(self):
        """Let all come once more; return how many were refused."""
        answers = await asyncio.gather(
            *(self._partitions.add_group(*args, **call) for args, call in self.calls),
            return_exceptions=True,
        )
        return sum(isinstance(answer, ConflictError) for answer in answers)


async def test_a_late_addition_does_not_bring_a_removed_group_back(configs, partitions, make):
    """Nobody would remove its cursors, and they would hold the log for ever."""
    making, keeping = Recorded(partitions), Recorded(partitions)
    await make("first", "second", cursors=making)
    await partitions.remove_group(
        PARTITIONS[0],
        "second",
        born=(await births_of(partitions, "second"))[PARTITIONS[0], "second"],
    )
    starts = {"first": "Earliest", "second": "Earliest"}
    await RecordSync(keeping, None, configs).sync(LAYOUT, starts, await generation(configs))
    assert len(keeping.calls) == 1
    await make("first")
    record_sync = RecordSync(partitions, None, configs)
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    assert await having(partitions, "second") == []
    refused = await making.again() + await keeping.again()
    assert await having(partitions, "second") == []
    assert refused == len(PARTITIONS) + 1, "of the group that stays they change nothing"


async def test_a_coordinator_that_stood_still_adds_no_removed_group(configs, partitions, make):
    """It has read the groups of before, and looks after their cursors now."""
    await make("first", "second")
    before, starts = await generation(configs), {"first": "Earliest", "second": "Earliest"}
    await make("first")
    await RecordSync(partitions, None, configs).sync(
        LAYOUT, {"first": "Earliest"}, await generation(configs)
    )
    await RecordSync(partitions, None, configs).sync(LAYOUT, starts, before)
    assert await having(partitions, "second") == []


async def test_groups_are_made_while_a_coordinator_fences(configs, partitions, make):
    """It looks between two of the calls: what it fences off is added again."""
    await make("first")
    looks = []

    class Fencing(SeenBy):
        async def add_group(self, partition, group, **call):
            if not looks:
                looks.append(partition)
                await self._look()
            await self._partitions.add_group(partition, group, **call)

    async def look():
        await RecordSync(partitions, None, configs).sync(
            LAYOUT, {"first": "Earliest"}, await generation(configs)
        )

    await make("first", "second", cursors=Fencing(partitions, look))
    assert looks
    assert await having(partitions, "second") == list(PARTITIONS)


async def test_a_group_that_was_never_named_is_given_up_under_a_new_generation(
    configs, partitions, make
):
    """A coordinator that runs on looks again, and fences what may come late."""
    await make("first")
    record_sync = RecordSync(partitions, None, configs)
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    making = Recorded(partitions)
    with pytest.raises(CutShortError):
        await make("first", "second", cursors=SeenBy(making, die))
    await make("first", repairs=True)
    await record_sync.sync(LAYOUT, {"first": "Earliest"}, await generation(configs))
    await making.again()
    assert await having(partitions, "second") == []


async def test_another_resource_of_the_name_is_another_group(configs, partitions, make):
    """Deleted and created again, seen as one change."""
    await make("first", "second", second="u1")
    before = await births_of(partitions, "second")
    number = await generation(configs)
    await make("first", "second", second="u1")
    assert await births_of(partitions, "second") == before
    assert await generation(configs) == number
    first = await births_of(partitions, "first")
    await make("first", "second", second="u2")
    after = await births_of(partitions, "second")
    assert all(after[each] > before[each] for each in before)
    assert await births_of(partitions, "first") == first
    assert (await configs.read_group("second")).spec["uid"] == "u2"
    assert await generation(configs) > number


async def test_a_group_that_an_earlier_version_made_gets_its_uid_and_stays(
    configs, partitions, make
):
    await make("first")
    before = await births_of(partitions, "first")
    await make("first", first="u1")
    assert await births_of(partitions, "first") == before
    assert (await configs.read_group("first")).spec["uid"] == "u1"
