"""What each change of a run did: partitions moved, how long it took, how long they paused.

Two witnesses measure pauses. The consumers' journals know when a partition was lost and when it was
assigned again; for a consumer that was killed the loss is the kill. In a graceful handoff the old
owner learns that it has lost a partition when another has it already: there the coordinator's
record counts, from the pause to the commit. The longer of the two is reported. Neither depends on
the traffic of the partition.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from partq.lab.verdict.journal_rows import REVOKED, HeldRow

TRAFFIC_WINDOW_S: Final = 5.0
"""A change hit live traffic if messages were published and delivered at most this long before it,
in seconds, and between it and the next change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """Something that the run did to its processes."""

    trigger: str
    at_ns: int
    until_ns: int
    """When the next change came, or the run ended: what happens until then belongs to this one."""
    killed: str = ""
    """The member that was killed at `at_ns`: its partitions paused from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPause:
    """What the coordinator says of one rebalance."""

    at_ns: int
    """When it began, on the clock of the journals."""
    longest_pause_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRebalance:
    """What followed from a change."""

    trigger: str
    moved: int
    """Partitions that went to another member; one that moves twice counts twice."""
    duration_ms: int
    """From the change to the last assignment that followed; 0: none did."""
    longest_pause_ms: int
    """The longest time that a partition had no consumer; 0: none was without."""


def measure(
    change: RunChange, held: Iterable[HeldRow], recorded: Iterable[RecordedPause] = ()
) -> ObservedRebalance:
    """Return what followed from a change; `held`: all rows of the run, in order."""
    owner: dict[str, str] = {}
    lost_at: dict[str, int] = {}
    moved = last_ns = longest_ns = 0
    for row in held:
        if row.at_ns >= change.until_ns:
            break
        before = owner.get(row.partition)
        if row.change == REVOKED:
            if before == row.member:  # else another has it already
                lost_at[row.partition] = row.at_ns
            continue
        owner[row.partition] = row.member
        lost_ns = lost_at.pop(row.partition, None)
        if row.at_ns < change.at_ns:
            continue
        if lost_ns is None:
            lost_ns = change.at_ns if before == change.killed else row.at_ns
        moved += before is not None and before != row.member
        last_ns = row.at_ns - change.at_ns
        longest_ns = max(longest_ns, row.at_ns - lost_ns)
    pauses_ms = [
        each.longest_pause_ms for each in recorded if change.at_ns <= each.at_ns < change.until_ns
    ]
    return ObservedRebalance(
        trigger=change.trigger,
        moved=moved,
        duration_ms=last_ns // 1_000_000,
        longest_pause_ms=max([longest_ns // 1_000_000, *pauses_ms]),
    )


def hit_live_traffic(
    change: RunChange, published_ns: Sequence[int], processed_ns: Sequence[int]
) -> bool:
    """Say whether messages were published and delivered just before the change, and after it.

    Both sequences are instants in ascending order. Nothing says how soon after: how long a change
    may hold the traffic up is not the question here.
    """
    window_ns = int(TRAFFIC_WINDOW_S * 1e9)
    before = (change.at_ns - window_ns, change.at_ns)
    after = (change.at_ns, change.until_ns)
    return all(
        bisect_left(instants, start) < bisect_right(instants, stop)
        for instants in (published_ns, processed_ns)
        for start, stop in (before, after)
    )
