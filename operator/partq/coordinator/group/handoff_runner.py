"""The handoffs of one group that are under way: calls go out side by side, answers come back.

Each handoff is a separate state machine. Calls of one kind to one broker travel together; a
broker that does not answer holds up its own partitions only. An unknown outcome is asked for again
until the broker answers, or its partition's record shows what happened.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from partq.aio import Signal
from partq.coordinator.ports import Answer, BrokerAdmin
from partq.core.group import handoff
from partq.core.group.handoff import (
    Attempt,
    AwaitDrain,
    Cancel,
    Commit,
    Effect,
    Event,
    Handoff,
    Pause,
)
from partq.core.group.moves import Forced, Trigger
from partq.core.model import BrokerId, Epoch, PartitionId
from partq.core.parts.part_id import PartId
from partq.errors import PartqError

PAUSE_LEASE_MS = 3_000
RENEW_S = PAUSE_LEASE_MS / 1000 / 3
"""How often a pause is renewed while it drains."""
DRAIN_WAIT_MS = 500
RETRY_S = 0.1
"""How long to wait after a call without an answer."""
MAX_PARTITIONS_PER_CALL = 500

UNKNOWN_CODES = frozenset(
    {"unavailable", "store_unavailable", "broker_closing", "internal", "outcome_unknown"}
)
"""Codes that do not say what happened; every other one ends the attempt."""

E = TypeVar("E", bound=Effect)
_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Running:
    """One handoff under way."""

    partition: PartitionId
    attempt: Attempt
    trigger: Trigger
    state: Handoff
    idle_since: float
    """Since when the partition has had no consumer, on the runner's clock."""
    reason: str = ""
    """Why the move was decided, a `MoveReason`."""
    forced: Forced | None = None
    """Why the commit that was asked for does without the source's drain, or its end."""
    busy: set[type[Effect]] = field(default_factory=set)
    """The kinds of calls that are out."""
    due_at: dict[type[Effect], float] = field(default_factory=dict)
    """When a kind of call may be repeated."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A handoff that is over."""

    partition: PartitionId
    attempt: Attempt
    trigger: Trigger
    epoch: Epoch
    is_committed: bool
    """The target is recorded; otherwise the partition is planned again."""
    pause_ms: int
    """How long it had no consumer."""
    reason: str
    forced: Forced | None
    """Why the source was not drained, or not to its end; None: it was."""


class HandoffRunner:
    """Runs handoffs until they are over; `run` owns every call."""

    def __init__(
        self,
        group: str,
        brokers: BrokerAdmin,
        *,
        url_of: Callable[[BrokerId], str | None],
        clock: Callable[[], float],
        now_ms: Callable[[], int],
        on_ended: Callable[[Ended], None],
    ) -> None:
        self._group = group
        self._brokers = brokers
        self._url_of = url_of
        self._clock = clock
        self._now_ms = now_ms
        self._on_ended = on_ended
        self._running: dict[PartitionId, Running] = {}
        self._cancels: list[tuple[PartitionId, Cancel]] = []
        self._wake = Signal()

    @property
    def running(self) -> Mapping[PartitionId, Running]:
        """The handoffs under way; a partition has at most one."""
        return self._running

    def start(
        self,
        partition: PartitionId,
        state: Handoff,
        attempt: Attempt,
        trigger: Trigger,
        *,
        idle_ms: int = 0,
        reason: str = "",
    ) -> None:
        """Run a recorded handoff; `idle_ms`: how long there has been no consumer."""
        idle_since = self._clock() - idle_ms / 1000
        forced = state.forced if isinstance(state, handoff.Committing) else None
        self._running[partition] = Running(
            partition, attempt, trigger, state, idle_since, reason, forced
        )
        self._wake.set()

    def apply(self, partition: PartitionId, event: Event) -> None:
        """Let something happen to a handoff; one that is over already ignores it."""
        running = self._running.get(partition)
        if running is None:
            return
        after, effects = handoff.step(running.state, event, self._now_ms())
        if after == running.state:
            return
        if isinstance(after, handoff.Committing):
            running.forced = after.forced
        running.state = after
        self._cancels += [(partition, each) for each in effects if isinstance(each, Cancel)]
        self._wake.set()
        if handoff.is_over(after):
            del self._running[partition]
            self._end(running, after)

    def abandon(self, partition: PartitionId) -> None:
        """End the handoff of a partition that the layout has no more, whatever its state."""
        running = self._running.get(partition)
        if running is not None:
            _log.info("group %s partition %s: gone, and so is its handoff", self._group, partition)
            self.apply(partition, handoff.Refused(running.attempt.number))

    async def run(self) -> None:
        """Make the calls that the states ask for, until cancelled."""
        async with asyncio.TaskGroup() as calls:
            while True:
                self._wake.clear()
                for partition in list(self._running):
                    self.apply(partition, handoff.Tick())
                self._launch(calls)
                # Nothing runs: only a start changes that. Otherwise drains, renewals, repeats.
                await self._wake.wait_at_most(RETRY_S if self._running else None)

    def _end(self, running: Running, state: Handoff) -> None:
        attempt = running.attempt
        if not isinstance(state, handoff.Vacant | handoff.Owned):
            return
        owner, epoch = state.member if isinstance(state, handoff.Owned) else None, state.epoch
        is_committed = owner == attempt.target and epoch > attempt.epoch
        pause_ms = round((self._clock() - running.idle_since) * 1000)
        _log.info(
            "handoff %s: group %s partition %s from %s to %s attempt %d epoch %d",
            "committed" if is_committed else "ended without a commit",
            self._group,
            running.partition,
            attempt.source,
            attempt.target,
            attempt.number,
            epoch,
        )
        self._on_ended(
            Ended(
                running.partition,
                attempt,
                running.trigger,
                epoch,
                is_committed,
                max(0, pause_ms),
                running.reason,
                running.forced,
            )
        )

    # ---- calls ----------------------------------------------------------------------------------

    def _launch(self, calls: asyncio.TaskGroup) -> None:
        now = self._clock()
        batches: dict[tuple[BrokerId, type[Effect]], dict[PartitionId, Effect]] = defaultdict(dict)
        for partition, running in self._running.items():
            for effect in handoff.pending(running.state):
                kind = type(effect)
                if kind in running.busy or now < running.due_at.get(kind, now):
                    continue
                if kind is Pause and Pause not in running.due_at:
                    running.idle_since = now
                running.busy.add(kind)
                # An answer puts it off further, or ends the state that asks for it.
                running.due_at[kind] = now + (RENEW_S if kind is Pause else RETRY_S)
                batches[running.attempt.broker, kind][partition] = effect
        for partition, cancel in self._cancels:
            batches[cancel.attempt.broker, Cancel][partition] = cancel
        self._cancels.clear()
        for (broker, kind), effects in batches.items():
            items = list(effects.items())
            for start in range(0, len(items), MAX_PARTITIONS_PER_CALL):
                chunk = dict(items[start : start + MAX_PARTITIONS_PER_CALL])
                calls.create_task(self._call(broker, kind, chunk))

    async def _call(
        self, broker: BrokerId, kind: type[Effect], effects: dict[PartitionId, Effect]
    ) -> None:
        asked = {partition: self._running.get(partition) for partition in effects}
        answers: Sequence[Answer] = ()
        try:
            answers = await self._ask(broker, kind, effects)
        except PartqError as error:
            # It may have been carried out: the state still asks for it.
            _log.info("call %s at broker %s failed: %s", kind.__name__, broker, error)
        now = self._clock()
        answered = {answer.partition: answer for answer in answers}
        for partition, running in asked.items():
            answer = answered.get(partition)
            is_known = answer is not None and answer.code not in UNKNOWN_CODES
            if running is not None:
                running.busy.discard(kind)
                if not is_known:
                    running.due_at[kind] = now + RETRY_S
                elif kind is AwaitDrain:
                    running.due_at[kind] = now
            if answer is not None and is_known and self._running.get(partition) is running:
                self._apply(partition, effects[partition], answer)
        self._wake.set()

    async def _ask(
        self, broker: BrokerId, kind: type[Effect], effects: Mapping[PartitionId, Effect]
    ) -> Sequence[Answer]:
        url = self._url_of(broker)
        if url is None:
            return ()  # its lease is gone: the record will say who is next
        if kind is Pause:
            return await self._brokers.pause(
                url, self._group, _only(effects, Pause), lease_ms=PAUSE_LEASE_MS
            )
        if kind is AwaitDrain:
            return await self._brokers.drain(
                url, self._group, _only(effects, AwaitDrain), wait_ms=DRAIN_WAIT_MS
            )
        if kind is Commit:
            commits = _only(effects, Commit)
            # All partitions of a group are cut into parts, or none is.
            is_cut = any(isinstance(seat, PartId) for seat in commits)
            commit = self._brokers.commit_parts if is_cut else self._brokers.commit
            return await commit(url, self._group, commits)
        return await self._brokers.cancel(url, self._group, _only(effects, Cancel))

    def _apply(self, partition: PartitionId, effect: Effect, answer: Answer) -> None:
        number = effect.attempt.number
        if answer.code:
            _log.info(
                "attempt %d for partition %s of group %s refused: %s: %s",
                number,
                partition,
                self._group,
                answer.code,
                answer.message,
            )
            self.apply(partition, handoff.Refused(number))
        elif isinstance(effect, Commit):
            if answer.epoch is not None:
                self.apply(partition, handoff.Committed(number, answer.epoch))
        elif not isinstance(effect, Cancel):
            if isinstance(effect, Pause):
                self.apply(partition, handoff.SourcePaused(number))
            if answer.is_drained:
                self.apply(partition, handoff.Drained(number))


def _only(effects: Mapping[PartitionId, Effect], kind: type[E]) -> dict[PartitionId, E]:
    return {partition: effect for partition, effect in effects.items() if isinstance(effect, kind)}
