"""From what is on record to what the core judges."""

from types import SimpleNamespace

from partq.coordinator.group.queue_observation import QueueObservation, blocked, lost_since
from partq.core.model import MemberId, PartitionId

P, Q = PartitionId(1, 0), PartitionId(1, 1)
NOW_MS = 1_800_000_000_000


def test_only_who_is_lost_is_lost_since_some_time():
    listed = {
        MemberId(name): SimpleNamespace(address="10.0.0.1", lost_at_ms=lost_at_ms)
        for name, lost_at_ms in (("m", NOW_MS - 700), ("n", None))
    }
    assert lost_since(SimpleNamespace(members=listed, now_ms=NOW_MS)) == {"m": NOW_MS - 700}


def test_only_the_owner_says_what_waits_for_dead_letters():
    def claims(epoch, **groups):
        reports = {name: SimpleNamespace(blocked=why) for name, why in groups.items()}
        return SimpleNamespace(broker_epoch=epoch, groups=reports)

    states = {
        "b-0": SimpleNamespace(partitions={P: claims(7, g="no such queue", h="")}),
        "b-1": SimpleNamespace(partitions={P: claims(6, g="of long ago", h="of long ago")}),
        "b-2": SimpleNamespace(partitions={Q: claims(1)}),
    }
    queue = QueueObservation(partitions=(P, Q), states=states, is_complete=True)
    assert blocked(queue, "g") == {P: "no such queue"}
    assert blocked(queue, "h") == {}
