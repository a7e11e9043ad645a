"""Which changes between two looks at a queue or a group get an Event. Pure."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from partq.coordinator.view import GroupView
from partq.core.group.membership import MemberState
from partq.core.group.records import RebalanceRecord
from partq.core.model import MemberId
from partq.excerpts import counted, some_of
from partq.kube.names import ConditionType, EventReason
from partq.kube.status.conditions import Finding

_CONNECTED = (MemberState.BOUND, MemberState.LEAVING)
_LOST = MemberState.WAITING
_QUIET = frozenset(
    {
        ConditionType.READY,
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.PARTITIONS_ASSIGNED,
    }
)
"""They sum up others, or change with each rebalance, for which `of_group` has Events."""


class PendingEvent(NamedTuple):
    """An Event that is not written yet."""

    reason: str
    text: str
    is_warning: bool = False


def of_conditions(before: Sequence[Finding], after: Sequence[Finding]) -> list[PendingEvent]:
    """Return Events for conditions that have turned bad, and for those that are good again."""
    known = {each.type: each for each in before}
    notes = []
    for finding in after:
        last = known.get(finding.type)
        if finding.type in _QUIET or finding.reason is _reason(last):
            continue
        if finding.type in (ConditionType.PAUSED, ConditionType.REBALANCE_PAUSED):
            if last is not None:
                text = "by annotation" if finding.is_true else "no longer"
                notes.append(PendingEvent(str(finding.type), text))
        elif finding.is_true is False:
            notes.append(PendingEvent(str(finding.reason), finding.message, is_warning=True))
        elif finding.is_true is True and last is not None and last.is_true is False:
            notes.append(
                PendingEvent(EventReason.RECOVERED, f"{finding.type}: {last.reason} is over")
            )
    return notes


def with_members(before: GroupView | None, after: GroupView) -> GroupView:
    """Return a view whose members are those that have joined and not left.

    A member that lost its connection stays one while the group waits for it. While a broker does
    not answer, the members are those of the view before.
    """
    known = before.members if before is not None else {}
    if before is not None and not after.is_complete:
        return replace(after, members=known)
    members = {
        member: state
        for member, state in after.members.items()
        if state in _CONNECTED or (state is _LOST and (before is None or member in known))
    }
    return replace(after, members=members)


def of_group(
    before: GroupView | None, after: GroupView, pod_name: Callable[[MemberId], str]
) -> list[PendingEvent]:
    """Return Events about members and rebalances; both views are those of `with_members`."""
    if before is None:
        return []  # a start of the operator is not a change
    notes = []
    came = after.members.keys() - before.members.keys()
    went = before.members.keys() - after.members.keys()
    if came:
        notes.append(PendingEvent(EventReason.MEMBER_JOINED, _named(came, pod_name)))
    if went:
        notes.append(PendingEvent(EventReason.MEMBER_LEFT, _named(went, pod_name)))
    if after.is_waiting and not before.is_waiting:
        text = "a member's connection is lost; its partitions wait for it"
        notes.append(PendingEvent(EventReason.REBALANCE_SCHEDULED, text))
    done = _new(before, after)
    is_calm = not after.is_waiting and not after.moving_count and not before.moving_count
    if before.is_waiting and is_calm and not done:
        text = "the member is back; nothing has moved"
        notes.append(PendingEvent(EventReason.REBALANCE_CANCELLED, text))
    # One that began and ended between two looks has begun all the same.
    count = after.moving_count or sum(each.moved + each.assigned for each in done)
    # Moves that waited for the budget belong to the rebalance of an earlier Event.
    goes_on = after.waiting_count < before.waiting_count
    if count and not before.moving_count and not goes_on:
        text = f"{counted(count, 'partition is', 'partitions are')} handed over"
        notes.append(PendingEvent(EventReason.REBALANCE_STARTED, text))
    for rebalance in done:
        notes.append(_completed(rebalance))
        if rebalance.timed_out:
            text = (
                f"{counted(rebalance.timed_out, 'partition was', 'partitions were')} taken from "
                "members that had not finished in time; what they were processing is redelivered"
            )
            notes.append(
                PendingEvent(EventReason.PARTITION_HANDOFF_TIMED_OUT, text, is_warning=True)
            )
    return notes


def _reason(finding: Finding | None) -> object:
    return finding.reason if finding is not None else None


def _new(before: GroupView, after: GroupView) -> list[RebalanceRecord]:
    known = set(before.rebalances)
    return [each for each in after.rebalances if each not in known]


def _completed(rebalance: RebalanceRecord) -> PendingEvent:
    """Return an Event whose text is equal for equal rebalances: only such Events are aggregated.

    How long each took is in the group's status.
    """
    moved = counted(rebalance.moved, "partition")
    text = f"{rebalance.trigger}: {moved} moved, {rebalance.assigned} assigned"
    return PendingEvent(EventReason.REBALANCE_COMPLETED, text)


def _named(members: Collection[MemberId], pod_name: Callable[[MemberId], str]) -> str:
    return some_of([pod_name(member) for member in members])
