"""From what a worker knows to the status of a queue and of its groups. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from partq.coordinator.view import GroupView, QueueView
from partq.core.group.membership import MemberState
from partq.core.group.records import RebalanceRecord
from partq.core.model import MemberId
from partq.kube.bodies import Fields, Manifest
from partq.kube.names import ConditionReason, ConditionType, QueueKey, client_url
from partq.kube.status import conditions
from partq.kube.status.conditions import Finding, bad, good, summarize
from partq.kube.status.group_conditions import (
    assigned_of,
    dead_letters_stored,
    members_admitted,
    messages_present,
    ranges,
)
from partq.resources.status import (
    MAX_MEMBER_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_PODS,
    MAX_REBALANCES,
    MAX_SHOWN_REFUSED,
)

MOVING = frozenset(
    {
        ConditionReason.REBALANCING,
        ConditionReason.WAITING_FOR_MEMBER,
        ConditionReason.WAITING_FOR_BUDGET,
    },
)
"""Reasons by which a group is on its way to its desired state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """How the queue's Redis keeps what it has confirmed."""

    is_appending: bool
    """It writes an append-only file."""
    sync: str
    """`always`, `everysec`, `no`; empty: it does not say."""
    is_nearly_full: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """What a worker knows of its queue."""

    key: QueueKey
    generation: int
    troubles: Mapping[ConditionType, Finding] = field(default_factory=dict)
    """What went wrong last in each part of the work, and is not mended yet."""
    is_applied: bool = False
    """Its objects were applied, if not for the latest spec."""
    is_provisioned: bool = False
    """The queue's records are in the store."""
    partition_count: int | None = None
    desired_brokers: int = 0
    ready_pods: int = 0
    is_starting: bool = False
    """It has never been served, and its brokers have not had the time to start."""
    is_short: bool = True
    """Brokers that are missing have been so for longer than one takes to start."""
    is_store_ephemeral: bool = False
    """Redis lives as long as its pod, as the chart says."""
    durability: Durability | None = None
    view: QueueView | None = None
    group_count: int = 0
    scheme: str = "http"
    """How the brokers of the spec are called."""
    is_paused: bool = False
    is_rebalance_paused: bool = False
    tokens_secret: str | None = None
    store_uid: str | None = None
    store: str | None = None
    """Where its records are."""

    @property
    def ready_brokers(self) -> int:
        """How many brokers hold a lease, answer, and have a pod that is Ready."""
        answering = sum(self.view.brokers.values()) if self.view else 0
        return min(answering, self.ready_pods)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """What a worker knows of one group."""

    generation: int
    queue: str
    """Name of its queue."""
    problem: Finding | None = None
    """What is wrong with its spec."""
    queue_ready: Finding | None = None
    """Ready of its queue; None: there is no such queue."""
    view: GroupView | None = None
    unselected: Sequence[str] = ()
    """Which connected pods the selector does not mean any more, in words."""
    circle: Sequence[str] = ()
    """The queues that its dead letters pass on their way back to its queue; empty: they do not."""
    lag: int | None = None
    is_paused: bool = False
    is_rebalance_paused: bool = False
    rebalance_now: str | None = None


def queue_status(
    facts: QueueFacts, previous: Fields, now: datetime
) -> tuple[Manifest, list[Finding]]:
    """Return the status of a queue, and the findings that it shows."""
    findings = queue_findings(facts)
    owned = len(facts.view.owners) if facts.view else 0
    status = {
        **_observed(facts.generation, findings, previous, now),
        "brokers": {"desired": facts.desired_brokers, "ready": facts.ready_brokers},
        "groups": facts.group_count,
        "url": client_url(facts.key, facts.scheme),
        "partitions": {"configured": facts.partition_count, "ready": owned}
        if facts.partition_count is not None
        else None,
        "tokensSecret": facts.tokens_secret,
        "storeUid": facts.store_uid,
        "store": facts.store,
    }
    return status, findings


def _observed(
    generation: int, findings: Sequence[Finding], previous: Fields, now: datetime
) -> Manifest:
    """Return what every status begins with."""
    before = previous.get("conditions") or ()
    shown = conditions.render(findings, before, generation=generation, now=instant(now))
    return {"observedGeneration": generation, "conditions": shown}


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
    found = summarize(needed, is_moving=brokers.is_true is not True, refused=refused)
    beside = [brokers, _durable(facts), _within_quota(facts.view)]
    return [*found, *beside, *_pauses(facts)]


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
        "rebalanceNow": facts.rebalance_now,
    }
    if view is not None:
        states = Counter(each.state for each in view.partitions.values())
        held = _held(view)
        status |= {
            "members": _members(view, held),
            "refusedMembers": _refused(view, pod_name),
            "partitions": {
                name.lower(): states[name] for name in ("Ready", "Paused", "Unbound", "Unassigned")
            },
            "waitingMoves": view.waiting_count,
            "assignments": _assignments(held, pod_name),
            "rebalances": [_rebalance(each) for each in view.rebalances[-MAX_REBALANCES:]],
        }
    return status, findings


def group_findings(facts: GroupFacts) -> list[Finding]:
    """Return every condition of a group."""
    valid, queue = ConditionType.SPEC_VALID, facts.queue_ready
    problem = facts.problem
    if queue is None:
        text = f"there is no queue {facts.queue} in the namespace"
        problem = problem or bad(valid, ConditionReason.QUEUE_NOT_FOUND, text)
    # A change that is refused stops nothing of a group that has been served.
    refused = problem if queue is not None and facts.view is not None else None
    needed = [problem or good(valid)]
    if queue is not None and queue.is_true is not True:
        # A spec that is refused is the queue's error: its groups name it, and have none themselves.
        is_refused = queue.reason is ConditionReason.INVALID_SPEC
        why = f" is not accepted: {queue.message}" if is_refused else _trouble(queue)
        text = f"queue {facts.queue}{why}"
        needed.append(
            Finding(ConditionType.QUEUE_READY, queue.is_true, ConditionReason.QUEUE_NOT_READY, text)
        )
    elif queue is not None and (facts.view is None or facts.view.unseen_count):
        text = "not every broker serves the group yet"
        needed.append(Finding(ConditionType.QUEUE_READY, None, ConditionReason.PENDING, text))
    assigned, stored = assigned_of(facts.view), dead_letters_stored(facts.view, facts.circle)
    present = messages_present(facts.view)
    admitted = members_admitted(facts.view, facts.unselected)
    # A group without consumers does what it should; its reason says so in the first columns.
    is_ready = assigned.is_true is True or assigned.reason is ConditionReason.NO_MEMBER
    stops = [
        present,
        *([stored] if stored.reason is ConditionReason.DEAD_LETTERS_BLOCKED else ()),
    ]
    needs = [*stops, *([admitted] if assigned.reason is ConditionReason.NO_MEMBER else ())]
    trouble = next((each for each in needs if is_ready and each.is_true is False), None)
    shown = trouble or assigned
    is_ready = is_ready and trouble is None
    ready = Finding(ConditionType.READY, is_ready, shown.reason, shown.message)
    is_moving = assigned.reason in MOVING
    summary = summarize(needed, ready=ready, is_moving=is_moving, refused=refused)
    return [*summary, assigned, stored, present, admitted, *_pauses(facts)]


def _trouble(queue: Finding) -> str:
    return f": {queue.reason}: {queue.message}"


def instant(at: datetime) -> str:
    """Return an instant as Kubernetes writes it: UTC, whole seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- queue --------------------------------------------------------------------------------------


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
    missing = facts.partition_count - len(view.owners)
    if not missing:
        return good(type_)
    if facts.is_starting:
        text = f"{missing} of {facts.partition_count} partitions wait for brokers that start"
        return Finding(type_, None, ConditionReason.BROKERS_STARTING, text)
    unreachable = sorted(broker for broker, answers in view.brokers.items() if not answers)
    if not view.brokers:
        return bad(type_, ConditionReason.BROKERS_MISSING, "no broker is up")
    if unreachable:
        text = f"{missing} partitions are not served; no answer from {', '.join(unreachable)}"
        return bad(type_, ConditionReason.BROKER_UNREACHABLE, text)
    text = f"{missing} of {facts.partition_count} partitions have no broker yet"
    return bad(type_, ConditionReason.PARTITIONS_UNSERVED, text)


def _brokers(facts: QueueFacts) -> Finding:
    type_ = ConditionType.BROKERS_READY
    if facts.ready_brokers >= facts.desired_brokers:
        return good(type_)
    text = f"{facts.ready_brokers} of {facts.desired_brokers} brokers are ready"
    if not facts.is_short:
        return Finding(
            type_, None, ConditionReason.BROKERS_STARTING, f"{text}; the others are starting"
        )
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
        type_, None, ConditionReason.PENDING, "Redis does not let us ask for appendfsync"
    )


def _within_quota(view: QueueView | None) -> Finding:
    type_ = ConditionType.WITHIN_QUOTA
    if view is None or not any(view.brokers.values()):
        return Finding(type_, None, ConditionReason.PENDING, "no broker says how much is stored")
    if view.is_quota_used_up:
        text = "limits.maxSpoolBytes is used up: publishes are refused until consumers make room"
        return bad(type_, ConditionReason.QUOTA_USED_UP, text)
    return good(type_)


def _pauses(facts: QueueFacts | GroupFacts) -> list[Finding]:
    return [
        Finding(type_, is_on, ConditionReason.ANNOTATION if is_on else ConditionReason.NOT_PAUSED)
        for type_, is_on in (
            (ConditionType.PAUSED, facts.is_paused),
            (ConditionType.REBALANCE_PAUSED, facts.is_rebalance_paused),
        )
    ]


# ---- group --------------------------------------------------------------------------------------


def _refused(view: GroupView, pod_name: Callable[[MemberId], str]) -> list[dict[str, str]]:
    by_pod = {pod_name(member): reason for member, reason in view.refused.items()}
    return [
        {"pod": pod[:MAX_MEMBER_CHARS], "reason": by_pod[pod][:MAX_MESSAGE_CHARS]}
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
        case ConditionReason.WAITING_FOR_MEMBER:
            return "Waiting"
    return "Stable"


def _held(view: GroupView) -> dict[MemberId, list[int]]:
    held: dict[MemberId, list[int]] = {}
    for partition, assigned in view.partitions.items():
        if assigned.member is not None:
            held.setdefault(assigned.member, []).append(partition.index)
    return held


def _members(view: GroupView, held: Mapping[MemberId, Sequence[int]]) -> dict[str, int]:
    connected = {
        member
        for member, state in view.members.items()
        if state in (MemberState.BOUND, MemberState.LEAVING)
    }
    return {
        "active": len(connected & held.keys()),
        "standby": len(connected - held.keys()),
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
        {"pod": pod, "partitions": _fitting(ranges(by_pod[pod]))}
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
