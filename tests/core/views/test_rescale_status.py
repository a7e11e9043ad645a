"""What people are told of a change of the partition count, from its beginning to its end."""

from dataclasses import replace
from functools import partial

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.gates import GroupProgress
from partq.core.rescale.layout_steps import abort, commit, prepare, remove, settle
from partq.core.rescale.preparation import MAX_RETIRED
from partq.core.rescale.settlement import is_settled
from partq.core.views.rescale_status import (
    HeldGroup,
    Hindrance,
    PartitionProgress,
    RescalePhase,
    read_partitions,
    rescale_status,
)

NOW = 1_700_000_000_000
GROUPS = ("audit", "workers")


def partition(*, seals=None, end=100, is_open=True, has_owner=True, **groups):
    """Return a partition; of each group its cursor and whether its gate is open."""
    found = {name: GroupProgress(*progress) for name, progress in groups.items()}
    return PartitionProgress(has_owner, is_open, end, seals or {}, found)


NEW = partition(end=0, is_open=False, workers=(0, False), audit=(0, False))


def status(layout, partitions=(), wanted_count=None, lacking=()):
    return rescale_status(
        layout, dict(partitions), wanted_count=wanted_count, groups=GROUPS, lacking=lacking
    )


def prepared(before=2, after=3):
    return prepare(Layout.first(before), after, NOW)


def committed(before=2, after=3):
    return commit(prepared(before, after), NOW + 5)


def drained(layout):
    """Return the layout when all predecessors are settled, and those without slots are gone."""
    while layout.lineage:
        givers = {giver for each in layout.lineage.values() for giver in each}
        layout = settle(layout, min(givers - set(layout.lineage)))
    for partition_id in layout.retired:
        layout = remove(layout, partition_id)
    return layout


def test_a_queue_that_was_never_changed_has_none_and_nothing_is_read():
    layout = Layout.first(16)
    assert status(layout) is None
    assert status(layout, wanted_count=16) is None
    assert read_partitions(layout) == ()


def test_a_change_that_nobody_has_begun():
    found = status(Layout.first(16), wanted_count=24)
    assert (found.generation, found.from_count, found.to_count) == (2, 16, 24)
    assert (found.phase, found.moved_percent, found.started_at_ms) == ("Preparing", 33.3, 0)
    assert (found.to_seal, found.to_open) == (16, 8)
    assert found.waits_for == ["the coordinator, which begins it"]


@pytest.mark.parametrize("known", [{"generation": 2}, {"seals": {2: 100}}])
def test_a_wanted_change_waits_for_a_layout_that_was_set_back(known):
    """Where the records do not add up, it is not begun, however long one waits."""
    layout = Layout.first(2)
    records = {each: partition() for each in read_partitions(layout, 3)}
    assert status(layout, records, wanted_count=3).waits_for == ["the coordinator, which begins it"]
    records[PartitionId(1, 0)] = partition()._replace(**known)
    (text,) = status(layout, records, wanted_count=3).waits_for
    assert text.startswith("the layout, which is behind change 2 ")
    assert read_partitions(layout, 2) == ()


def test_a_change_that_is_prepared_names_what_is_missing():
    layout = prepared(16, 18)
    found = status(layout, {PartitionId(2, 16): NEW._replace(groups={})}, lacking=["orders-1"])
    assert (found.phase, found.hindrance, found.started_at_ms) == (
        RescalePhase.PREPARING, Hindrance.BROKERS, NOW,
    )  # fmt: skip
    assert found.waits_for == [
        "an update of brokers of an earlier version: orders-1",
        "new partitions without a broker: 2.17",
        "new partitions that do not have every group: 2.16, 2.17",
    ]
    late = NEW._replace(is_open=True, groups={"late": GroupProgress(0, is_gate_open=True)})
    found = status(layout, {**dict.fromkeys(layout.all_partitions(), NEW), PartitionId(1, 3): late})
    assert found.waits_for[0] == "new partitions that do not have every group: 2.16, 2.17"
    assert found.waits_for[1].startswith("partitions of the last change that are not open: 1.0")
    opened = dict.fromkeys(read_partitions(layout), NEW._replace(is_open=True))
    found = status(layout, opened)
    assert (found.hindrance, found.sealed, found.opened) == (Hindrance.NONE, 0, 0)
    assert found.waits_for == ["the coordinator, which puts it into force"]


def test_a_change_that_waits_for_removals_says_so():
    retired = {PartitionId(1, index): NOW for index in range(MAX_RETIRED)}
    layout = replace(prepared(3, 2), retired=retired)
    found = status(layout, dict.fromkeys(read_partitions(layout), partition()))
    assert (found.phase, found.hindrance) == (RescalePhase.PREPARING, Hindrance.RETIRED)
    assert "its audit record is archived" in found.waits_for[-1]


def test_an_open_change_counts_seals_and_openings():
    layout = committed()
    old, other, new = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)
    records = {
        old: partition(seals={2: 100}, workers=(100, True), audit=(40, True)),
        other: partition(workers=(60, True), audit=(100, True), has_owner=False),
        new: NEW,
    }
    found = status(layout, records)
    assert (found.phase, found.sealed, found.to_seal) == (RescalePhase.OPENING, 1, 2)
    assert (found.opened, found.to_open) == (0, 1)
    assert found.waits_for == ["a broker for partition 1.1"]
    assert found.held == [HeldGroup("audit", 1, 60), HeldGroup("workers", 1, 40)]
    records[other] = records[other]._replace(has_owner=True)
    assert status(layout, records).waits_for == ["the seal of partition 1.1, by its broker"]
    records[other] = records[other]._replace(seals={2: 90})
    found = status(layout, records)
    assert (found.sealed, found.opened) == (2, 0)
    assert found.waits_for == ["the opening of partition 2.2, by its broker"]
    assert found.held[1] == HeldGroup("workers", 1, 30)
    records[new] = records[new]._replace(is_open=True)
    found = status(layout, records)
    assert (found.phase, found.opened) == (RescalePhase.DRAINING, 1)
    assert found.waits_for[0] == (
        "group audit to acknowledge 60 messages published before the change: 1 partition held"
    )
    records[old] = partition(seals={2: 100}, workers=(100, True), audit=(100, True))
    records[other] = partition(seals={2: 90}, workers=(90, True), audit=(100, True))
    assert status(layout, records).waits_for[0] == (
        "brokers to give group audit 1 partition: it has done with what comes first"
    )


def test_a_record_that_cannot_be_read_counts_as_one_that_lacks_all():
    found = status(committed())
    assert (found.phase, found.sealed, found.opened) == (RescalePhase.OPENING, 0, 0)
    assert found.waits_for == ["a broker for partitions 1.0, 1.1"]


def test_a_change_drains_until_its_lineage_and_its_retired_partitions_are_gone():
    layout = committed(3, 2)
    opened = partition(end=0, workers=(0, True))
    records = dict.fromkeys(layout.lineage, opened)
    records |= {
        PartitionId(1, index): partition(seals={2: 100}, workers=(100, True)) for index in range(3)
    }
    found = status(layout, records)
    assert (found.phase, found.retiring, found.held) == (RescalePhase.DRAINING, 3, [])
    assert found.waits_for == ["the removal of acknowledged messages from partitions 1.0, 1.1, 1.2"]
    layout = replace(layout, lineage={})
    found = status(layout)
    assert (found.phase, found.sealed, found.opened) == (RescalePhase.DRAINING, 3, 2)
    assert found.waits_for == [
        "the removal of partitions 1.0, 1.1, 1.2: each stays for ten minutes, and until groups "
        "have acknowledged its messages, pins of it have ended, and its audit record is archived"
    ]
    found = status(drained(layout))
    assert (found.phase, found.waits_for, found.retiring) == (RescalePhase.SETTLED, [], 0)


def test_a_change_that_was_taken_back():
    found = status(abort(prepared()), wanted_count=2)
    assert (found.phase, found.to_count, found.opened) == (RescalePhase.ABORTED, 3, 0)


def test_a_change_that_was_taken_back_hides_none_that_drains():
    layout = committed()
    records = dict.fromkeys(read_partitions(layout), partition(seals={2: 100}, workers=(40, True)))
    records[PartitionId(2, 2)] = NEW._replace(is_open=True)
    for count in range(4, 12):
        layout = abort(prepare(layout, count, NOW))
    found = status(layout, records)
    assert (found.generation, found.phase, found.to_count) == (2, RescalePhase.DRAINING, 3)
    assert [each.generation for each in found.earlier] == [6, 7, 8, 9, 10]
    assert {each.phase for each in found.earlier} == {RescalePhase.ABORTED}
    found = status(drained(layout))
    assert (found.generation, found.phase) == (10, RescalePhase.ABORTED)


def test_a_settled_change_hides_none_that_drains():
    layout = commit(prepare(committed(3, 2), 3, NOW), NOW + 9)
    layout = replace(drained(layout), retired={PartitionId(1, 2): NOW + 5})
    found = status(layout)
    assert (found.generation, found.phase) == (2, RescalePhase.DRAINING)
    assert [(each.generation, each.phase) for each in found.earlier] == [(3, RescalePhase.SETTLED)]
    assert [is_settled(layout, each, GROUPS) for each in layout.changes] == [False, True]


def test_without_groups_nobody_waits_once_it_is_open():
    layout = committed(3, 2)
    records = dict.fromkeys(read_partitions(layout), partition(seals={2: 100}))
    ask = partial(rescale_status, layout, wanted_count=2)
    assert ask(records, groups=()).phase is RescalePhase.SETTLED
    assert (ask(records, groups=()).retiring, ask(records, groups=GROUPS).phase) == (3, "Draining")
    closed = {**records, PartitionId(2, 0): NEW}
    assert ask(closed, groups=()).phase is RescalePhase.OPENING


def test_without_groups_the_limit_of_changes_asks_for_one():
    layout = Layout.first(2)
    for number, count in enumerate((3, 4, 5, 6), start=2):
        layout = commit(prepare(layout, count, NOW), NOW + number)
    found = rescale_status(layout, {}, wanted_count=7, groups=())
    assert found.waits_for[1:] == [
        "a group that acknowledges what was published before: the queue has none, so its messages "
        "are kept"
    ]


def test_with_too_many_changes_the_next_one_says_what_it_waits_for():
    layout = Layout.first(2)
    for number, count in enumerate((3, 4, 5, 6), start=2):
        layout = commit(prepare(layout, count, NOW), NOW + number)
    records = {
        each: partition(seals=dict.fromkeys(range(2, 6), 100), workers=(1, True))
        for each in read_partitions(layout)
    }
    records |= {each: NEW._replace(is_open=True) for each in layout.lineage}
    found = status(layout, records, wanted_count=7)
    assert (found.generation, found.hindrance) == (6, Hindrance.GENERATIONS)
    assert (
        found.waits_for[0] == "4 earlier changes, of which none is settled: one of them has to be"
    )
    assert [(each.generation, each.phase) for each in found.earlier] == [
        (number, RescalePhase.DRAINING) for number in range(2, 6)
    ]
    assert found.waits_for[2].startswith("group workers to acknowledge 198 messages")


@pytest.mark.parametrize(("before", "after"), [(16, 24), (24, 16), (1, 2), (24, 23)])
def test_all_counts_are_full_when_it_is_over(before, after):
    found = status(drained(committed(before, after)))
    assert (found.sealed, found.opened) == (found.to_seal, found.to_open)
