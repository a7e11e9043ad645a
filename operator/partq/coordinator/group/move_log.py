"""The moves of one group, one by one: what was made, what waits for the budget, what was promised.

In memory, with what of it is not written down yet; its owner reads and writes the store.
What is written down has the store's time. What is waited for is counted on the owner's own steady
clock, so the store's may jump.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from partq.core.group.disruption_budget import (
    MINUTE_MS,
    BudgetUse,
    DisruptionBudget,
    HeldMove,
    admit,
)
from partq.core.group.moves import Move, Trigger
from partq.core.group.records import MAX_PAST_MOVES, PastMove, RecordedMoves, WaitingMove
from partq.core.model import MemberId, PartitionId

CLOCK_JITTER_MS = 1_000
"""How far the two clocks may run apart with nothing said by it; what is more is a jump."""


class MoveLog:
    """Judges plans by the budget, and remembers what becomes of them."""

    def __init__(self, recorded: RecordedMoves, store_ms: int, now_ms: int) -> None:
        """Continue with what is written down; `store_ms` and `now_ms`: both clocks, as they are."""
        self._past = {partition: tuple(moves) for partition, moves in recorded.past.items()}
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
        self._goes_at_ms = {
            partition: now_ms - store_ms + move.until_ms
            for partition, move in recorded.waiting.items()
            if move.until_ms is not None
        }
        """When time alone lets a move go that waits, on the own clock."""
        self._written_waiting = dict(recorded.waiting)
        self.waiting: Mapping[PartitionId, WaitingMove] = dict(recorded.waiting)
        """The moves for balance that wait, at the last plan that could balance."""
        self.waiting_triggers: Collection[Trigger] = ()
        """What those are due to."""
        self.promised: Mapping[PartitionId, MemberId] = {
            partition: move.target for partition, move in recorded.waiting.items()
        }
        """The targets of the moves for balance that are not over yet."""

    def promise(
        self, plan: Sequence[Move], under_way: Collection[PartitionId], *, is_judged: bool
    ) -> None:
        """Note the targets of a plan; `under_way`: the partitions whose handoffs run.

        `is_judged`: whether the plan says all that is to move for balance; else what was promised
        before holds on.
        """
        self.promised = {
            **{p: m for p, m in self.promised.items() if p in under_way or not is_judged},
            **{m.partition: m.target for m in plan if m.may_wait and m.target is not None},
        }

    def admit(
        self,
        moves: Sequence[Move],
        budget: DisruptionBudget,
        *,
        paused: Collection[PartitionId],
        is_judged: bool,
        now_ms: int,
        store_ms: int,
    ) -> list[Move]:
        """Return the moves that start now; of the others it is known from now on that they wait.

        Args:
            moves: what a plan asks for.
            budget: of the group.
            paused: the partitions that are being handed over by a member.
            is_judged: whether the plan says all that is to move for balance. Otherwise what waits
                continues waiting: the next one will say.
            now_ms: the own clock.
            store_ms: the store's.
        """
        self._left_at_ms = [at for at in self._left_at_ms if now_ms - at < MINUTE_MS]
        spent = BudgetUse(
            paused_count=len(paused),
            moved_at_ms=self._left_at_ms,
            last_at_ms=self._last_at_ms,
        )
        admission = admit(moves, budget, spent, now_ms)
        if is_judged:
            self.waiting = {
                held.move.partition: self._waiting(held, held.move.target, store_ms, now_ms)
                for held in admission.held
                if held.move.target is not None
            }
            self._goes_at_ms = {
                held.move.partition: held.until_ms
                for held in admission.held
                if held.until_ms is not None
            }
            self.waiting_triggers = {held.move.trigger for held in admission.held}
        else:
            gone = {*paused, *(move.partition for move in moves)}
            self.waiting = {p: each for p, each in self.waiting.items() if p not in gone}
            self._goes_at_ms = {p: at for p, at in self._goes_at_ms.items() if p not in gone}
        return admission.started

    def next_ms(self, now_ms: int) -> int | None:
        """Return how long it takes until time alone lets a move go; None: it does not.

        `now_ms`: the own clock.
        """
        instants = self._goes_at_ms.values()
        return max(0, min(instants) - now_ms) if instants else None

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

    @property
    def unwritten_past(self) -> dict[PartitionId, tuple[PastMove, ...]]:
        """The last moves of the partitions of which not all are written down."""
        return {partition: self._past[partition] for partition in self._unwritten}

    @property
    def unwritten_waiting(self) -> Mapping[PartitionId, WaitingMove] | None:
        """The moves that wait, if that is not what is written down."""
        return self.waiting if self.waiting != self._written_waiting else None

    def note_written(
        self,
        past: Mapping[PartitionId, Sequence[PastMove]],
        waiting: Mapping[PartitionId, WaitingMove] | None,
    ) -> None:
        """Note what the store has taken."""
        # Another move may have been noted while the store was asked.
        self._unwritten -= {p for p, moves in past.items() if self._past[p] == moves}
        if waiting is not None:
            self._written_waiting = dict(waiting)

    def _waiting(self, held: HeldMove, target: MemberId, store_ms: int, now_ms: int) -> WaitingMove:
        until_ms = None if held.until_ms is None else held.until_ms - now_ms + store_ms
        new = WaitingMove(target=target, limit=held.limit, since_ms=store_ms, until_ms=until_ms)
        before = self.waiting.get(held.move.partition)
        if before is None or before.target != target:
            return new
        if (
            until_ms is not None
            and before.until_ms is not None
            and abs(until_ms - before.until_ms) < CLOCK_JITTER_MS
        ):
            until_ms = before.until_ms  # not written again at each look
        return replace(new, since_ms=before.since_ms, until_ms=until_ms)
