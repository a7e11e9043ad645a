"""From what is on record to what the core judges."""

from types import SimpleNamespace

from partq.coordinator.group.queue_observation import (
    QueueObservation,
    blocked,
    lost_since,
    observe_group,
    sessions,
)
from partq.coordinator.ports import BrokerReport, FlowReport
from partq.core.group.records import MemberSnapshot
from partq.core.model import MemberId, PartitionId

P, Q = PartitionId(1, 0), PartitionId(1, 1)
NOW_MS = 1_800_000_000_000


def test_only_who_is_lost_is_lost_since_some_time():
    listed = {
        MemberId(name): SimpleNamespace(address="10.0.0.1", lost_at_ms=lost_at_ms)
        for name, lost_at_ms in (("m", NOW_MS - 700), ("n", None))
    }
    assert lost_since(MemberSnapshot(listed, {}, {}, NOW_MS)) == {"m": NOW_MS - 700}


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


def test_sessions_are_those_of_all_partitions_and_who_waits_does_so_at_every_broker():
    def claims(epoch, **groups):
        reports = {name: SimpleNamespace(sessions=counts) for name, counts in groups.items()}
        return SimpleNamespace(broker_epoch=epoch, groups=reports)

    states = {
        "b-0": SimpleNamespace(partitions={P: claims(7, g=(3, 2, 4), h=None)}),
        "b-1": SimpleNamespace(
            partitions={P: claims(6, g=(90, 90, 90)), Q: claims(1, g=(1, 1, 3))}
        ),
    }
    queue = QueueObservation(partitions=(P, Q), states=states, is_complete=True)
    assert sessions(queue, "g") == (4, 3, 4)
    assert sessions(queue, "h") is None


def test_a_priority_is_what_the_pod_says_else_the_youngest_life_else_the_last_one_that_was_lost():
    def flow(member, age_ms, priority, group="g"):
        return FlowReport(
            group=group, member=MemberId(member), incarnation="i", address="", age_ms=age_ms,
            is_leaving=False, priority=priority,
        )  # fmt: skip

    def report(name, flows, lost_flows):
        return BrokerReport(
            broker=name, incarnation="i", partitions={}, flows=flows, lost_flows=lost_flows
        )

    states = {
        "b-0": report("b-0", [flow("m", 900, 5), flow("n", 900, 6)], [flow("gone", 90, 2)]),
        "b-1": report("b-1", [flow("m", 10, 4)], [flow("gone", 80, 3), flow("m", 1, 9)]),
        "b-2": report("b-2", [flow("other", 1, 7, group="h")], []),
    }
    seen = observe_group(
        QueueObservation(partitions=(P, Q), states=states, is_complete=True),
        "g",
        members=MemberSnapshot({}, {}, {}, NOW_MS),
        lost_ms={},
        assignment={},
        outcomes={},
        facts={},
        priorities={MemberId("n"): 1},
    )
    assert seen.priorities == {"m": 4, "n": 1, "gone": 3}
