"""The last moves of one group, and how much of its disruption budget they have spent.

In memory, with what of it is not written down yet; its owner reads and writes the store.
What is written down has the store's time. What the budget counts is on the owner's own steady
clock, so the store's may jump.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from partq.core.group.disruption_budget import MINUTE_MS, BudgetUse
from partq.core.group.records import MAX_PAST_MOVES, PastMove
from partq.core.model import PartitionId

CLOCK_JITTER_MS = 1_000
"""How far the two clocks may run apart with nothing said by it; what is more is a jump."""


class MoveHistory:
    """Remembers the moves that were committed."""

    def __init__(
        self, recorded: Mapping[PartitionId, Sequence[PastMove]], store_ms: int, now_ms: int
    ) -> None:
        """Continue with what is written down; `store_ms` and `now_ms`: both clocks, as they are."""
        self._past = {partition: tuple(moves) for partition, moves in recorded.items()}
        self._unwritten: set[PartitionId] = set()
        left = {
            partition: [
                min(now_ms, now_ms - store_ms + move.at_ms)
                for move in moves
                # What lies ahead is from before the store's clock was set back. It counts no more:
                # that clock may take any time to come there again.
                if move.source is not None and move.at_ms <= store_ms + CLOCK_JITTER_MS
            ]
            for partition, moves in self._past.items()
        }
        self._left_at_ms = list(chain(*left.values()))
        """When partitions left a member, on the own clock; those of the last minute at least."""
        self._last_at_ms = {partition: max(each) for partition, each in left.items() if each}
        """When each partition left a member last, on the own clock."""

    def note(self, partition: PartitionId, move: PastMove, now_ms: int) -> None:
        """Note that a move is over, at `now_ms` by the own clock; a repeat changes nothing."""
        known = self._past.get(partition, ())
        if any(each.attempt == move.attempt for each in known):
            return
        self._past[partition] = (*known, move)[-MAX_PAST_MOVES:]
        self._unwritten.add(partition)
        if move.source is not None:
            self._left_at_ms.append(now_ms)
            self._last_at_ms[partition] = now_ms

    def forget(self, partitions: Collection[PartitionId]) -> None:
        """Drop the moves of partitions that are no more."""
        for partition in partitions:
            self._past.pop(partition, None)
            self._last_at_ms.pop(partition, None)
        self._unwritten.difference_update(partitions)

    def budget_use(self, paused_count: int, now_ms: int) -> BudgetUse:
        """Return what of the budget is spent.

        Args:
            paused_count: how many partitions are being handed over by a member.
            now_ms: the own clock.
        """
        self._left_at_ms = [at for at in self._left_at_ms if now_ms - at < MINUTE_MS]
        return BudgetUse(
            paused_count=paused_count, moved_at_ms=self._left_at_ms, last_at_ms=self._last_at_ms
        )

    @property
    def unwritten(self) -> dict[PartitionId, tuple[PastMove, ...]]:
        """The last moves of the partitions of which not all are written down."""
        return {partition: self._past[partition] for partition in self._unwritten}

    def note_written(self, past: Mapping[PartitionId, Sequence[PastMove]]) -> None:
        """Note what the store has taken."""
        # Another move may have been noted while the store was asked.
        self._unwritten -= {p for p, moves in past.items() if self._past.get(p) == moves}
