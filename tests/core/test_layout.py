"""A layout covers every slot once, per generation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.layout import Generation, Layout
from partq.core.model import SLOT_COUNT, PartitionId
from partq.errors import BadRequestError, SettingsError, UnknownPartitionError

TWO = Layout((Generation(2, 4), Generation(3, 6)))


@given(st.integers(1, SLOT_COUNT), st.integers(0, SLOT_COUNT - 1))
def test_each_slot_is_in_the_partition_that_lookup_names(partition_count, slot):
    layout = Layout.first(partition_count)
    assert slot in layout.slots(layout.partition_of(slot))


@pytest.mark.req("SOL-U06")
@pytest.mark.parametrize("partition_count", [1, 3, 16, 65_536])
def test_partitions_cover_all_slots_once(partition_count):
    layout = Layout.first(partition_count)
    slots = [slot for partition in layout.partitions() for slot in layout.slots(partition)]
    assert slots == list(range(SLOT_COUNT))


def test_a_new_queue_has_generation_1():
    layout = Layout.first(2)
    assert layout.partitions() == (PartitionId(1, 0), PartitionId(1, 1))
    assert (layout.generation, layout.partition_count) == (1, 2)


@pytest.mark.req("PUL-U03", "SOL-U01")
def test_a_key_lies_where_its_slot_does():
    assert Layout.first(16).partition_for("Order-3459134") == PartitionId(1, 6067 * 16 >> 16)
    with pytest.raises(BadRequestError):
        Layout.first(16).partition_for("x" * 1025)


def test_new_messages_go_to_the_last_generation():
    assert (TWO.generation, TWO.partition_count) == (3, 6)
    assert TWO.partition_of(SLOT_COUNT - 1) == PartitionId(3, 5)
    assert TWO.slots(PartitionId(2, 3)) == range(3 * 16_384, SLOT_COUNT)
    assert TWO.partitions()[3:5] == (PartitionId(2, 3), PartitionId(3, 0))


@pytest.mark.parametrize("partition", [(1, 0), (2, 4), (3, 6), (3, -1)])
def test_an_unknown_partition_is_refused_with_what_there_is(partition):
    unknown = PartitionId(*partition)
    assert unknown not in TWO
    with pytest.raises(
        UnknownPartitionError, match=r"4 partitions, 2\.0 to 2\.3 and 6 partitions, 3\.0 to 3\.5"
    ):
        TWO.slots(unknown)


def test_a_partition_of_a_removed_generation_is_past():
    """Its tokens have ended; one that never was has none."""
    past = [(1, 0), (1, 99)]
    others = [(0, 0), (2, 4), (3, 5), (3, 6), (4, 0)]
    assert [TWO.is_past(PartitionId(*each)) for each in past] == [True, True]
    assert not any(TWO.is_past(PartitionId(*each)) for each in others)


def test_contains():
    assert all(partition in TWO for partition in TWO.partitions())
    assert "2.0" not in TWO


@pytest.mark.parametrize(("generations", "got"), [
    pytest.param([], r"generations \[\]", id="no generation"),
    pytest.param([(0, 4)], r"generations \[0\]", id="below 1"),
    pytest.param([(2, 4), (1, 4)], r"generations \[2, 1\]", id="falling"),
    pytest.param([(1, 4), (1, 5)], r"generations \[1, 1\]", id="twice"),
    pytest.param([(1, 0)], "got 0 partitions, expected 1 to 65536", id="no partition"),
    pytest.param([(1, 65_537)], "got 65537 partitions", id="a partition without a slot"),
])  # fmt: skip
def test_an_unusable_layout_is_refused(generations, got):
    with pytest.raises(SettingsError, match=got):
        Layout(tuple(Generation(*generation) for generation in generations))


def test_layouts_are_values():
    assert Layout.first(4) == Layout.first(4)
    assert len({Layout.first(4), Layout.first(4), TWO}) == 2
