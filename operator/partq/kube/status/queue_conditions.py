"""The conditions of a queue, each from what its worker knows. Pure."""

from partq.coordinator.view import QueueView
from partq.core.views.rescale_status import Hindrance, RescalePhase, RescaleStatus
from partq.excerpts import counted
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status.conditions import Finding, bad, good, pauses, summarize
from partq.kube.status.facts import QueueFacts


def queue_findings(facts: QueueFacts) -> list[Finding]:
    """Return every condition of a queue."""
    brokers = _brokers(facts)
    needed = [
        _part(facts, ConditionType.SPEC_VALID, is_done=True),
        _part(facts, ConditionType.OBJECTS_APPLIED, is_done=facts.is_applied),
        _part(facts, ConditionType.STORE_REACHABLE, is_done=facts.is_provisioned),
        _served(facts),
    ]
    refused = needed[0] if facts.is_provisioned and needed[0].is_true is False else None
    found = summarize(
        needed,
        is_moving=brokers.is_true is not True,
        change=rescale_finding(facts.rescale),
        refused=refused,
    )
    beside = [brokers, _durable(facts), _within_quota(facts.view)]
    return [*found, *beside, *pauses(facts.is_paused, facts.is_rebalance_paused)]


_RESCALE_REASONS = {
    RescalePhase.PREPARING: ConditionReason.RESCALE_PREPARING,
    RescalePhase.OPENING: ConditionReason.RESCALE_OPENING,
    RescalePhase.DRAINING: ConditionReason.RESCALE_DRAINING,
}
_HINDRANCES = {
    Hindrance.BROKERS: ConditionReason.RESCALE_WAITS_FOR_BROKERS,
    Hindrance.GENERATIONS: ConditionReason.TOO_MANY_GENERATIONS,
    Hindrance.RETIRED: ConditionReason.TOO_MANY_RETIRED,
}


def rescale_finding(status: RescaleStatus | None) -> Finding | None:
    """Return what Reconciling says of a change of the number of partitions; None: none runs."""
    if status is None or status.phase not in _RESCALE_REASONS:
        return None
    reason = _HINDRANCES.get(status.hindrance, _RESCALE_REASONS[status.phase])
    count = f"{status.from_count} -> {counted(status.to_count, 'partition')}"
    waits = "; ".join(status.waits_for)
    text = f"{count}: waits for {waits}" if waits else count
    return Finding(ConditionType.RECONCILING, True, reason, text)


def _part(facts: QueueFacts, type_: ConditionType, *, is_done: bool) -> Finding:
    if trouble := facts.troubles.get(type_):
        return trouble
    return good(type_) if is_done else Finding(type_, None, ConditionReason.PENDING, "not done yet")


def _served(facts: QueueFacts) -> Finding:
    """Say whether every partition has a broker."""
    type_, view = ConditionType.PARTITIONS_SERVED, facts.view
    if view is None or facts.partition_count is None:
        text = "waiting for the first look at the brokers"
        return Finding(type_, None, ConditionReason.PENDING, text)
    expected = facts.expected
    missing = sum(partition not in view.owners for partition in expected)
    if not missing:
        return good(type_)
    unserved = f"no broker yet for {missing} of {counted(len(expected), 'partition')}"
    if facts.is_starting:
        text = f"{unserved}; brokers are starting"
        return Finding(type_, None, ConditionReason.BROKERS_STARTING, text)
    unreachable = sorted(broker for broker, answers in view.brokers.items() if not answers)
    if not view.brokers:
        return bad(type_, ConditionReason.BROKERS_MISSING, "no broker is up")
    if unreachable:
        what = counted(missing, "partition is", "partitions are")
        text = f"{what} not served; no answer from {', '.join(unreachable)}"
        return bad(type_, ConditionReason.BROKER_UNREACHABLE, text)
    return bad(type_, ConditionReason.PARTITIONS_UNSERVED, unserved)


def _brokers(facts: QueueFacts) -> Finding:
    type_ = ConditionType.BROKERS_READY
    missing = facts.desired_brokers - facts.ready_brokers
    if missing <= 0:
        return good(type_)
    text = f"{facts.ready_brokers} of {counted(facts.desired_brokers, 'broker')} ready"
    if not facts.is_short:
        text = f"{text}; {counted(missing, 'is', 'are')} starting"
        return Finding(type_, None, ConditionReason.BROKERS_STARTING, text)
    return bad(type_, ConditionReason.BROKERS_MISSING, text)


def _durable(facts: QueueFacts) -> Finding:
    type_, durability = ConditionType.STORE_DURABLE, facts.durability
    if ConditionType.STORE_REACHABLE in facts.troubles:
        return Finding(type_, None, ConditionReason.PENDING, "Redis cannot be asked")
    if durability is None:
        return Finding(type_, None, ConditionReason.PENDING, "Redis has not been asked yet")
    if durability.is_nearly_full:
        return bad(
            type_, ConditionReason.STORE_NEARLY_FULL, "above 80 % of maxmemory: publishing stops"
        )
    if not durability.is_appending:
        text = "appendonly is off: messages are lost when Redis restarts"
        return bad(type_, ConditionReason.NOT_SYNCED, text)
    if facts.is_store_ephemeral:
        text = "Redis has no volume: messages are lost with its pod; see redis.builtIn.persistence"
        return bad(type_, ConditionReason.NOT_PERSISTENT, text)
    match durability.sync:
        case "always":
            return good(type_, ConditionReason.SYNCED_ALWAYS)
        case "everysec":
            text = "appendfsync is everysec: up to 2 s can be lost when Redis dies"
            return bad(type_, ConditionReason.SYNCED_EVERY_SECOND, text)
        case "no":
            return bad(
                type_, ConditionReason.NOT_SYNCED, "appendfsync is no: the kernel decides when"
            )
    return Finding(
        type_, None, ConditionReason.PENDING, "Redis does not answer CONFIG GET appendfsync"
    )


def _within_quota(view: QueueView | None) -> Finding:
    type_ = ConditionType.WITHIN_QUOTA
    if view is None or not any(view.brokers.values()):
        return Finding(type_, None, ConditionReason.PENDING, "no broker says how much is stored")
    if view.is_quota_used_up:
        text = "limits.maxSpoolBytes is used up: publishes are refused until consumers make room"
        return bad(type_, ConditionReason.QUOTA_USED_UP, text)
    return good(type_)
