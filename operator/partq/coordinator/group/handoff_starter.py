"""Starts the handoffs that a look has decided on. Each is recorded before a broker is called."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from partq.coordinator.group.attempts import as_recorded, attempt_at, idle_ms
from partq.coordinator.group.handoff_runner import HandoffRunner
from partq.coordinator.ports import HandoffStore, MemberProcesses
from partq.core.group import handoff
from partq.core.group.handoff import Attempt, Handoff
from partq.core.group.membership import GroupAssessment
from partq.core.group.move_reason import reason_of
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation
from partq.core.group.planner import GroupRules
from partq.core.group.records import HandoffRecord
from partq.core.model import BrokerId

PAUSE_ANSWER_MS = 2_000
"""How long the first pause may go unanswered before its drain is over all the same."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A move whose attempt has its number."""

    move: Move
    attempt: Attempt
    state: Handoff
    drain_by_ms: int
    """On this process's clock."""
    reason: str


class HandoffStarter:
    """Draws the attempts of one group, records them, and has the runner carry them out."""

    def __init__(
        self,
        group: str,
        handoffs: HandoffStore,
        member_processes: MemberProcesses,
        runner: HandoffRunner,
        *,
        now_ms: Callable[[], int],
        store_ahead_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: this process's clock; `store_ahead_ms`: Redis's time minus that clock."""
        self._group = group
        self._handoffs = handoffs
        self._member_processes = member_processes
        self._runner = runner
        self._now_ms = now_ms
        self._store_ahead_ms = store_ahead_ms

    async def start(
        self,
        moves: Sequence[Move],
        observation: GroupObservation,
        assessment: GroupAssessment,
        rules: GroupRules,
    ) -> None:
        """Start a handoff for each move of a partition that a broker has.

        Raises:
            StoreUnavailableError: none of them runs; some may be recorded.
            FencedError: another coordinator has begun; none of them runs.
        """
        if not moves:
            return
        numbers = await asyncio.gather(*(self._handoffs.draw_attempt(self._group) for _ in moves))
        drawn = [
            self._begin(
                move, broker, number, reason_of(move, observation, assessment, rules), rules
            )
            for move, number in zip(moves, numbers, strict=True)
            if (broker := move.ownership.broker) is not None
        ]
        await asyncio.gather(*map(self._record, drawn))
        for each in drawn:
            self._runner.start(
                each.move.partition,
                each.state,
                each.attempt,
                each.move.trigger,
                idle_ms=idle_ms(observation, each.move, rules.membership),
                reason=each.reason,
            )

    def _begin(
        self, move: Move, broker: BrokerId, number: int, reason: str, rules: GroupRules
    ) -> _Drawn:
        drain_ms = self._drain_ms(move, rules)
        attempt = attempt_at(move.ownership, broker, move.target, number, drain_ms=drain_ms)
        drain_by_ms = self._now_ms() + drain_ms + PAUSE_ANSWER_MS
        targeted = handoff.Targeted(attempt, drain_ms, drain_by_ms, move.forced)
        state, _ = handoff.step(as_recorded(move.ownership), targeted, self._now_ms())
        return _Drawn(move, attempt, state, drain_by_ms, reason)

    async def _record(self, drawn: _Drawn) -> None:
        move, attempt = drawn.move, drawn.attempt
        record = HandoffRecord(
            attempt.source,
            attempt.target,
            attempt.number,
            type(drawn.state).__name__,
            drawn.drain_by_ms + self._store_ahead_ms(),
            move.trigger,
            drawn.reason,
            move.forced,
        )
        await self._handoffs.record(self._group, move.partition, record)

    def _drain_ms(self, move: Move, rules: GroupRules) -> int:
        """Return how long the source may finish what it has: no longer than it lives."""
        source = move.ownership.member
        if source is None:
            return rules.drain_ms
        left_ms = self._member_processes.time_left_ms(self._group, source)
        return rules.drain_ms if left_ms is None else min(rules.drain_ms, left_ms)
