"""A layout covers every slot once, per generation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.layout import Layout, Succession
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.rescale.layout_steps import commit, prepare, remove, settle
from partq.errors import BadRequestError, SettingsError, UnknownPartitionError

NOW = 1_700_000_000_000
GROWN = commit(prepare(Layout.first(4), 6), NOW)
"""2.4 and 2.5 have slots of all others."""
SHRUNK = commit(prepare(Layout.first(2), 1), NOW)
"""2.0 has all slots, of two that are retired."""


@given(st.integers(1, SLOT_COUNT), st.integers(0, SLOT_COUNT - 1))
def test_each_slot_is_in_the_partition_that_lookup_names(partition_count, slot):
    layout = Layout.first(partition_count)
    assert any(slot in each for each in layout.slots(layout.partition_of(slot)))


@pytest.mark.req("SOL-U06")
@pytest.mark.parametrize("partition_count", [1, 3, 16, 65_536])
def test_partitions_cover_all_slots_once(partition_count):
    layout = Layout.first(partition_count)
    ranges = [each for partition in layout.partitions() for each in layout.slots(partition)]
    slots = [slot for each in ranges for slot in each]
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


def test_new_messages_go_to_the_table():
    assert (GROWN.generation, GROWN.partition_count) == (2, 6)
    assert GROWN.partition_of(SLOT_COUNT - 1) == PartitionId(2, 5)
    assert GROWN.partition_of(0) == PartitionId(1, 0)
    assert [str(each) for each in GROWN.current_partitions] == [
        "1.0", "1.1", "1.2", "1.3", "2.4", "2.5"
    ]  # fmt: skip
    assert {str(each) for each in GROWN.predecessors(PartitionId(2, 4))} == {"1.0", "1.1"}
    assert GROWN.predecessors(PartitionId(1, 0)) == {}


def test_the_slots_that_a_partition_was_made_with_never_change():
    prepared = prepare(GROWN, 3)
    layouts = [Layout.first(4), GROWN, prepared, commit(prepared, NOW)]
    found: dict[PartitionId, set] = {}
    for layout in layouts:
        for partition in layout.all_partitions():
            found.setdefault(partition, set()).add(layout.first_slots(partition))
    assert {len(each) for each in found.values()} == {1}
    assert found[PartitionId(1, 0)] == {(range(16_384),)}
    assert all(
        layout.first_slots(each) == layout.next.table.slots[each]
        for layout in [prepared]
        for each in layout.next.lineage
    )
    with pytest.raises(UnknownPartitionError):
        GROWN.first_slots(PartitionId(9, 0))


def test_a_retired_partition_has_no_slots_and_is_still_there():
    assert [str(each) for each in SHRUNK.partitions()] == ["1.0", "1.1", "2.0"]
    assert SHRUNK.slots(PartitionId(1, 1)) == ()
    assert [str(each) for each in SHRUNK.current_partitions] == ["2.0"]


def test_a_prepared_partition_has_records_and_takes_no_messages():
    layout = prepare(Layout.first(2), 3)
    assert layout.partitions() == Layout.first(2).partitions()
    assert PartitionId(2, 2) in layout.all_partitions()
    assert PartitionId(2, 2) in layout
    assert sum(map(len, layout.slots(PartitionId(2, 2)))) == SLOT_COUNT // 3
    assert set(layout.predecessors(PartitionId(2, 2))) == set(layout.partitions())


@pytest.mark.parametrize("partition", [(2, 0), (1, 4), (3, 6), (2, -1)])
def test_an_unknown_partition_is_refused_with_what_there_is(partition):
    unknown = PartitionId(*partition)
    assert unknown not in GROWN
    with pytest.raises(
        UnknownPartitionError, match=r"4 partitions, 1\.0 to 1\.3 and 2 partitions, 2\.4 to 2\.5"
    ):
        GROWN.slots(unknown)


def test_a_removed_partition_is_past():
    """Its tokens have ended; one that never was has none."""
    layout = SHRUNK
    for partition in [PartitionId(1, 0), PartitionId(1, 1)]:
        layout = settle(layout, partition)
    layout = remove(layout, PartitionId(1, 1))
    assert layout.is_past(PartitionId(1, 1))
    assert not any(layout.is_past(PartitionId(*each)) for each in [(0, 0), (1, 0), (2, 0), (3, 0)])
    assert not Layout.first(2).is_past(PartitionId(1, 5)), "it never was"


def test_contains():
    assert all(partition in GROWN for partition in GROWN.partitions())
    assert "1.0" not in GROWN


def test_a_count_out_of_range_is_refused():
    for count in (0, 65_537):
        with pytest.raises(SettingsError, match=f"got {count} partitions, expected 1 to 65536"):
            Layout.first(count)


# ---- succession ---------------------------------------------------------------------------------


def test_a_queue_that_was_never_changed_has_no_succession():
    assert Layout.first(4).succession() == Succession()


def test_a_new_partition_of_a_growth_begins_with_the_one_that_gives_most():
    succession = prepare(Layout.first(16), 24).succession()
    assert succession.outgoing == set()
    assert [q.index for q in succession.origins] == list(range(16, 24))
    assert {p.generation for p in succession.origins.values()} == {1}
    assert len(set(succession.origins.values())) == 8


def test_a_shrink_continues_each_index_and_what_goes_has_an_heir():
    layout = prepare(Layout.first(6), 4)
    for each in (layout, commit(layout, 1)):
        succession = each.succession()
        assert succession.outgoing == set(Layout.first(6).partitions())
        assert {q: p for q, p in succession.origins.items() if q.index == p.index} == {
            PartitionId(2, index): PartitionId(1, index) for index in range(4)
        }
        assert succession.heirs.keys() == succession.outgoing
        assert all(succession.heirs[p].index == p.index for p in succession.outgoing if p.index < 4)


def test_the_heir_of_one_that_goes_takes_messages():
    layout = commit(prepare(commit(prepare(Layout.first(6), 5), 1), 4), 2)
    succession = layout.succession()
    assert {p.generation for p in succession.outgoing} == {1, 2}
    assert set(succession.heirs.values()) <= set(layout.current_partitions)
