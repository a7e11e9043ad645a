"""What members have in a status: partitions, or parts of them where members share keys."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from partq.core.partition_problems import ProblemKind
from partq.core.parts.part_id import number_ranges
from partq.wire.calls.answers import UNSET
from partq.wire.calls.status import GroupPartition

_BY_STATE = {
    "Unassigned": ProblemKind.UNASSIGNED,
    "Unbound": ProblemKind.UNBOUND,
    "Paused": ProblemKind.PAUSED,
}


class Seat(NamedTuple):
    """A partition, or a part of one."""

    name: str
    """`1.3`, or `1.3/5`."""
    member: str
    """Empty: none has it."""
    state: str
    problem: ProblemKind | None


def seats_of(
    rows: Mapping[str, GroupPartition], problems: Mapping[str, ProblemKind | None]
) -> Iterator[Seat]:
    """Yield partitions, or their parts by numbers; `problems`: of each partition to show.

    What keeps messages of a whole partition from the group is a problem of each of its parts.
    """
    for name, problem in problems.items():
        row = rows.get(name)
        if row is None or row.parts is UNSET:
            yield Seat(name, "" if row is None else row.member, row.state if row else "", problem)
            continue
        is_of_parts = problem in _BY_STATE.values()
        found = {
            part: Seat(
                f"{name}/{part}",
                each.member,
                each.state,
                _BY_STATE.get(each.state) if is_of_parts or problem is None else problem,
            )
            for each in row.parts
            for part in each.parts
        }
        yield from (found[part] for part in sorted(found))


def holders_text(row: GroupPartition) -> str:
    """Return the members of a partition, each with its parts: `a 0-7, b 8-15`."""
    if row.parts is UNSET:
        return row.member
    return ", ".join(
        f"{each.member or 'nobody'} {number_ranges(each.parts)}"
        for each in sorted(row.parts, key=lambda each: each.parts)
    )
