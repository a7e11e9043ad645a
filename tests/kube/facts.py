"""What a worker knows of a queue and a group that are well; a test changes what it is about."""

from datetime import UTC, datetime

from partq.coordinator.view import GroupView, QueueView
from partq.core.group.membership import MemberState
from partq.core.group.records import AssignmentEntry
from partq.core.model import Epoch, PartitionId
from partq.core.views.rescale_status import Hindrance, RescalePhase, RescaleStatus
from partq.kube.names import ConditionType, QueueKey
from partq.kube.status.conditions import good
from partq.kube.status.facts import Durability, GroupFacts, QueueFacts

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
KEY = QueueKey("shop", "orders")
PARTITIONS = [PartitionId(1, index) for index in range(4)]
SYNCED = Durability(is_appending=True, sync="always", is_nearly_full=False)
READY = good(ConditionType.READY)
CALM = (False, "AsSpecified")
"""Status and reason of Reconciling and Stalled where neither is true."""


def queue_view(owned=4, brokers=None, *, is_quota_used_up=False):
    return QueueView(
        is_quota_used_up=is_quota_used_up,
        partitions=PARTITIONS,
        owners=dict.fromkeys(PARTITIONS[:owned], "b-0"),
        brokers={"b-0": True, "b-1": True} if brokers is None else brokers,
    )


def queue_facts(**changes):
    facts = {
        "key": KEY,
        "generation": 3,
        "is_applied": True,
        "is_provisioned": True,
        "partition_count": 4,
        "desired_brokers": 2,
        "ready_pods": 2,
        "durability": SYNCED,
        "view": queue_view(),
        "store_uid": "0f3a9c1e",
    }
    return QueueFacts(**(facts | changes))


def rescale_status(**changes):
    fields = {
        "generation": 2,
        "from_count": 16,
        "to_count": 24,
        "phase": RescalePhase.PREPARING,
        "moved_percent": 33.3,
        "started_at_ms": 1_764_000_000_000,
        "sealed": 16,
        "to_seal": 16,
        "opened": 8,
        "to_open": 8,
        "retiring": 0,
        "waits_for": ["a broker"],
    } | changes
    fields["phase"] = RescalePhase(fields["phase"])
    fields["hindrance"] = Hindrance(fields.get("hindrance", ""))
    return RescaleStatus(**fields)


def group_view(
    states="RRRR",
    *,
    moving=0,
    waiting=False,
    held=0,
    members=None,
    unseen=0,
    rebalances=(),
    blocked=None,
    missing=None,
    stalled=None,
    held_keys=None,
    parked=None,
    is_client_assigned=False,
):
    names = {"R": "Ready", "P": "Paused", "U": "Unbound", "-": "Unassigned"}
    return GroupView(
        partitions={
            partition: AssignmentEntry(None if s == "-" else "m", Epoch(1), names[s])
            for partition, s in zip(PARTITIONS, states, strict=True)
        },
        members={"m": MemberState.BOUND} if members is None else members,
        unseen_count=unseen,
        moving_count=moving,
        is_waiting=waiting,
        rebalances=rebalances,
        waiting_count=held,
        is_client_assigned=is_client_assigned,
        blocked=blocked or {},
        missing=missing or {},
        stalled=stalled or {},
        held_keys=held_keys or {},
        parked=parked or {},
    )


def group_facts(**changes):
    facts = {"generation": 2, "queue": "orders", "queue_ready": READY, "view": group_view()}
    return GroupFacts(**(facts | changes))


def summary(findings):
    """Return (status, reason) of the three that sum up."""
    found = {each.type: (each.is_true, str(each.reason)) for each in findings}
    return [found[name] for name in ("Ready", "Reconciling", "Stalled")]
