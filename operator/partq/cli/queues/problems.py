"""What a status says is wrong, in sentences for people."""

from collections.abc import Iterable, Mapping, Sequence

from partq.core.partition_problems import (
    ProblemKind,
    blocked_text,
    held_keys_text,
    parked_keys_text,
    parked_text,
    problems_of,
    stalled_text,
    withheld_text,
)
from partq.excerpts import counted
from partq.wire.calls.state import SessionCounts
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    StatusAnswer,
    holders_of,
)

MAX_NAMED = 5
"""Partitions that are named of each problem."""
MIN_CROWD = 1000
"""Messages of a partition below which its share is chance."""
CROWD_FACTOR = 3
"""A partition is crowded above this many times the mean of the others."""


MARKS = {
    ProblemKind.BLOCKED: "!",
    ProblemKind.UNSERVED: "?",
    ProblemKind.UNASSIGNED: "-",
    ProblemKind.UNBOUND: "/",
    ProblemKind.PAUSED: "~",
    ProblemKind.WITHHELD: "=",
    ProblemKind.HELD: "^",
    ProblemKind.STALLED: "%",
}
"""The characters in the map; of what has none, deliveries continue."""


def skew_lines(answer: StatusAnswer) -> list[str]:
    """Return a line for each partition that has got far more messages than the others."""
    counts = {
        name: record.end
        for name, record in answer.partitions.items()
        if record.is_retired is not True  # which gets no messages any more
    }
    total = sum(counts.values())
    return _first(
        f"partition {name} has got {counts[name] / total:.0%} of all messages: "
        "the keys are few, or one of them is frequent"
        for name in crowded(counts)
    )


def crowded(counts: Mapping[str, int]) -> list[str]:
    """Return the partitions that got far more messages than the others, the fullest first.

    `counts`: how many messages each partition of one queue has got. A queue of one partition has
    no skew. A partition is compared with the others alone, so that one of two can be crowded.
    """
    others = len(counts) - 1
    total = sum(counts.values())
    found = [
        name
        for name, count in counts.items()
        if others and count >= MIN_CROWD and count * others > CROWD_FACTOR * (total - count)
    ]
    return sorted(found, key=lambda name: (-counts[name], name))


def retired_count(answer: StatusAnswer) -> int:
    """Return how many partitions have no slots any more; the totals have them, too."""
    return len(retired_names(answer))


def retired_names(answer: StatusAnswer) -> list[str]:
    """Return the partitions that take no messages any more, and are still read."""
    return [name for name, each in answer.partitions.items() if each.is_retired is True]


def unread_partitions(answer: StatusAnswer) -> list[str]:
    """Return the partitions that no number counts: their node of Redis does not answer."""
    return [name for name in answer.unavailable if name not in answer.partitions]


def blocked_partitions(group: GroupStatus) -> dict[str, str]:
    """Return the partitions that deliver nothing to a group, each with the reason.

    Its dead letters are not stored, or the log does not hold the message that comes next.
    """
    return {name: row.blocked for name, row in group.partitions.items() if row.blocked}


def blocked_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition that delivers nothing, of many for some of them."""
    return _first(
        f"partition {name} {blocked_text(reason)}"
        for name, reason in blocked_partitions(group).items()
    )


def parked_partitions(group: GroupStatus) -> dict[str, str]:
    """Return the partitions where dead letters are parked, each with the reason."""
    return {name: row.parked for name, row in group.partitions.items() if row.parked}


def parked_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition where dead letters are parked, of many for some."""
    return _first(
        f"partition {name}: {parked_text(group.partitions[name].dead_letters, reason)}"
        for name, reason in parked_partitions(group).items()
    )


def session_lines(group: GroupStatus) -> list[str]:
    """Return a line with the sessions of a group of the type Session; none for other types.

    A consumer that waits for a session waits at every broker: those of the brokers are not added.
    """
    found = [
        row.sessions for row in group.partitions.values() if isinstance(row.sessions, SessionCounts)
    ]
    if not found:
        return []
    total = SessionCounts(
        sum(each.with_messages for each in found),
        sum(each.locked for each in found),
        max(each.waiting for each in found),
    )
    return [sessions_text(total)]


def sessions_text(counts: SessionCounts) -> str:
    """Return how many sessions there are, in words."""
    waiting = counted(counts.waiting, "request waits", "requests wait")
    return (
        f"{counted(counts.with_messages, 'session has messages', 'sessions have messages')}, "
        f"{counts.locked:,} locked; {waiting} for one"
    )


def parked_key_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition with keys that wait, of many for some of them."""
    return _first(
        f"partition {name}: {_parked_keys(row)}"
        for name, row in group.partitions.items()
        if row.parked_keys
    )


def _parked_keys(row: GroupPartition) -> str:
    if row.stands_still:
        return stalled_text(row.stands_still)
    lowest = row.lowest_parked if isinstance(row.lowest_parked, int) else -1
    return parked_keys_text(row.parked_keys or 0, lowest)


def held_key_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition with keys that wait until they are released."""
    return _first(
        f"partition {name}: {held}"
        for name, row in group.partitions.items()
        if (held := held_keys_text(row.blocked_keys or 0, row.quarantined_keys or 0))
    )


def order_lines(group: GroupStatus) -> list[str]:
    """Return a line where the group's order is not in effect yet."""
    if not group.order_waits_for:
        return _first(
            f"partition {name}: {row.order_waits}"
            for name, row in group.partitions.items()
            if row.order_waits
        )
    brokers = named(group.order_waits_for)
    what = (
        f"type {group.type}"
        if group.type in ("KeyShared", "Session", "Shared")
        else "nack.order Key"
    )
    return [f"{what} takes effect when {brokers} of an earlier version is updated or gone"]


def withheld_lines(group: GroupStatus) -> list[str]:
    """Return a line for each partition that its application has paused, of many for some."""
    return _first(
        f"partition {name} is {withheld_text(holders_of(row))}; lag "
        f"{counted(row.lag, 'message', spec=',')}"
        for name, row in group.partitions.items()
        if row.is_withheld
    )


def letters_waiting(count: int) -> str:
    """Say how many dead letters wait to be stored."""
    return f"{counted(count, 'dead letter waits', 'dead letters wait', spec=',')} to be stored"


def _first(lines: Iterable[str]) -> list[str]:
    """Return the lines of some partitions, and how many more there are."""
    every = list(lines)
    more = [f"and {counted(count, 'partition')} more"] if (count := _more(every)) else []
    return [*every[:MAX_NAMED], *more]


def named(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """Return the first of some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _more(names: Sequence[object]) -> int:
    return max(0, len(names) - MAX_NAMED)


def problem_of(row: GroupPartition | None, *, is_served: bool) -> ProblemKind | None:
    """Return the worst of what keeps messages of a partition from a group; None: nothing does.

    `row`: None where the status has no number of the partition.
    """
    if row is None:
        return ProblemKind.UNSERVED
    found = problems_of(
        is_served=is_served,
        member=holders_of(row),
        state=row.state,
        blocked=row.blocked,
        is_withheld=row.is_withheld,
        gated_by=row.gated_by or "",
        stands_still=row.stands_still or "",
    )
    return found[0].kind if found else None
