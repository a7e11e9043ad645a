"""From what a worker knows to the status of a queue and of its groups. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from partq.coordinator.view import GroupView
from partq.core.group.membership import MemberState
from partq.core.group.records import AssignmentEntry, RebalanceRecord
from partq.core.model import MemberId, PartitionId
from partq.core.parts.part_id import number_ranges, partition_of
from partq.core.views.rescale_status import RescalePhase, RescaleStatus
from partq.kube.bodies import Fields, Manifest
from partq.kube.names import ConditionReason, client_url
from partq.kube.status import conditions
from partq.kube.status.conditions import Finding
from partq.kube.status.facts import GroupFacts, QueueFacts
from partq.kube.status.group_conditions import assigned_of, group_findings
from partq.kube.status.queue_conditions import queue_findings
from partq.resources.status import (
    MAX_HELD,
    MAX_MESSAGE_CHARS,
    MAX_POD_CHARS,
    MAX_PODS,
    MAX_REBALANCES,
    MAX_SHOWN_REFUSED,
)


def queue_status(
    facts: QueueFacts, previous: Fields, now: datetime
) -> tuple[Manifest, list[Finding]]:
    """Return the status of a queue, and the findings that it shows."""
    findings = queue_findings(facts)
    status = {
        **_observed(facts.generation, findings, previous, now),
        "brokers": {"desired": facts.desired_brokers, "ready": facts.ready_brokers},
        "groups": facts.group_count,
        "url": client_url(facts.key, facts.scheme),
        "partitions": _queue_partitions(facts),
        "rescale": _rescale(facts.rescale),
        "advice": _advice(facts),
        "tokensSecret": facts.tokens_secret,
        "storeUid": facts.store_uid,
        "store": facts.store,
    }
    return status, findings


def _queue_partitions(facts: QueueFacts) -> Manifest | None:
    count, change = facts.partition_count, facts.rescale
    if count is None:
        return None
    is_preparing = change is not None and change.phase is RescalePhase.PREPARING
    is_over = change is None or change.phase in (RescalePhase.SETTLED, RescalePhase.ABORTED)
    return {
        "configured": count,
        "ready": facts.ready_count,
        "target": change.to_count if change is not None and is_preparing else count,
        "retiring": change.retiring if change is not None else 0,
        "summary": str(count)
        if change is None or is_over
        else f"{change.from_count}->{change.to_count}",
    }


def _rescale(status: RescaleStatus | None) -> Manifest | None:
    if status is None:
        return None
    shown: Manifest = {
        "generation": status.generation,
        "from": status.from_count,
        "to": status.to_count,
        "phase": str(status.phase),
        "movedPercent": status.moved_percent,
        "sealed": status.sealed,
        "opened": status.opened,
        "held": [asdict(each) for each in status.held[:MAX_HELD]],
    }
    if status.started_at_ms:
        shown["startedAt"] = instant(datetime.fromtimestamp(status.started_at_ms / 1000, UTC))
    return shown


def _advice(facts: QueueFacts) -> Manifest | None:
    if facts.advice is None or facts.advised_since is None:
        return None
    return {
        "partitions": facts.advice.partitions,
        "reason": str(facts.advice.reason),
        "message": facts.advice.text[:MAX_MESSAGE_CHARS],
        "since": instant(facts.advised_since),
    }


def _observed(
    generation: int, findings: Sequence[Finding], previous: Fields, now: datetime
) -> Manifest:
    """Return what every status begins with."""
    before = previous.get("conditions") or ()
    shown = conditions.render(findings, before, generation=generation, now=instant(now))
    return {"observedGeneration": generation, "conditions": shown}


def group_status(
    facts: GroupFacts,
    previous: Fields,
    now: datetime,
    pod_name: Callable[[MemberId], str],
) -> tuple[Manifest, list[Finding]]:
    """Return the status of a group, and the findings that it shows."""
    findings = group_findings(facts)
    view = facts.view
    status: Manifest = {
        **_observed(facts.generation, findings, previous, now),
        "phase": _phase(facts),
        "lag": facts.lag,
        "sessions": _sessions(facts),
        "rebalanceNow": facts.rebalance_now,
    }
    if view is not None:
        current = {
            p: each for p, each in view.partitions.items() if partition_of(p) not in view.retired
        }
        states = Counter(each.state for each in current.values())
        held = _held(view.partitions)
        status |= {
            "members": _members(view, held),
            "refusedMembers": _refused(view, pod_name),
            "partitions": {
                name.lower(): states[name] for name in ("Ready", "Paused", "Unbound", "Unassigned")
            },
            "waitingMoves": view.waiting_count,
            "assignments": _assignments(_held(current), pod_name),
            "rebalances": [_rebalance(each) for each in view.rebalances[-MAX_REBALANCES:]],
        }
    return status, findings


def _sessions(facts: GroupFacts) -> Manifest | None:
    if facts.sessions is None:
        return None
    with_messages, locked, waiting = facts.sessions
    return {"withMessages": with_messages, "locked": locked, "waiting": waiting}


def instant(at: datetime) -> str:
    """Return an instant as Kubernetes writes it: UTC, whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(view: GroupView, pod_name: Callable[[MemberId], str]) -> list[dict[str, str]]:
    by_pod = {pod_name(member): reason for member, reason in view.refused.items()}
    return [
        {"pod": pod[:MAX_POD_CHARS], "reason": by_pod[pod][:MAX_MESSAGE_CHARS]}
        for pod in sorted(by_pod)[:MAX_SHOWN_REFUSED]
    ]


def _phase(facts: GroupFacts) -> str:
    is_served = facts.queue_ready is not None and facts.queue_ready.is_true is True
    if facts.is_paused:
        return "Paused"
    if not is_served or facts.view is None:
        return "Degraded"
    match assigned_of(facts.view).reason:
        case ConditionReason.NO_MEMBER:
            return "Empty"
        case (
            ConditionReason.REBALANCING
            | ConditionReason.PARTITIONS_UNASSIGNED
            | ConditionReason.WAITING_FOR_BUDGET
        ):
            return "Rebalancing"
        case ConditionReason.WAITING_FOR_MEMBER | ConditionReason.PARTITIONS_UNREGISTERED:
            return "Waiting"
    return "Stable"


def _held(partitions: Mapping[PartitionId, AssignmentEntry]) -> dict[MemberId, list[int]]:
    """Return the indexes of each member's partitions, also of those that it has a part of."""
    held: dict[MemberId, dict[int, None]] = {}
    for partition, assigned in partitions.items():
        if assigned.member is not None:
            held.setdefault(assigned.member, {})[partition.index] = None
    return {member: list(indexes) for member, indexes in held.items()}


def _members(view: GroupView, held: Mapping[MemberId, Sequence[int]]) -> dict[str, int]:
    connected = {
        member
        for member, state in view.members.items()
        if state in (MemberState.BOUND, MemberState.LEAVING)
    }
    active = connected if view.is_open else connected & held.keys()
    return {
        "active": len(active),
        "standby": len(connected - active),
        "lost": len(held.keys() - connected),
        "refused": len(view.refused),
    }


def _assignments(
    held: Mapping[MemberId, Collection[int]], pod_name: Callable[[MemberId], str]
) -> list[dict[str, str]]:
    by_pod: dict[str, list[int]] = {}
    for member, indexes in held.items():
        by_pod.setdefault(pod_name(member), []).extend(indexes)
    return [
        {"pod": pod, "partitions": _fitting(number_ranges(by_pod[pod]))}
        for pod in sorted(by_pod)[:MAX_PODS]
    ]


def _fitting(text: str) -> str:
    """Return ranges as far as there is room, `...` for the rest; never a part of a number."""
    if len(text) <= MAX_MESSAGE_CHARS:
        return text
    return text[: text.rindex(",", 0, MAX_MESSAGE_CHARS - 2) + 1] + "..."


def _rebalance(rebalance: RebalanceRecord) -> Manifest:
    started = datetime.fromtimestamp(rebalance.started_at_ms / 1000, UTC)
    return {
        "id": rebalance.started_at_ms,
        "trigger": rebalance.trigger,
        "startedAt": instant(started),
        "moved": rebalance.moved,
        "assigned": rebalance.assigned,
        "timedOut": rebalance.timed_out,
        "durationMilliseconds": rebalance.duration_ms,
        "longestPauseMilliseconds": rebalance.longest_pause_ms,
    }
