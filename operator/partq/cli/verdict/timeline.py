"""What each change of a run did: partitions moved, how long it took, how long they paused.

Measured from the consumers' own journals. A partition's pause begins when its consumer is asked to
pause it or loses it, for one that died with its process when that process was killed, and ends when
a consumer has been assigned it. So it does not depend on the traffic of the partition.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from partq.cli.verdict.records import Held

TRAFFIC_WINDOW_S: Final = 5.0
"""A change hit live traffic if messages were published and delivered this close to it, in seconds,
before it and after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that the run did to its processes."""

    trigger: str
    at_ns: int
    until_ns: int
    """When the next change came, or the run ended: what happens until then belongs to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalance:
    """What followed from a change."""

    trigger: str
    moved: int
    """Partitions that went to another member; one that moves twice counts twice."""
    duration_ms: int
    """From the change to the last assignment that followed; 0: none did."""
    longest_pause_ms: int
    """The longest time that a partition had no consumer; 0: none was without."""


def measure(change: Change, held: Iterable[Held]) -> Rebalance:
    """Return what followed from a change; `held`: all rows of the run, in order."""
    owner: dict[str, str] = {}
    paused_at: dict[str, int] = {}
    moved = last_ns = longest_ns = 0
    for row in held:
        if row.at_ns >= change.until_ns:
            break
        if row.change != "assigned":
            if row.at_ns >= change.at_ns:
                _note_pause(paused_at, row)
            continue
        if row.at_ns >= change.at_ns:
            moved += owner.get(row.partition, row.member) != row.member
            last_ns = row.at_ns - change.at_ns
            pause_ns = row.at_ns - paused_at.pop(row.partition, change.at_ns)
            longest_ns = max(longest_ns, pause_ns)
        owner[row.partition] = row.member
    return Rebalance(
        trigger=change.trigger,
        moved=moved,
        duration_ms=last_ns // 1_000_000,
        longest_pause_ms=longest_ns // 1_000_000,
    )


def _note_pause(paused_at: dict[str, int], row: Held) -> None:
    """Remember since when a partition is without a consumer; forget it when it goes on."""
    if row.change == "resumed":
        paused_at.pop(row.partition, None)
    else:
        paused_at.setdefault(row.partition, row.at_ns)


def hit_live_traffic(change: Change, published_ns: Sequence[int], begun_ns: Sequence[int]) -> bool:
    """Say whether messages were published and delivered just before the change and just after.

    Both sequences are instants in ascending order. `after` ends with the change's own time.
    """
    window_ns = int(TRAFFIC_WINDOW_S * 1e9)
    before = (change.at_ns - window_ns, change.at_ns)
    after = (change.at_ns, min(change.at_ns + window_ns, change.until_ns))
    return all(
        bisect_left(instants, start) < bisect_right(instants, stop)
        for instants in (published_ns, begun_ns)
        for start, stop in (before, after)
    )
