"""The slots that members of a group with `hashRange: Sticky` declare, checked as they bind."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from partq.core.cursor.redelivery_rules import RedeliveryRules
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.core.parts.declared_ranges import bounds_of, inside_part, overlap, problem_of
from partq.errors import BadRequestError, ConflictError, UnavailableError
from partq.excerpts import excerpt


class DeclaringFlow(Protocol):
    """What the check wants to know of a flow."""

    group: str
    member: MemberId
    ranges: tuple[tuple[int, int], ...]
    is_leaving: bool


class RangeCheck:
    """Refuses ranges that are not of whole parts, or that another member has declared."""

    def __init__(
        self, layout: Callable[[], Layout | None], rules: Callable[[str], RedeliveryRules]
    ) -> None:
        self._layout = layout
        self._rules = rules
        self._bounds: tuple[tuple[PartitionId, ...], int, list[int]] = ((), 0, [])
        """Those of the last check, with the partitions and the parts that they are of."""

    def check(
        self,
        group: str,
        member: MemberId,
        ranges: Sequence[tuple[int, int]],
        flows: Iterable[DeclaringFlow],
    ) -> None:
        """Check what a member declares as it binds; `flows`: those that are bound here.

        Raises:
            BadRequestError: the group does not ask for ranges, or they are not of whole parts.
            ConflictError: another member has declared some of the slots.
            UnavailableError: the layout was not read yet.
        """
        rules = self._rules(group)
        if not rules.takes_ranges:
            if ranges:
                raise BadRequestError(
                    f"bind: ranges in group {group}; expected them in a group of type KeyShared "
                    "with keyShared.hashRange Sticky alone: leave them out"
                )
            return
        if not ranges:
            raise BadRequestError(
                f"bind: no ranges in group {group}, whose keyShared.hashRange is Sticky; expected "
                "the slots that the member wants, such as Consumer(ranges=[(0, 32768)])"
            )
        if problem := problem_of(ranges):
            raise BadRequestError(f"bind: ranges: {problem}")
        layout = self._layout()
        if layout is None:
            raise UnavailableError(
                "bind: this broker has not read the layout of the queue yet; bind again",
                retry_after_s=1.0,
            )
        if problem := inside_part(ranges, self._bounds_of(layout, rules.parts or 1)):
            raise BadRequestError(f"bind: ranges: {problem}")
        others = (
            (each.member, each.ranges)
            for each in flows
            if each.group == group and each.member != member and not each.is_leaving
        )
        if (found := overlap(ranges, others)) is not None:
            other, start, stop = found
            raise ConflictError(
                f"bind: member {excerpt(member)} of {group} has declared the slots {start} to "
                f"{stop}, which {excerpt(other)} has; declare slots that no other member has, or "
                "end that one first"
            )

    def _bounds_of(self, layout: Layout, parts: int) -> list[int]:
        """Return where parts begin or end; 65,536 of them take a tenth of a second, once.

        A partition keeps the slots that it was made with.
        """
        partitions = layout.partitions()
        if self._bounds[:2] != (partitions, parts):
            slots = {each: layout.first_slots(each) for each in partitions}
            self._bounds = (partitions, parts, bounds_of(slots, parts))
        return self._bounds[2]
