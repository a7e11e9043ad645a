"""Which member has which session locked, and what it is sent of it: from frames and answers alone.

A session that a member has is judged as a share of one slot of a KeyShared group: K1 to K4 and K6.
Beside these are the locks: L1 to L3.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from partq.client.sessions.locked_session import LockedSession
from partq.core.hashing import slot_of
from partq.core.model import Cause
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.network import End, Pipe
from partq.lab.simulate.oracle.facts import GroupPartitionFacts, Token
from partq.lab.simulate.oracle.isolation import Isolation
from partq.lab.simulate.oracle.keys.shared_deliveries import SharedDeliveries
from partq.lab.simulate.oracle.keys.shared_place import FlowShare, Receiver, offsets_in
from partq.lab.simulate.oracle.log_contents import LogContents, SeenBatches
from partq.wire import frames
from partq.wire.sessions.session_calls import SessionLockBody

CLOCK_S: Final = 0.02
"""How much earlier a lock may end than its member counts: brokers and Redis have clocks in ms."""


@dataclass(eq=False, slots=True)
class SessionRight:
    """The right of a flow to a session, under one token."""

    end: End
    facts: GroupPartitionFacts
    session: str
    token: Token
    share: FlowShare = field(init=False)
    is_closing: bool = False
    """Its member has said that it is done with the session."""
    is_reset: bool = False
    """The group was reset there since: of what it holds nothing counts any more."""
    is_over: bool = False
    """It has ended, though its lock may last on."""

    @property
    def is_open(self) -> bool:
        """Whether its connection is."""
        return self.end.is_open

    @property
    def process(self) -> Process:
        """That of its broker."""
        return self.end.process

    @property
    def pipe(self) -> Pipe:
        """To its member."""
        return self.end.pipe

    @property
    def is_given_back(self) -> bool:
        """Whether its member is done with the session, and with all that it had begun of it."""
        return self.is_closing and not self.share.held

    def may_be_beside(self, other: "SessionRight") -> bool:
        """Whether a change of the partition count may give the session to another partition.

        The lock lasts on where it was for a moment; a broker that has both partitions knows of it.
        """
        is_known = self.process is other.process and self.is_open and not self.is_over
        return not is_known and (self.is_reset or not self.share.held)


@dataclass(eq=False, slots=True)
class _Lock:
    holder: tuple[str, str]
    """Member and incarnation."""
    number: int
    until: float
    """When it ends for its member, at the latest."""
    right: SessionRight
    """What it has of the session, or had last."""
    is_over: bool = False

    def may_pass(self, now: float) -> bool:
        """Whether somebody else may have the session by now."""
        return self.is_over or self.right.is_given_back or now >= self.until - CLOCK_S


class SessionDeliveries(SharedDeliveries):
    """Judges locks and deliveries of a group whose members lock sessions."""

    def __init__(
        self,
        contents: LogContents,
        isolation: Isolation,
        fail: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        super().__init__(contents, isolation, fail, now)
        self._rights: dict[tuple[End, str, Token], SessionRight] = {}
        """By connection, place and token."""
        self._locks: dict[str, dict[GroupPartitionFacts, _Lock]] = {}
        """The last one of each session in each of its partitions."""
        self._asked: dict[tuple[End, int], float] = {}
        """When each accept and renewal without an answer has come."""
        self._renewed: dict[tuple[End, int], SessionRight] = {}
        """What renewals without an answer are about."""
        self._requests: dict[tuple[End, int], SessionRight] = {}
        """The same of acks and nacks."""
        self._incarnations: dict[End, str] = {}
        self._entered: dict[str, list[tuple[LockedSession, Process]]] = {}
        """What applications have of each session, as their clients know it."""

    def _right(self, end: End, facts: GroupPartitionFacts, token: Token) -> Receiver:
        """Return the right that a token of a connection names; the connection: it has none."""
        return self._rights.get((end, facts.name, token), end)

    def is_of_earlier_life(self, facts: GroupPartitionFacts, token: Token) -> bool:
        """Say whether a broker speaks of an earlier life of the group, or from before a reset."""
        return token <= facts.old_token

    def was_born(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group is made, or created again: nobody has a lock."""
        for locks in self._locks.values():
            locks.pop(facts, None)

    def began_again(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group begins again in a partition; locks last on."""
        super().began_again(facts)
        for lock in self._all_locks():
            lock.right.is_reset |= lock.right.facts is facts

    # ---- frames to a broker ---------------------------------------------------------------------

    def received(self, end: End, frame: frames.AnyFrame) -> None:
        """Take a frame that has reached a broker, beside acks and what is given back."""
        match frame:
            case frames.Bind():
                self._incarnations[end] = frame.incarnation
            case frames.AcceptSession(request):
                self._asked[end, request] = self._now()
            case frames.RenewSession(request):
                self._asked[end, request] = self._now()
                right = self._rights_of(end, frame)
                if right is not None:
                    self._renewed[end, request] = right
            case frames.CloseSession():
                right = self._rights_of(end, frame)
                if right is not None:
                    begun = {*offsets_in(frame.begun)}
                    self._close(right, begun)
            case frames.Leave():
                for lock in self._all_locks():
                    lock.is_over |= lock.right.end is end
            case _:
                pass

    def _all_locks(self) -> Iterable[_Lock]:
        return (lock for locks in self._locks.values() for lock in locks.values())

    def _rights_of(
        self, end: End, frame: frames.RenewSession | frames.CloseSession
    ) -> SessionRight | None:
        name = f"{frame.generation}.{frame.partition}"
        return self._rights.get((end, name, (frame.broker_epoch, frame.epoch)))

    def _close(self, right: SessionRight, begun: set[int]) -> None:
        right.is_closing = True
        for offset in [each for each in right.share.held if each not in begun]:
            del right.share.held[offset]
            right.share.back.add(offset)
        if not right.share.held:
            self._place(right.facts.name, right.token[0]).shares.pop(right, None)
        self.records.effects["session closed"] += 1

    def unlocked(self, body: SessionLockBody) -> None:
        """Learn that a member ends a lock by a call."""
        named = (body.member, body.incarnation), body.lock
        for lock in self._locks.get(body.session, {}).values():
            if (lock.holder, lock.number) == named:
                self._close(lock.right, set())
                lock.is_over = True

    # ---- frames of a broker ---------------------------------------------------------------------

    def judge(
        self,
        end: Receiver,
        facts_of: Callable[[object], GroupPartitionFacts],
        seen: SeenBatches,
        frame: frames.AnyFrame,
        payload: bytes,
    ) -> None:
        """Judge a frame to a member; `facts_of`: a frame's place, `seen`: of its connection."""
        assert isinstance(end, End)  # noqa: S101 - sessions are told apart here
        match frame:
            case frames.SessionAccepted():
                self._accepted(end, facts_of(frame), frame)
            case frames.SessionRenewed(request, locked_ms):
                self._renewal(end, request, locked_ms)
            case frames.SessionLost():
                self._lost(end, facts_of(frame), frame)
            case frames.Revoked():
                self._end_right(end, facts_of(frame), (frame.broker_epoch, frame.epoch))
            case frames.AskBack():
                facts = facts_of(frame)
                right = self._right(end, facts, (frame.broker_epoch, frame.epoch))
                if isinstance(right, SessionRight):
                    right.share.owed[frame.notice] = right.share.lanes
                    self.records.effects["asked back"] += 1
            case frames.AckConfirmed(request):
                self.confirmed(self._requests.pop((end, request), end), request)
            case frames.Deliver():
                super().judge(end, facts_of, seen, frame, payload)
            case _:
                pass

    def _accepted(
        self, end: End, facts: GroupPartitionFacts, frame: frames.SessionAccepted
    ) -> None:
        token, session = (frame.broker_epoch, frame.epoch), frame.session
        place = self._place(facts.name, frame.broker_epoch)
        if frame.epoch in place.binds:
            self._fail("S1", f"{facts.name}: epoch {frame.epoch} is told to a second session")
        place.binds.add(frame.epoch)
        top = facts.name, frame.broker_epoch
        self.top_rounds[top] = max(self.top_rounds.get(top, 0), frame.epoch)
        right = self._rights[end, facts.name, token] = SessionRight(end, facts, session, token)
        slot = slot_of(session)
        right.share = place.shares[right] = FlowShare(right, {frame.epoch}, [(slot, slot + 1)])
        # An ack under the token of another session of its connection is no forged one.
        right.share.beside = {
            other[1] for of, name, other in self._rights if of is end and name == facts.name
        }
        self.records.effects["session accepted"] += 1
        now = self._now()
        asked_at = self._asked.pop((end, frame.request), now)
        holder = (end.pipe.target, self._incarnations.get(end, ""))
        lock = _Lock(holder, frame.lock, asked_at + frame.locked_ms / 1000, right)
        if self.is_of_earlier_life(facts, token) or not facts.is_there:
            return  # its lock ended with that
        locks = self._locks.setdefault(session, {})
        for before in locks.values():
            self._judge_lock(before, lock, now)
        locks[facts] = lock

    def _judge_lock(self, before: _Lock, lock: _Lock, now: float) -> None:
        where = f"session {lock.right.session} of {lock.right.facts.name}"
        is_same_place = before.right.facts is lock.right.facts
        is_same = is_same_place and before.holder == lock.holder and before.number == lock.number
        if is_same:
            lock.until = max(lock.until, before.until)
            self.records.effects["session had back"] += 1
            if before.right.end.is_open and not before.right.is_given_back:
                before.right.share.held.clear()
            return
        is_known = not (self.records.was_rolled_back or self.was_clock_set)
        has_moved = not is_same_place and before.right.may_be_beside(lock.right)
        may_pass = has_moved or before.may_pass(now)
        if is_known and not may_pass and before.holder != lock.holder:
            self._fail(
                "L1",
                f"{where} is given to {lock.holder[0]} while {before.holder[0]} has it for "
                f"{before.until - now:.3f} s more",
            )
        if is_same_place and lock.number <= before.number and not self.records.was_rolled_back:
            self._fail("L3", f"{where}: lock {lock.number} after {before.number}")
        self.records.effects["session passed on"] += before.holder != lock.holder

    def _renewal(self, end: End, request: int, locked_ms: int) -> None:
        asked_at, right = self._asked.pop((end, request)), self._renewed.pop((end, request), None)
        if right is None:
            self._fail("L1", f"{end.pipe.target}: a renewal without a session is confirmed")
            return
        if self.is_of_earlier_life(right.facts, right.token) or not right.facts.is_there:
            return
        lock = self._locks.get(right.session, {}).get(right.facts)
        if lock is None or lock.right is not right:
            if not self.records.was_rolled_back:
                holder = lock.holder[0] if lock is not None else "nobody"
                self._fail(
                    "L1",
                    f"session {right.session}: a renewal of {end.pipe.target} is confirmed, and "
                    f"{holder} has it",
                )
            return
        lock.until = max(lock.until, asked_at + locked_ms / 1000)
        self.records.effects["session renewed"] += 1

    def _lost(self, end: End, facts: GroupPartitionFacts, frame: frames.SessionLost) -> None:
        right = self._end_right(end, facts, (frame.broker_epoch, frame.epoch))
        lock = self._locks.get(frame.session, {}).get(facts)
        if right is None or lock is None or lock.right is not right:
            return
        cause = Cause(frame.cause)
        if cause in (Cause.BROKER_CHANGE, Cause.RESET):
            return  # its member may go on with it, under the same lock
        left_s = lock.until - self._now() - CLOCK_S
        is_known = not (self.records.was_rolled_back or self.was_clock_set)
        is_there = facts.is_there and not self.is_of_earlier_life(facts, right.token)
        if cause is Cause.FORCED_COMMIT and is_known and is_there and left_s > 0:
            self._fail(
                "L2",
                f"session {frame.session} is taken from {end.pipe.target} {left_s:.3f} s too early",
            )
        lock.is_over = True
        self.records.effects["session lost"] += 1

    def _end_right(self, end: End, facts: GroupPartitionFacts, token: Token) -> SessionRight | None:
        right = self._rights.get((end, facts.name, token))
        if right is not None:
            right.is_over = True
            self._place(facts.name, token[0]).shares.pop(right, None)
            self.liveness.touch(facts, right.share.held)
        return right

    # ---- the same for the share of a session ----------------------------------------------------

    def gave_back(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        frame: frames.Release | frames.Returned | frames.Nack,
    ) -> None:
        """Take a frame by which a member gives messages back, as it reaches a broker."""
        right = self._named(facts, end, frame)
        super().gave_back(facts, right, frame)
        if isinstance(frame, frames.Nack):
            self._note_request(end, frame.request, right)

    def acked(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        frame: frames.Ack,
        offsets: Iterable[int],
    ) -> None:
        """Take an ack that has reached a broker: of what the member has not it does not count."""
        right = self._named(facts, end, frame)
        super().acked(facts, right, frame, offsets)
        self._note_request(end, frame.request, right)

    def forge(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        good: frames.Ack,
        number: int,
        draw: random.Random,
    ) -> frames.Ack | None:
        """Return an ack that must not count, to go behind a good one; None: not now."""
        right = self._named(facts, end, good)
        forged = super().forge(facts, right, good, number, draw)
        if forged is not None:
            self._note_request(end, forged.request, right)
        return forged

    def sent(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        token: Token,
        number: int,
        offsets: Sequence[int],
        causes: Sequence[Cause],
    ) -> None:
        """Judge what a broker sends to a member: rising offsets of one session."""
        assert isinstance(end, End)  # noqa: S101 - sessions are told apart here
        super().sent(facts, self._right(end, facts, token), token, number, offsets, causes)

    def _named(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        frame: frames.Ack | frames.Nack | frames.Release | frames.Returned,
    ) -> Receiver:
        assert isinstance(end, End)  # noqa: S101 - sessions are told apart here
        return self._right(end, facts, (frame.broker_epoch, frame.epoch))

    def _note_request(self, end: Receiver, request: int, right: Receiver) -> None:
        if isinstance(end, End) and isinstance(right, SessionRight):
            self._requests[end, request] = right

    # ---- applications ---------------------------------------------------------------------------

    def entered(self, session: LockedSession, process: Process) -> None:
        """Judge that an application begins with a session that no other one still works on."""
        name = session.session_id
        others = [
            (other, of)
            for other, of in self._entered.get(name, [])
            if of.is_alive and not other.is_closed and other.locked_s > CLOCK_S
        ]
        is_known = not (self.records.was_rolled_back or self.was_clock_set)
        for other, _ in others:
            facts = self.records.group_partitions[str(other.partition)]
            is_past = any(
                self.is_of_earlier_life(facts, each.assigned.token) for each in (other, session)
            )
            # That nothing of it was open where it was is judged as its lock is given.
            has_moved = other.partition != session.partition
            if is_known and facts.is_there and not is_past and not has_moved:
                self._fail("L1", f"session {name} is begun, and another one has it: {other!r}")
        self._entered[name] = [*others, (session, process)]
