"""What the operator tells of a change of the number of partitions, look by look."""

from types import SimpleNamespace

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.records import RESCALE, LeaseRecord
from partq.core.rescale.gates import GroupProgress
from partq.core.rescale.layout_steps import RescaleEvent, abort, commit, prepare
from partq.core.views.rescale_status import Hindrance
from partq.kube.reconcile.rescale_watch import HELD_MS, RescaleWatch, event_of
from tests.kube.fake_store import FakeStore

NOW = 1_700_000_000_000
NEW = PartitionId(2, 2)


def record(*, seals=None, is_open=True, groups=("audit", "workers"), end=100):
    layout = SimpleNamespace(is_open=is_open, seals=seals or {}, generation=1)
    return SimpleNamespace(owner="b-0", next=end, groups=groups, layout=layout, bytes=end)


@pytest.fixture
def store():
    return FakeStore(2)


@pytest.fixture
def look(store):
    watch = RescaleWatch()

    async def look(wanted=3, now_ms=NOW, *, retired=0):
        notes = await watch.look(
            store.ports,
            store.partitions,
            wanted_count=wanted,
            groups=["audit", "workers"],
            brokers=["b-0", "b-1"],
            now_ms=now_ms,
        )
        assert watch.retired_bytes == retired
        return watch.status, [(str(each.reason), each.text, each.is_warning) for each in notes]

    return look


async def test_a_queue_that_does_not_change_has_nothing_to_tell(look):
    assert await look(wanted=2) == (None, [])


async def test_a_broker_that_does_not_know_changes_is_named(store, look):
    store.layout = prepare(Layout.first(2), 3, NOW)
    store.leases = {
        "b-0": LeaseRecord("i", 1, 10.0, "http://b-0", frozenset({RESCALE})),
        "b-1": LeaseRecord("i", 1, 10.0, "http://b-1"),
        "gone": LeaseRecord("i", 1, 10.0, "http://gone"),
    }
    status, _ = await look()
    assert status.hindrance is Hindrance.BROKERS
    assert status.waits_for[0].endswith("of an earlier version: b-1")


async def test_groups_that_hold_new_partitions_for_an_hour_are_reported_once(store, look):
    store.layout = commit(prepare(Layout.first(2), 3, NOW), NOW)
    for index in range(2):
        store.progress[PartitionId(1, index)] = record(seals={2: 100})
        for group, cursor in (("workers", 100), ("audit", 40)):
            store.gates[PartitionId(1, index), group] = GroupProgress(cursor, True)
    store.progress[NEW] = record(end=0)
    store.gates |= {
        (NEW, "workers"): GroupProgress(0, is_gate_open=True),
        (NEW, "audit"): GroupProgress(0, is_gate_open=False),
    }
    status, notes = await look(now_ms=NOW + HELD_MS - 1)
    assert (status.phase, notes) == ("Draining", [])
    _, notes = await look(now_ms=NOW + HELD_MS)
    assert notes == [
        (
            "OldPartitionsHeld",
            "group audit does not get the messages of 1 new partition for more than an hour: it "
            "has 120 older messages to acknowledge; start its consumers, release its blocked keys "
            "with `partq keys release`, move it with `partq reset --group audit`, or delete the "
            "group",
            True,
        )
    ]
    assert (await look(now_ms=NOW + 2 * HELD_MS))[1] == []


async def test_a_later_change_does_not_end_the_wait_for_an_earlier_one(store, look):
    """The first is held for an hour; the second has come into force just now, the third not."""
    layout = commit(prepare(Layout.first(2), 3, NOW), NOW)
    layout = commit(prepare(layout, 4, NOW), NOW + HELD_MS)
    store.layout = abort(prepare(layout, 5, NOW))
    for partition in layout.partitions():
        store.progress[partition] = record(seals={2: 100, 3: 100})
        for group, cursor in (("workers", 100), ("audit", 40)):
            store.gates[partition, group] = GroupProgress(cursor, partition.generation == 1)
    status, notes = await look(4, now_ms=NOW + HELD_MS)
    assert (status.generation, status.phase) == (3, "Draining")
    assert [(reason, text.split(" to ack")[0]) for reason, text, _ in notes] == [
        ("OldPartitionsHeld", f"group {group} does not get the messages of 1 new partition for "
         f"more than an hour: it has {count} older messages")
        for group, count in (("audit", 120), ("workers", 0))
    ]  # fmt: skip
    assert len((await look(4, now_ms=NOW + 2 * HELD_MS))[1]) == 2, "of the second change"


async def test_what_partitions_without_slots_hold_is_added_up(store, look):
    store.layout = commit(prepare(Layout.first(3), 2, NOW), NOW)
    for partition in store.layout.partitions():
        store.progress[partition] = record(end=10 * partition.index)
    status, _ = await look(2, retired=30)
    assert status.retiring == 3


@pytest.mark.parametrize(
    ("event", "reason", "text"),
    [
        (RescaleEvent.STARTED, "RescaleStarted", "is being prepared; 33.3 % of the keys move"),
        (RescaleEvent.COMMITTED, "RescaleCommitted", "is in force"),
        (RescaleEvent.OPENED, "RescaleOpened", "all new partitions take messages"),
        (RescaleEvent.SETTLED, "RescaleSettled", "is over: no group has older messages"),
        (RescaleEvent.ABORTED, "RescaleAborted", "is taken back; nothing has changed"),
    ],
)
def test_each_step_has_an_event(event, reason, text):
    (change,) = prepare(Layout.first(16), 24, NOW).changes
    note = event_of(event, change)
    assert (note.reason, note.is_warning) == (reason, False)
    assert note.text == f"16 -> 24 partitions, generation 2: {text}"


def test_the_event_of_the_opening_names_the_longest_pause():
    (change,) = prepare(Layout.first(16), 24, NOW).changes
    note = event_of(RescaleEvent.OPENED, change, 34)
    assert note.text.endswith(
        ": all new partitions take messages; publishes to them waited for 34 ms at most"
    )
