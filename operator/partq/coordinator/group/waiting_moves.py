"""Which moves of a plan start now, which wait for the disruption budget, and what was promised.

In memory, with what of it is not written down yet; its owner reads and writes the store.
What is written down has the store's time. What is waited for is counted on the owner's own steady
clock, so the store's may jump.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from partq.coordinator.group.move_history import CLOCK_JITTER_MS
from partq.core.group.disruption_budget import BudgetUse, DisruptionBudget, HeldMove, split_moves
from partq.core.group.moves import Move, Trigger
from partq.core.group.records import WaitingMove
from partq.core.model import MemberId, PartitionId


class WaitingMoves:
    """Judges plans by the budget, and remembers the moves that wait for it."""

    def __init__(
        self, recorded: Mapping[PartitionId, WaitingMove], store_ms: int, now_ms: int
    ) -> None:
        """Continue with what is written down; `store_ms` and `now_ms`: both clocks, as they are."""
        self._goes_at_ms = {
            partition: now_ms - store_ms + move.until_ms
            for partition, move in recorded.items()
            if move.until_ms is not None
        }
        """When time alone lets a move go that waits, on the own clock."""
        self._written = dict(recorded)
        self.waiting: Mapping[PartitionId, WaitingMove] = dict(recorded)
        """The moves for balance that wait, at the last plan that could balance."""
        self.waiting_triggers: Collection[Trigger] = ()
        """What those are due to."""
        self.promised: Mapping[PartitionId, MemberId] = {
            partition: move.target for partition, move in recorded.items()
        }
        """The targets of the moves for balance that are not over yet."""

    def split(
        self,
        plan: Sequence[Move],
        due: Sequence[Move],
        budget: DisruptionBudget,
        spent: BudgetUse,
        *,
        under_way: Collection[PartitionId],
        paused: Collection[PartitionId],
        is_judged: bool,
        now_ms: int,
        store_ms: int,
    ) -> list[Move]:
        """Return the moves that start now; of the others it is known from now on that they wait.

        Args:
            plan: all moves of a plan: their targets are promised, whenever they start.
            due: those of the plan that may start as far as their partitions are concerned.
            budget: of the group.
            spent: what of it is spent.
            under_way: the partitions whose handoffs run.
            paused: the partitions that are being handed over by a member.
            is_judged: whether the plan says all that is to move for balance. Otherwise what waits
                continues waiting, and what was promised holds on: the next one will say.
            now_ms: the own clock.
            store_ms: the store's.
        """
        self.promised = {
            **{p: m for p, m in self.promised.items() if p in under_way or not is_judged},
            **{m.partition: m.target for m in plan if m.may_wait and m.target is not None},
        }
        parts = split_moves(due, budget, spent, now_ms)
        if is_judged:
            self.waiting = {
                held.move.partition: self._waiting(held, held.move.target, store_ms, now_ms)
                for held in parts.held
                if held.move.target is not None
            }
            self._goes_at_ms = {
                held.move.partition: held.until_ms
                for held in parts.held
                if held.until_ms is not None
            }
            self.waiting_triggers = {held.move.trigger for held in parts.held}
        else:
            gone = {*paused, *(move.partition for move in due)}
            self.waiting = {p: each for p, each in self.waiting.items() if p not in gone}
            self._goes_at_ms = {p: at for p, at in self._goes_at_ms.items() if p not in gone}
        return parts.started

    def next_ms(self, now_ms: int) -> int | None:
        """Return how long it takes until time alone lets a move go; None: it does not.

        `now_ms`: the own clock.
        """
        instants = self._goes_at_ms.values()
        return max(0, min(instants) - now_ms) if instants else None

    @property
    def unwritten(self) -> Mapping[PartitionId, WaitingMove] | None:
        """The moves that wait, if that is not what is written down."""
        return self.waiting if self.waiting != self._written else None

    def note_written(self, waiting: Mapping[PartitionId, WaitingMove]) -> None:
        """Note what the store has taken."""
        self._written = dict(waiting)

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
