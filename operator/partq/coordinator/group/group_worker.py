"""One consumer group: read, observe, assess, plan, write down, then let the handoffs run."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from partq.coordinator.group.attempts import (
    FailedAttempts,
    attempt_at,
    ended_handoffs,
    is_committed,
    past_move,
    paused_partitions,
    trigger_of,
    unseen_move,
    why_undrained,
)
from partq.coordinator.group.handoff_runner import Ended, HandoffRunner
from partq.coordinator.group.handoff_starter import HandoffStarter
from partq.coordinator.group.member_list import MemberList
from partq.coordinator.group.move_history import MoveHistory
from partq.coordinator.group.queue_observation import (
    CommitOutcome,
    QueueObservation,
    blocked,
    bound,
    held_keys,
    leaving,
    lost_since,
    missing,
    observe_group,
    parked,
    sessions,
    stalled,
)
from partq.coordinator.group.rebalance_history import RebalanceHistory
from partq.coordinator.group.waiting_moves import WaitingMoves
from partq.coordinator.ports import BrokerAdmin, MemberProcesses, RebalanceListener, StorePorts
from partq.coordinator.rules import at_once
from partq.coordinator.view import GroupView, as_assigned
from partq.core.clocks.age_tracker import AgeTracker
from partq.core.group import handoff
from partq.core.group.membership import GroupAssessment, MemberState, OwnershipState, assess
from partq.core.group.moves import Forced, Move
from partq.core.group.observation import GroupObservation
from partq.core.group.planner import GroupRules, Planner, may_be_balanced, plan
from partq.core.group.records import AssignmentEntry, HandoffRecord, MemberSnapshot
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.core.parts.hash_ranges import HashRange
from partq.core.parts.part_id import partition_of
from partq.errors import FencedError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _StoredGroup:
    """What Redis holds for a group."""

    members: MemberSnapshot
    assignment: Mapping[PartitionId, AssignmentEntry]
    handoffs: Mapping[PartitionId, HandoffRecord]
    read_at_ms: int
    """On this process's clock."""


class GroupWorker:
    """Drives one group. Everything it decides follows from what it has just read."""

    def __init__(
        self,
        group: str,
        *,
        store: StorePorts,
        brokers: BrokerAdmin,
        member_processes: MemberProcesses,
        url_of: Callable[[BrokerId], str | None],
        clock: Callable[[], float],
        on_change: Callable[[], None],
        on_rebalance: RebalanceListener | None,
        planner: Planner = plan,
    ) -> None:
        self._group = group
        self._plan = planner
        self._store = store
        self._member_processes = member_processes
        self.member_list = MemberList(group, store.members, member_processes, clock)
        """The stored members of the group."""
        self._clock = clock
        self._on_change = on_change
        self._on_rebalance = on_rebalance
        self._store_ahead_ms = 0
        """Redis's time minus this process's clock, at the last look."""
        self._lost = AgeTracker[MemberId]()
        self._outcomes: dict[PartitionId, CommitOutcome] = {}
        self._failed_attempts = FailedAttempts()
        self._rebalances = RebalanceHistory()
        self._moves = MoveHistory({}, 0, 0)
        self._waiting_moves = WaitingMoves({}, 0, 0)
        self._is_loaded = False
        self._inherited: dict[PartitionId, HandoffRecord] = {}
        """Handoffs of an earlier coordinator, until the broker of the partition is seen."""
        self._runner = HandoffRunner(
            group,
            brokers,
            url_of=url_of,
            clock=clock,
            now_ms=self._now_ms,
            on_ended=self._ended,
        )
        self._starter = HandoffStarter(
            group,
            store.handoffs,
            member_processes,
            self._runner,
            now_ms=self._now_ms,
            store_ahead_ms=lambda: self._store_ahead_ms,
        )
        self.next_ms: int | None = None
        """When to look again at the latest; None: nothing waits for time."""
        self._hurries_asked = self._hurries_done = 0
        """How often somebody asked for a rebalance without delay; one may ask during a look."""
        self.view: GroupView | None = None
        """The group at the last look; None: before the first."""
        self.is_quiet = False
        """No handoff is under way and nobody is missing: brokers may be balanced."""

    def _now_ms(self) -> int:
        """Return this process's clock: what all waiting is counted by."""
        return round(self._clock() * 1000)

    def _store_ms(self) -> int:
        """Return Redis's time, as near as it is known: what is written down."""
        return self._now_ms() + self._store_ahead_ms

    async def run(self) -> None:
        """Carry the handoffs out, until cancelled."""
        await self._runner.run()

    async def look(self, queue: QueueObservation, rules: GroupRules) -> None:
        """Read the group once, decide, and start what is to be done.

        Raises:
            StoreUnavailableError: nothing was started that is not recorded.
            FencedError: another coordinator has begun. A coordinator that still leads begins with
                the next look, as its successor would.
        """
        try:
            await self._look(queue, rules)
        except FencedError:
            self._is_loaded = False
            raise

    async def admit(self, member: MemberId, address: str) -> None:
        """List a member that asks to bind, or note why it may not.

        Raises:
            StoreUnavailableError: no answer; it asks again.
            FencedError: another coordinator has begun; as for `look`. A look that has nothing to
                write would not notice it, and nobody could ever bind.
        """
        try:
            await self.member_list.admit(member, address)
        except FencedError:
            self._is_loaded = False
            self._on_change()
            raise

    async def _look(self, queue: QueueObservation, rules: GroupRules) -> None:
        stored = await self._read()
        hurries = self._hurries_asked
        if hurries > self._hurries_done:
            rules = at_once(rules)
        # From here to the plan nothing is awaited: it is made from one observation.
        observation = self._observe(queue, stored, rules)
        assessment = self._assess(observation, rules)
        under_way = {p: each.attempt.target for p, each in self._runner.running.items()}
        planned = self._plan(
            observation, assessment, rules, under_way, self._waiting_moves.promised
        )
        moves = self._startable(planned, observation, assessment, rules)
        over = ended_handoffs(stored.handoffs.keys() - under_way, moves, assessment)
        self._schedule(under_way, moves, assessment)

        # Before the records of handoffs that are over: a next coordinator finds one of the two.
        await self._write_moves()
        await self.member_list.pair(moves, stored.members.replacements)
        await self._starter.start(moves, observation, assessment, rules)
        await self.member_list.write(observation, assessment, stored.members, queue)
        await self._forget_removed(observation, stored.assignment)
        assigned = await self._write_assignment(
            observation,
            stored.assignment,
            is_shared_by_all=rules.type.is_open
            and MemberState.BOUND in assessment.members.values(),
        )
        await asyncio.gather(*(self._store.handoffs.remove(self._group, each) for each in over))
        await self._write_rebalances()
        if queue.is_complete:
            self._hurries_done = hurries
        self.view = self._make_view(queue, observation, assessment, assigned, rules)

    async def _read(self) -> _StoredGroup:
        """Read what Redis holds for the group; with the first look also what came before it."""
        group, store = self._group, self._store
        if not self._is_loaded:
            # Before anything is read: what is read then, no coordinator before this one changes.
            await store.terms.begin(group)
        members, assignment, handoffs = await asyncio.gather(
            store.members.read(group), store.assignments.read(group), store.handoffs.read(group)
        )
        stored = _StoredGroup(members, assignment, handoffs, self._now_ms())
        self._store_ahead_ms = members.now_ms - stored.read_at_ms
        if not self._is_loaded:
            self._rebalances = RebalanceHistory(await store.rebalances.read(group))
            recorded = await store.rebalances.read_moves(group)
            store_ms, now_ms = self._store_ms(), self._now_ms()
            self._moves = MoveHistory(recorded.past, store_ms, now_ms)
            self._waiting_moves = WaitingMoves(recorded.waiting, store_ms, now_ms)
            running = self._runner.running
            self._inherited = {p: each for p, each in handoffs.items() if p not in running}
            self._is_loaded = True
        return stored

    def _observe(
        self, queue: QueueObservation, stored: _StoredGroup, rules: GroupRules
    ) -> GroupObservation:
        """Join what brokers, Redis and the members' processes say of the group."""
        group, members = self._group, stored.members
        # A member may be bound that a store which lost its last writes does not list.
        known = members.members.keys() | bound(queue, group)
        return observe_group(
            queue,
            group,
            members=members,
            lost_ms=self._lost.observe(
                lost_since(members), store_ms=members.now_ms, now_ms=stored.read_at_ms
            ),
            assignment=stored.assignment,
            outcomes=self._outcomes,
            facts=self._member_processes.facts(group, known, leaving(queue, group)),
            priorities=self._member_processes.priorities(group, known),
            parts=rules.parts,
        )

    def _assess(self, observation: GroupObservation, rules: GroupRules) -> GroupAssessment:
        """Judge what was observed, and let the handoffs under way know of it."""
        self._follow_records(observation)
        assessment = assess(observation, rules.membership)
        self._resume(observation, assessment, rules)
        self._follow_members(observation, assessment)
        return assessment

    def _schedule(
        self,
        under_way: Collection[PartitionId],
        moves: Collection[Move],
        assessment: GroupAssessment,
    ) -> None:
        """Note the rebalances that begin, when to look again, and whether all is quiet."""
        for move in moves:
            self._rebalances.begin(move.trigger, self._store_ms())
        waits_ms = [assessment.next_ms, self._waiting_moves.next_ms(self._now_ms())]
        self.next_ms = min((wait for wait in waits_ms if wait is not None), default=None)
        self.is_quiet = not under_way and not moves and assessment.is_quiet

    def _make_view(
        self,
        queue: QueueObservation,
        observation: GroupObservation,
        assessment: GroupAssessment,
        assigned: Mapping[PartitionId, AssignmentEntry],
        rules: GroupRules,
    ) -> GroupView:
        return GroupView(
            partitions={
                p: each for p, each in assigned.items() if partition_of(p) not in queue.prepared
            },
            retired=queue.retired,
            members=assessment.members,
            unseen_count=len(
                {
                    partition_of(seat)
                    for seat, ownership in observation.partitions.items()
                    if ownership.broker is None
                }
                - queue.prepared
            ),
            moving_count=len(self._runner.running),
            is_waiting=OwnershipState.WAITING in assessment.partitions.values(),
            rebalances=self._rebalances.last,
            waiting_count=len(self._waiting_moves.waiting),
            blocked=blocked(queue, self._group),
            missing=missing(queue, self._group),
            stalled=stalled(queue, self._group),
            held_keys=held_keys(queue, self._group),
            parked=parked(queue, self._group),
            is_complete=queue.is_complete,
            sessions=sessions(queue, self._group),
            refused=self.member_list.refused,
            is_client_assigned=rules.is_client_assigned,
            is_open=rules.type.is_open,
            declares_ranges=rules.hash_range is HashRange.STICKY,
        )

    def rebalance_now(self) -> None:
        """Let the next complete look wait for nobody, and balance even when that is paused."""
        self._hurries_asked += 1
        self._on_change()

    # ---- handoffs -------------------------------------------------------------------------------

    def _startable(
        self,
        planned: list[Move],
        observation: GroupObservation,
        assessment: GroupAssessment,
        rules: GroupRules,
    ) -> list[Move]:
        """Return the moves of a plan that may start now."""
        running = self._runner.running
        paused = paused_partitions(observation, running.values())
        is_judged = rules.is_paused or may_be_balanced(observation, assessment, rules)
        now_ms = self._now_ms()
        return self._waiting_moves.split(
            planned,
            self._failed_attempts.may_start(planned, self._clock()),
            rules.budget,
            self._moves.budget_use(len(paused), now_ms),
            under_way=running.keys(),
            paused=paused,
            is_judged=is_judged,
            now_ms=now_ms,
            store_ms=self._store_ms(),
        )

    def _follow_records(self, observation: GroupObservation) -> None:
        """Let the brokers' records end handoffs whose answer was lost."""
        for partition in list(self._runner.running):
            ownership = observation.partitions.get(partition)
            if ownership is None:
                self._runner.abandon(partition)
            elif ownership.broker is not None:
                self._runner.apply(
                    partition,
                    handoff.Seen(
                        ownership.broker_epoch,
                        ownership.member,
                        ownership.epoch,
                        ownership.closed_attempt,
                    ),
                )
        for partition, outcome in list(self._outcomes.items()):
            ownership = observation.partitions.get(partition)
            if ownership is None or (
                ownership.broker is not None and ownership.epoch > outcome.epoch
            ):
                del self._outcomes[partition]

    def _resume(
        self, observation: GroupObservation, assessment: GroupAssessment, rules: GroupRules
    ) -> None:
        """Continue with what a coordinator before this one began, where its pause still holds."""
        for partition, record in list(self._inherited.items()):
            ownership = observation.partitions.get(partition)
            if ownership is not None and ownership.broker is None:
                continue
            del self._inherited[partition]
            if ownership is not None and is_committed(record, ownership):
                self._moves.note(partition, unseen_move(record, self._store_ms()), self._now_ms())
            if (
                ownership is None
                or ownership.broker is None
                or ownership.pause_attempt != record.attempt
                or ownership.member != record.source
            ):
                continue  # the broker's record says what became of it
            attempt = attempt_at(ownership, ownership.broker, record.target, record.attempt)
            state = handoff.resumed(
                attempt,
                drain_ms=rules.drain_ms,
                left_ms=record.deadline_ms - self._store_ms(),
                now_ms=self._now_ms(),
            )
            trigger = trigger_of(record, assessment.partitions[partition])
            _log.info(
                "group %s: attempt %d for partition %s continues",
                self._group,
                record.attempt,
                partition,
            )
            self._runner.start(partition, state, attempt, trigger, reason=record.evidence)

    def _follow_members(self, observation: GroupObservation, assessment: GroupAssessment) -> None:
        """Tell drains that their source is lost, or that their target cannot take over."""
        for partition, running in list(self._runner.running.items()):
            ownership = observation.partitions.get(partition)
            if ownership is None or ownership.broker is None:
                continue
            source, target = running.attempt.source, running.attempt.target
            if source is not None and ownership.member == source and not ownership.is_bound:
                # The partition is on its way to another member: waiting would help nobody.
                self._runner.apply(partition, handoff.SourceLost(why_undrained(source, assessment)))
            elif target is not None and not assessment.is_free(target, ownership.broker):
                self._runner.apply(partition, handoff.TargetLost())

    def _ended(self, ended: Ended) -> None:
        self._failed_attempts.note(ended, self._clock())
        if ended.is_committed:
            self._outcomes[ended.partition] = CommitOutcome(
                ended.attempt.target, ended.epoch, ended.attempt.broker_epoch
            )
            self._rebalances.commit(
                ended.trigger,
                self._store_ms(),
                had_source=ended.attempt.source is not None,
                pause_ms=ended.pause_ms,
                is_timed_out=ended.forced is Forced.DRAIN_TIMEOUT,
            )
            self._moves.note(ended.partition, past_move(ended, self._store_ms()), self._now_ms())
        self._on_change()

    # ---- writing down ---------------------------------------------------------------------------

    async def _write_assignment(
        self,
        observation: GroupObservation,
        assignment: Mapping[PartitionId, AssignmentEntry],
        *,
        is_shared_by_all: bool,
    ) -> Mapping[PartitionId, AssignmentEntry]:
        """Copy what is stored at the brokers, where it differs; return all of it."""
        running = self._runner.running
        draining = {p for p, each in running.items() if isinstance(each.state, handoff.Draining)}
        assigned = as_assigned(observation, assignment, draining, is_shared_by_all=is_shared_by_all)
        changed = {p: each for p, each in assigned.items() if assignment.get(p) != each}
        if changed:
            await self._store.assignments.write(self._group, changed)
        return assigned

    async def _forget_removed(
        self, observation: GroupObservation, assignment: Mapping[PartitionId, AssignmentEntry]
    ) -> None:
        """Remove what is stored of partitions that the layout has no more."""
        removed = assignment.keys() - observation.partitions.keys()
        if removed:
            await self._store.rebalances.remove_moves(self._group, removed)
            self._moves.forget(removed)
            await self._store.assignments.remove(self._group, removed)

    async def _write_moves(self) -> None:
        past, waiting = self._moves.unwritten, self._waiting_moves.unwritten
        if past or waiting is not None:
            await self._store.rebalances.write_moves(self._group, past, waiting)
            self._moves.note_written(past)
            if waiting is not None:
                self._waiting_moves.note_written(waiting)

    async def _write_rebalances(self) -> None:
        running = {each.trigger for each in self._runner.running.values()}
        closed = self._rebalances.close_ended({*running, *self._waiting_moves.waiting_triggers})
        if not closed:
            return
        for rebalance in closed:
            _log.info("group %s: the rebalance is over: %s", self._group, rebalance)
        await self._store.rebalances.write(self._group, self._rebalances.last)
        if self._on_rebalance is not None:
            for rebalance in closed:
                await self._on_rebalance(self._group, rebalance)
