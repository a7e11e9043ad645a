"""Outcomes of a group's rebalances: moves, and the longest time without a consumer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from partq.core.group.moves import Trigger
from partq.core.group.records import MAX_REBALANCES, RebalanceRecord


@dataclass(slots=True)
class _Active:
    started_at_ms: int
    ended_at_ms: int
    moved: int = 0
    assigned: int = 0
    longest_pause_ms: int = 0
    timed_out: int = 0
    is_quiet: bool = False


class RebalanceHistory:
    """Gathers handoffs to rebalances: one per trigger at a time, over when nothing of it runs."""

    def __init__(self, last: Sequence[RebalanceRecord] = ()) -> None:
        self._active: dict[Trigger, _Active] = {}
        self.last = list(last)[-MAX_REBALANCES:]
        """The rebalances that are over, the newest last."""

    def begin(self, trigger: Trigger, now_ms: int) -> None:
        """Note that a handoff starts."""
        active = self._active.setdefault(trigger, _Active(now_ms, now_ms))
        active.is_quiet = False

    def commit(
        self,
        trigger: Trigger,
        now_ms: int,
        *,
        had_source: bool,
        pause_ms: int,
        is_timed_out: bool = False,
    ) -> None:
        """Note that a partition was handed over after `pause_ms` without a consumer."""
        active = self._active.setdefault(trigger, _Active(now_ms, now_ms))
        active.is_quiet = False
        active.moved += had_source
        active.assigned += not had_source
        active.timed_out += is_timed_out
        active.longest_pause_ms = max(active.longest_pause_ms, pause_ms)
        active.ended_at_ms = max(active.started_at_ms, now_ms)

    def close_ended(self, running: Collection[Trigger]) -> list[RebalanceRecord]:
        """Close the rebalances of which nothing runs, and return them.

        Called after each plan. One plan without anything new is waited for: a handoff that was
        refused is planned again with the next look at the brokers.
        """
        closed = []
        for trigger, active in list(self._active.items()):
            if trigger in running:
                continue
            if not active.is_quiet:
                active.is_quiet = True
                continue
            del self._active[trigger]
            if active.moved or active.assigned:
                closed.append(
                    RebalanceRecord(
                        trigger=trigger.value,
                        moved=active.moved,
                        assigned=active.assigned,
                        started_at_ms=active.started_at_ms,
                        ended_at_ms=active.ended_at_ms,
                        longest_pause_ms=active.longest_pause_ms,
                        timed_out=active.timed_out,
                    )
                )
        self.last = [*self.last, *closed][-MAX_REBALANCES:]
        return closed
