"""Cursors are made and removed by what is on record, also while a group is being made."""

import pytest

from partq.coordinator.provision import provision
from partq.coordinator.upkeep import Upkeep
from partq.core.layout import Layout
from partq.store.keys import Keys
from partq.store.layouts import Layouts
from partq.store.partitions import Partitions
from tests.store.record import NUMBERS

PARTITIONS = Layout.first(4).partitions()
EARLIEST = {"start": "Earliest"}


@pytest.fixture
def keys(key_prefix):
    return Keys(key_prefix, "ns", "orders", "0f3a9c1e")


@pytest.fixture
def layouts(store, keys):
    return Layouts(store, keys)


@pytest.fixture
def partitions(store, keys):
    return Partitions(store, keys)


@pytest.fixture
def make(layouts, partitions):
    """Bring the queue's records in line with these groups."""

    async def make(*groups, cursors=partitions, repairs=False):
        await provision(
            layouts,
            cursors,
            name="ns/orders",
            uid="0f3a9c1e",
            partition_count=4,
            spec={},
            groups=dict.fromkeys(groups, EARLIEST),
            keeps_others=False,
            repairs=repairs,
        )

    return make


class CutShortError(Exception):
    """The process dies."""


async def die():
    raise CutShortError


class SeenBy:
    """Partitions; whenever a cursor was added, somebody else has a look."""

    def __init__(self, partitions, look):
        self._partitions = partitions
        self._look = look

    def __getattr__(self, name):
        return getattr(self._partitions, name)

    async def add_group(self, partition, group, *, start):
        await self._partitions.add_group(partition, group, start=start)
        await self._look()


async def having(partitions, group):
    records = await partitions.read_many(PARTITIONS)
    return [partition for partition, record in records.items() if group in record.groups]


async def test_a_group_that_is_being_made_keeps_its_cursors(layouts, partitions, make):
    """A coordinator that knows only the groups of before looks after each step."""
    upkeep = Upkeep(partitions, layouts)
    await make("first")

    async def look():
        await upkeep.sync(PARTITIONS, {"first": "Earliest"})
        assert await having(partitions, "first") == list(PARTITIONS)

    await make("first", "second", cursors=SeenBy(partitions, look))
    assert await having(partitions, "second") == list(PARTITIONS)


async def test_a_group_that_is_gone_loses_its_cursors(layouts, partitions, make):
    upkeep = Upkeep(partitions, layouts)
    await make("first", "second")
    await upkeep.sync(PARTITIONS, {"first": "Earliest", "second": "Earliest"})
    await make("first")
    await upkeep.sync(PARTITIONS, {"first": "Earliest"})
    assert await having(partitions, "second") == []
    assert await having(partitions, "first") == list(PARTITIONS)


async def test_a_group_whose_making_was_cut_short_can_be_given_up(layouts, partitions, make):
    """Its resource is deleted while nobody is there; the queue has never named it."""
    await make("first")
    with pytest.raises(CutShortError):
        await make("first", "second", cursors=SeenBy(partitions, die))
    assert await having(partitions, "second") != []
    await make("first", repairs=True)
    upkeep = Upkeep(partitions, layouts)
    await upkeep.sync(PARTITIONS, {"first": "Earliest"})
    assert await having(partitions, "second") == []
    assert await layouts.read_group_config("second") is None
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
        number=next(NUMBERS),
        broker_epoch=claim.broker_epoch,
        cursor=0,
        acked=[],
        redeliveries={0: 3},
    )
    await make("first")
    assert "second" in (await partitions.read(first)).groups
    await make("first", "second")
    assert (await partitions.read_cursor(first, "second")).redeliveries == {}
