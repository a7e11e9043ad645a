"""Which moves for balance may start now: the disruption budget of a group.

A move that cannot wait (its member leaves, is lost or missing) is never held up; it counts,
so that moves for balance wait until there is room beside it. All instants are of one steady clock.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from partq.core.group.moves import Move
from partq.core.model import PartitionId

MINUTE_MS: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """How much a group may be disturbed for balance alone; 0: no limit."""

    max_paused: int = 0
    """Partitions that may be handed over at once."""
    max_per_minute: int = 0
    """Partitions that may leave a member within any 60 seconds."""
    min_interval_ms: int = 0
    """How long a partition stays with a member after it has left another."""


class BudgetLimit(StrEnum):
    """What holds a move up, by the field that says so."""

    PAUSED = "maxPausedPartitions"
    PER_MINUTE = "maxMovesPerMinute"
    INTERVAL = "minMoveIntervalSeconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """What counts against a budget now."""

    paused_count: int
    """Partitions that are being handed over by a member."""
    moved_at_ms: Collection[int]
    """When partitions left a member: those of the last minute at least."""
    last_at_ms: Mapping[PartitionId, int]
    """When each partition left a member last."""


@dataclass(frozen=True, slots=True)
class HeldMove:
    """A move that waits."""

    move: Move
    limit: BudgetLimit
    until_ms: int | None
    """When it can go at the earliest, if nothing else moves; None: when another one is over."""


@dataclass(frozen=True, slots=True)
class SplitMoves:
    """The moves of a plan, divided by a budget."""

    started: list[Move]
    held: list[HeldMove]


def split_moves(
    moves: Sequence[Move], budget: DisruptionBudget, spent: BudgetUse, now_ms: int
) -> SplitMoves:
    """Split a plan into the moves to start now and those that wait.

    Every move that can wait is judged by the state that those before it leave: never more than the
    budget are under way or made within a minute, but for those that cannot wait. The member that
    is owed most gets the next one, so that several newcomers fill up side by side.
    """
    started = [move for move in moves if not move.may_wait]
    paused = spent.paused_count + sum(move.ownership.member is not None for move in started)
    recent = sorted(at for at in spent.moved_at_ms if now_ms - at < MINUTE_MS)
    held = []
    for move in _most_owed_first([move for move in moves if move.may_wait]):
        found = _holds(move, budget, spent, paused, recent, now_ms)
        if found is None:
            started.append(move)
            paused += 1
        else:
            held.append(found)
    return SplitMoves(sorted(started, key=_partition), sorted(held, key=lambda h: h.move.partition))


def _holds(
    move: Move,
    budget: DisruptionBudget,
    spent: BudgetUse,
    paused: int,
    recent: Sequence[int],
    now_ms: int,
) -> HeldMove | None:
    last_ms = spent.last_at_ms.get(move.partition)
    if last_ms is not None and now_ms - last_ms < budget.min_interval_ms:
        return HeldMove(move, BudgetLimit.INTERVAL, last_ms + budget.min_interval_ms)
    if budget.max_per_minute:
        # What is under way will be a move of this minute, too.
        excess = len(recent) + paused - budget.max_per_minute
        if excess >= 0:
            is_timed = excess < len(recent)
            until_ms = recent[excess] + MINUTE_MS if is_timed else None
            return HeldMove(move, BudgetLimit.PER_MINUTE, until_ms)
    if budget.max_paused and paused >= budget.max_paused:
        return HeldMove(move, BudgetLimit.PAUSED, None)
    return None


def _most_owed_first(moves: Sequence[Move]) -> list[Move]:
    owed = Counter(move.target for move in moves)
    ranked = []
    for move in sorted(moves, key=_partition):
        ranked.append((-owed[move.target], move.partition, move))
        owed[move.target] -= 1
    return [move for _, _, move in sorted(ranked, key=lambda each: each[:2])]


def _partition(move: Move) -> PartitionId:
    return move.partition
