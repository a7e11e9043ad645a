"""The conditions of a group, each from what its worker knows. Pure."""

from collections import Counter
from collections.abc import Collection, Sequence

from partq.coordinator.view import GroupView
from partq.core.group.membership import MemberState
from partq.core.partition_problems import held_keys_text
from partq.core.parts.part_id import number_ranges
from partq.excerpts import counted
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status.conditions import Finding, bad, good, pauses, summarize
from partq.kube.status.facts import GroupFacts

MOVING = frozenset(
    {
        ConditionReason.REBALANCING,
        ConditionReason.WAITING_FOR_MEMBER,
        ConditionReason.WAITING_FOR_BUDGET,
    },
)
"""Reasons that a group has while it changes to its desired state."""


def group_findings(facts: GroupFacts) -> list[Finding]:
    """Return every condition of a group."""
    valid, queue = ConditionType.SPEC_VALID, facts.queue_ready
    problem = facts.problem
    if queue is None:
        text = f"there is no queue {facts.queue} in the namespace"
        problem = problem or bad(valid, ConditionReason.QUEUE_NOT_FOUND, text)
    # A refused change of the spec does not stop a group that has been served.
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
    # A group without consumers is Ready, or one that has not chosen all partitions; kubectl shows
    # the reason in its first columns.
    may_be = (ConditionReason.NO_MEMBER, ConditionReason.PARTITIONS_UNREGISTERED)
    is_ready = assigned.is_true is True or assigned.reason in may_be
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
    return [
        *summary,
        assigned,
        stored,
        present,
        deliveries_flowing(facts.view),
        admitted,
        *pauses(facts.is_paused, facts.is_rebalance_paused),
    ]


def _trouble(queue: Finding) -> str:
    return f": {queue.reason}: {queue.message}"


def _partitions(indexes: Collection[int]) -> str:
    """Return `partition 3`, or `partitions 0-1,3`."""
    return f"partition{'' if len(indexes) == 1 else 's'} {number_ranges(indexes)}"


def assigned_of(view: GroupView | None) -> Finding:
    """Say whether every partition has a member that is connected."""
    type_ = ConditionType.PARTITIONS_ASSIGNED
    if view is None:
        return Finding(type_, None, ConditionReason.PENDING)
    states = Counter(view.states.values())
    without = states["Unassigned"] + states["Unbound"]
    if not any(state is not MemberState.GONE for state in view.members.values()):
        return bad(type_, ConditionReason.NO_MEMBER, "no member is connected")
    if view.moving_count:
        text = f"{counted(view.moving_count, 'partition is', 'partitions are')} being handed over"
        return Finding(type_, not without, ConditionReason.REBALANCING, text)
    if view.is_waiting:
        what = counted(states["Unbound"], "partition waits", "partitions wait")
        text = f"{what} for their member until its delay is over"
        return bad(type_, ConditionReason.WAITING_FOR_MEMBER, text)
    free = [p.index for p, state in view.states.items() if state == "Unassigned"]
    if free and view.is_client_assigned:
        text = f"no member has registered {_partitions(free)}: in this group members choose"
        return bad(type_, ConditionReason.PARTITIONS_UNREGISTERED, text)
    if free and view.declares_ranges:
        text = f"no member has declared the slots of {counted(len(free), 'part', 'parts')}"
        return bad(type_, ConditionReason.PARTITIONS_UNASSIGNED, text)
    if without:
        text = f"{counted(without, 'partition has', 'partitions have')} no member"
        return bad(type_, ConditionReason.PARTITIONS_UNASSIGNED, text)
    if view.waiting_count:
        what = counted(view.waiting_count, "partition is", "partitions are")
        text = f"{what} to move when the budget of spec.rebalance allows it"
        return good(type_, ConditionReason.WAITING_FOR_BUDGET, text)
    return good(type_, ConditionReason.STABLE)


def dead_letters_stored(view: GroupView | None, circle: Sequence[str]) -> Finding:
    """Say whether dead letters wait to be stored, with or without a stop of deliveries.

    Or whether they return to the queue that they left, through the queues of `circle`.
    """
    type_ = ConditionType.DEAD_LETTERS_STORED
    if view is None:
        return Finding(type_, None, ConditionReason.PENDING)
    if not view.blocked:
        if view.parked:
            return bad(type_, ConditionReason.DEAD_LETTERS_PARKED, _parked(view))
        return (
            bad(type_, ConditionReason.DEAD_LETTERS_RETURN, _return(circle))
            if circle
            else good(type_)
        )
    # The first answer is shown: those of the others differ by the partition that they name.
    indexes = {partition.index: why for partition, why in view.blocked.items()}
    text = f"deliveries of {_partitions(indexes)} wait: {indexes[min(indexes)]}"
    if view.parked:
        text = f"{text}; besides, {_parked(view)}"
    return bad(type_, ConditionReason.DEAD_LETTERS_BLOCKED, text)


def _return(circle: Sequence[str]) -> str:
    return (
        f"dead letters come back to the queue that they leave ({' to '.join(circle)}): a message "
        "that every group fails is moved without end; set spec.deadLetter.queue of one of these "
        "queues, or of its group, to another queue"
    )


def _parked(view: GroupView) -> str:
    indexes = {partition.index: parked for partition, parked in view.parked.items()}
    count = sum(parked.messages for parked in indexes.values())
    what = counted(count, "dead letter waits", "dead letters wait")
    return (
        f"{what} in {_partitions(indexes)}, whose deliveries continue: {indexes[min(indexes)].why}"
    )


def messages_present(view: GroupView | None) -> Finding:
    """Say whether a partition has stopped at a message that its log does not hold."""
    type_ = ConditionType.MESSAGES_PRESENT
    if view is None:
        return Finding(type_, None, ConditionReason.PENDING)
    if not view.missing:
        return good(type_)
    indexes = {partition.index: why for partition, why in view.missing.items()}
    text = f"deliveries of {_partitions(indexes)} stopped: {indexes[min(indexes)]}"
    return bad(type_, ConditionReason.MESSAGES_MISSING, text)


def deliveries_flowing(view: GroupView | None) -> Finding:
    """Say whether a partition is sent nothing new, as too many keys wait, or one for too long.

    Or whether keys wait until somebody releases them, while the others continue.

    Ready is not affected: so does a partition of an ordered group wait for one message.
    """
    type_ = ConditionType.DELIVERIES_FLOWING
    if view is None:
        return Finding(type_, None, ConditionReason.PENDING)
    if not view.stalled:
        return _keys_released(view)
    indexes = {partition.index: why for partition, why in view.stalled.items()}
    code, _, why = indexes[min(indexes)].partition(": ")
    reason = ConditionReason.SPAN_FULL if code == "SpanFull" else ConditionReason.KEYS_PARKED
    text = f"nothing new of {_partitions(indexes)} is sent: {why}; `partq keys release` ends a wait"
    return bad(type_, reason, text)


def _keys_released(view: GroupView) -> Finding:
    type_ = ConditionType.DELIVERIES_FLOWING
    if not view.held_keys:
        return good(type_)
    blocked, quarantined = (sum(counts) for counts in zip(*view.held_keys.values(), strict=True))
    indexes = [partition.index for partition in view.held_keys]
    reason = ConditionReason.KEYS_BLOCKED if blocked else ConditionReason.KEYS_QUARANTINED
    return bad(type_, reason, f"{_partitions(indexes)}: {held_keys_text(blocked, quarantined)}")


def members_admitted(view: GroupView | None, unselected: Sequence[str]) -> Finding:
    """Name the pods that are refused as members, and the members that could not come back."""
    type_ = ConditionType.MEMBERS_ADMITTED
    if view is None:
        return Finding(type_, None, ConditionReason.PENDING)
    if view.refused:
        return bad(type_, ConditionReason.MEMBER_REFUSED, _some(sorted(view.refused.values())))
    if unselected:
        text = f"{_some(unselected)}; it continues until it ends, and is not let in again"
        return bad(type_, ConditionReason.MEMBER_NOT_SELECTED, text)
    return good(type_)


def _some(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{texts[0]}{more}"
