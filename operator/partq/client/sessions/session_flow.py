"""The flow of a member at one broker, in a group of type Session: what its frames mean."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.assignment.delivered_window import FreedCredit
from partq.client.consume.credit import ConsumerCredit, CreditBook
from partq.client.consume.deliveries import Delivery, cause_of
from partq.client.consume.flow import GROUP_DELAY_MS
from partq.client.consume.flow_acks import AckBook, fenced, quiet_future
from partq.client.consume.naming import member_path
from partq.client.consume.offsets import window_size
from partq.client.consume.state_calls import StateCalls
from partq.client.consumer_stats import Tally
from partq.client.hooks.serializers import ValueDeserializer
from partq.client.sessions.session_assignment import SessionAssignment, SessionPlace
from partq.client.transport.broker_connection import BrokerConnection
from partq.client.transport.liveness import Clock
from partq.client.transport.positions import SeekPlace
from partq.client.transport.session import Session
from partq.core.dead_letters import LetterNote
from partq.core.model import Cause
from partq.errors import (
    BadRequestError,
    ConflictError,
    InternalError,
    MemberInUseError,
    MemberRefusedError,
    PartqError,
    UnavailableError,
    UndecodableError,
    from_code,
)
from partq.path_names import quoted
from partq.wire import frames
from partq.wire.frames import Range

NO_SESSIONS = (
    "it has no sessions, expected a group of the type Session whose brokers know that: use a "
    "Consumer for other types, or update the brokers"
)

_LOCK_GOES_ON = (Cause.BROKER_CHANGE, Cause.RESET)
"""Of a session that was taken: its process goes on with it, under the same lock."""


class SessionHolder(Protocol):
    """The consumer whose flow it is."""

    member: str
    incarnation: str
    value_deserializer: ValueDeserializer | None

    def wake(self) -> None:
        """Have all that wait look again."""

    def hurry_layout(self) -> None:
        """Have the layout read again soon."""

    def stop(self, error: Exception) -> None:
        """Note that the consumer cannot continue."""

    def report(self, error: PartqError) -> None:
        """Tell an error that stops only a part."""

    def ended(self, assigned: SessionAssignment, cause: Cause, *, is_lost: bool) -> None:
        """Learn that a session has ended here; `is_lost`: its lock has, too."""


class SessionFlow:
    """Accepts sessions at one broker, and takes their messages, each under its token."""

    def __init__(
        self,
        member: SessionHolder,
        session: Session,
        *,
        url: str,
        queue: str,
        group: str,
        credit: ConsumerCredit,
        clock: Clock,
        tally: Tally,
        name_timeout_s: float,
    ) -> None:
        self.url = url
        self.queue = queue
        self._group = group
        self._member = member
        self._credit = credit
        self._clock = clock
        self._name_timeout_s = name_timeout_s
        self._had_sessions = False
        self._has_left = False
        self._assigned: dict[SessionPlace, SessionAssignment] = {}
        self._accepts: dict[int, tuple[asyncio.Future[SessionAssignment], float]] = {}
        self._renewals: dict[int, tuple[asyncio.Future[None], SessionAssignment, float]] = {}
        self._closes: dict[int, asyncio.Future[None]] = {}
        self._next_request = 1
        self.number = 0
        """What the broker calls this flow."""
        self.alive_path = f"{member_path(group, member.member)}/alive"
        self.connection = BrokerConnection(
            session, url, f"/groups/{quoted(group, 'group')}/flow", self, clock
        )
        self._tally = tally
        self._room = CreditBook(credit)
        self._acks = AckBook(self.connection.send, tally)
        self.states = StateCalls(url, self.connection.send, self._acks)

    # ---- what the consumer asks for ----

    def accept(
        self, session: str | None, wait_ms: int, lock: int = 0
    ) -> "asyncio.Future[SessionAssignment]":
        """Ask for a session; the future is done when the broker has answered.

        Cancelling it withdraws the request: a session that comes all the same is given back.
        """
        future: asyncio.Future[SessionAssignment] = quiet_future()
        request = self._new_request()
        sent_at = self._clock()
        if not self.connection.send(frames.AcceptSession(request, session, wait_ms, lock)):
            future.set_exception(self._lost("the session was not asked for"))
            return future
        self._accepts[request] = future, sent_at
        future.add_done_callback(lambda done: self._withdraw(request, done))
        return future

    def _withdraw(self, request: int, future: "asyncio.Future[SessionAssignment]") -> None:
        if future.cancelled() and request in self._accepts:
            self.connection.send(frames.CancelAccept(request))

    def renew(self, assigned: SessionAssignment) -> asyncio.Future[None]:
        """Have the lock of a session last longer; the future is done when it does."""
        future: asyncio.Future[None] = quiet_future()
        request = self._new_request()
        frame = frames.RenewSession(request, *assigned.partition, *assigned.token)
        sent_at = self._clock()
        if assigned.is_ended:
            future.set_exception(fenced(assigned))
        elif self.connection.send(frame):
            self._renewals[request] = future, assigned, sent_at
        else:
            future.set_exception(self._lost("the lock may be renewed, or not"))
        return future

    def close_session(self, assigned: SessionAssignment) -> asyncio.Future[None]:
        """End a session: nothing more of it is handed out. The future is done once it is unlocked.

        What the application has begun and said nothing of is given back, and counts.
        """
        future: asyncio.Future[None] = quiet_future()
        if assigned.is_ended:
            future.set_result(None)
            return future
        self._acks.send_all()
        request = self._new_request()
        frame = frames.CloseSession(request, *assigned.partition, *assigned.token)
        self._forget(assigned)
        if self.connection.send(frame):
            self._closes[request] = future
        else:
            future.set_exception(self._lost("the session may be locked until its time is over"))
        return future

    def next_message(self, assigned: SessionAssignment) -> Delivery | None:
        """Return the next message of a session; None: nothing is ready."""
        while (window := assigned.next_window()) is not None:
            try:
                delivery = window.take_one()
            except UndecodableError as error:
                rest, count = window.pass_over()
                self._tally.undecodable(count)
                self._give_room(count, window.freed_bytes())
                note = LetterNote(frames.UNDECODABLE)
                self.nack(assigned, window.delivery, rest, GROUP_DELAY_MS, note)
                self._member.report(
                    UndecodableError(
                        f"{assigned}: cannot be read from offset {rest[0][0]} to "
                        f"{rest[-1][1] - 1} ({error.message}); given back: what the broker cannot "
                        "read either becomes a dead letter, the rest is redelivered"
                    )
                )
                continue
            self._give_room(1, window.freed_bytes())
            return delivery
        return None

    def leave(self) -> None:
        """Tell the broker that the process is ending: its locks end at once."""
        if not self._has_left:
            self._has_left = True
            self._acks.send_all()
            self.connection.retire()
            self.connection.send(frames.Leave())
            self.connection.hang_up()

    # ---- what messages ask for ----

    def add_ack(
        self, assigned: AssignedPartition, delivery: int, upto: int, ranges: Sequence[Range]
    ) -> asyncio.Future[None]:
        """Send an ack with the others of this turn of the event loop."""
        return self._acks.add(assigned, delivery, upto, ranges)

    def nack(
        self,
        assigned: AssignedPartition,
        delivery: int,
        ranges: list[Range],
        delay_ms: int,
        note: LetterNote,
        slots: Collection[int] = (),
    ) -> asyncio.Future[None]:
        """Give messages back; until the broker has answered, nothing of the session goes out."""
        future = self._acks.nack(assigned, delivery, ranges, delay_ms, note)
        assigned.waits += 1
        future.add_done_callback(lambda _: self.go_on(assigned))
        return future

    def extend(
        self, assigned: AssignedPartition, delivery: int, ranges: list[Range]
    ) -> asyncio.Future[None]:
        """Have the time for the acks of messages start again."""
        return self._acks.extend(assigned, delivery, ranges)

    def is_valid(self) -> bool:
        """Say whether the broker is proven to be alive, by the clock of this moment."""
        return self.connection.is_valid()

    def go_on(self, assigned: AssignedPartition) -> None:
        """Note that a nack was answered."""
        assigned.waits -= 1
        if isinstance(assigned, SessionAssignment):
            assigned.changes.beat()

    def give_up(self, assigned: AssignedPartition, cause: Cause) -> None:
        """End a session here: it is asked for again if its lock has not ended."""
        if isinstance(assigned, SessionAssignment):
            self._end(assigned, cause, is_lost=False)

    def pause(self, assigned: AssignedPartition) -> None:
        """Refuse: sessions are not paused.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError(f"pause: {assigned}: expected a partition; close the session instead")

    def resume(self, assigned: AssignedPartition) -> None:
        """Do nothing: no session is paused."""

    def check_seeks(self) -> None:
        """Refuse: members have no partitions here.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError("seek: expected a group of another type than Session; use `reset`")

    def seek(self, assigned: AssignedPartition, place: SeekPlace) -> asyncio.Future[int]:
        """Refuse, as `check_seeks`."""
        self.check_seeks()
        raise AssertionError

    # ---- what the broker says ----

    def hello(self) -> frames.Frame:
        """Bind the member."""
        self._room.reset()
        return frames.Bind(
            self._member.member,
            self._member.incarnation,
            self._credit.message_count,
            credit_bytes=self._credit.batch_bytes,
            takes_lanes=True,
            takes_sessions=True,
        )

    def welcomed(self, frame: frames.AnyFrame) -> float:
        """Take the binding.

        Raises:
            BadRequestError: the group has no sessions; a ConflictError if it had some before.
        """
        if not isinstance(frame, frames.Bound):
            raise InternalError(f"{self.url}: expected Bound, got {type(frame).__name__}")
        if not frame.takes_sessions:
            kind = ConflictError if self._had_sessions else BadRequestError
            raise kind(f"{self.url}: group {self._group}: {NO_SESSIONS}")
        self._had_sessions = True
        self.number = frame.flow
        self.states.bound = frame
        self._member.wake()
        return frame.lease_ms / 1000

    def received(self, frame: frames.AnyFrame, payload: bytes) -> None:
        """Take a frame."""
        match frame:
            case frames.Deliver():
                self._deliver(frame, payload)
            case frames.AckConfirmed(request):
                self._acks.confirmed(request)
            case frames.AckRefused(request, code, message):
                self._acks.refused(request, from_code(code, message))
            case frames.State() | frames.StateRefused():
                self.states.answered(frame)
            case frames.Pong():
                for each in self._assigned.values():
                    each.changes.beat()  # what came before the first answer may go out now
                self._send_begun()
            case frames.SessionAccepted():
                self._accepted(frame)
            case frames.SessionRefused(request, code, message, retry_after_ms):
                error = from_code(code, message, retry_after_s=retry_after_ms / 1000 or None)
                self._refused(request, error)
            case frames.SessionRenewed(request, locked_ms):
                self._renewed(request, locked_ms)
            case frames.SessionClosed(request):
                closed = self._closes.pop(request, None)
                if closed is not None and not closed.done():
                    closed.set_result(None)
            case frames.AskBack(generation, index, broker_epoch, epoch):
                assigned = self._current((generation, index, epoch), broker_epoch)
                if assigned is not None:
                    self._return(assigned, frame)
            case frames.SessionLost(generation, index, broker_epoch, epoch, _, cause):
                assigned = self._current((generation, index, epoch), broker_epoch)
                if assigned is not None:
                    why = cause_of(cause)
                    self._end(assigned, why, is_lost=why not in _LOCK_GOES_ON)
            case frames.Revoked(generation, index, broker_epoch, epoch, cause):
                assigned = self._current((generation, index, epoch), broker_epoch)
                if assigned is not None:
                    self._end(assigned, cause_of(cause), is_lost=False)
            case frames.Moved(generation, index):
                for each in list(self._assigned.values()):
                    if each.partition == (generation, index):
                        self._end(each, Cause.BROKER_CHANGE, is_lost=False)
                self._member.hurry_layout()
            case _:
                pass  # news of a later version

    def lost(self, error: PartqError) -> None:
        """Forget everything that came over the connection: its tokens have ended."""
        for assigned in tuple(self._assigned.values()):
            self._end(assigned, Cause.FLOW_LOST, is_lost=False)
        self.states.lose_all(self._acks.lost(self.url))
        open_futures: list[asyncio.Future[SessionAssignment] | asyncio.Future[None]] = [
            *(future for future, _ in self._accepts.values()),
            *(future for future, _, _ in self._renewals.values()),
            *self._closes.values(),
        ]
        self._accepts, self._renewals, self._closes = {}, {}, {}
        for future in open_futures:
            if not future.done():
                future.set_exception(self._lost("it may be done, or not"))
        self._member.hurry_layout()
        self._member.wake()

    def failing(self, error: PartqError, for_s: float) -> None:
        """Stop the consumer when it is refused, or another has its name, for too long."""
        is_refused = isinstance(error, MemberInUseError | MemberRefusedError)
        if (is_refused or error.code == ConflictError.code) and for_s >= self._name_timeout_s:
            self._member.stop(error)
        self._member.wake()

    def refused(self, error: PartqError) -> None:
        """Stop the consumer: the broker does not take this member."""
        self._member.stop(error)

    # ---- inside ----

    def _new_request(self) -> int:
        self._next_request += 1
        return self._next_request

    def _lost(self, outcome: str) -> UnavailableError:
        return UnavailableError(
            f"{self.url}: the connection was lost; {outcome}: it is asked for again once a broker "
            "is connected"
        )

    def _accepted(self, frame: frames.SessionAccepted) -> None:
        future, sent_at = self._accepts.pop(frame.request, (None, self._clock()))
        assigned = SessionAssignment(
            self, frame, sent_at + frame.locked_ms / 1000, self._member.value_deserializer
        )
        self._assigned[assigned.place] = assigned
        if future is None or future.done():  # nobody waits for it any more
            self.close_session(assigned)
        else:
            future.set_result(assigned)

    def _refused(self, request: int, error: PartqError) -> None:
        found: asyncio.Future[SessionAssignment] | asyncio.Future[None] | None
        if request in self._accepts:
            found, _ = self._accepts.pop(request)
        elif request in self._renewals:
            found, _, _ = self._renewals.pop(request)
        else:
            found = self._closes.pop(request, None)
        if found is not None and not found.done():
            found.set_exception(error)

    def _renewed(self, request: int, locked_ms: int) -> None:
        future, assigned, sent_at = self._renewals.pop(request, (None, None, 0.0))
        if assigned is not None:
            until = sent_at + locked_ms / 1000
            assigned.locked_until = max(assigned.locked_until, until)
        if future is not None and not future.done():
            future.set_result(None)

    def _deliver(self, frame: frames.Deliver, payload: bytes) -> None:
        self._room.hold(len(payload))
        place = (frame.generation, frame.partition, frame.epoch)
        assigned = self._current(place, frame.broker_epoch)
        window = None if assigned is None else assigned.accept(frame, payload)
        if assigned is None or window is None:
            self._give_room(window_size(frame), len(payload))  # of a session that has ended
            return
        if frame.causes:
            for cause, count in Counter(frame.causes).items():
                self._tally.received(count, 0, cause_of(cause))
            self._tally.received(0, len(payload), Cause.NONE)
        else:
            self._tally.received(window.left, len(payload), cause_of(frame.cause))
        assigned.ready.append(window)
        assigned.changes.beat()

    def _return(self, assigned: SessionAssignment, asked: frames.AskBack) -> None:
        returned, freed = assigned.ask_back(asked)
        self.connection.send(returned)
        self._free(freed)

    def _current(self, place: SessionPlace, broker_epoch: int) -> SessionAssignment | None:
        assigned = self._assigned.get(place)
        return assigned if assigned is not None and assigned.token[0] == broker_epoch else None

    def _send_begun(self) -> None:
        for assigned in self._assigned.values():
            place = (*assigned.partition, *assigned.token)
            for delivery, ranges in assigned.begun_copies():
                if ranges:
                    self.connection.send(frames.Begun(*place, delivery, ranges))

    def _end(self, assigned: SessionAssignment, cause: Cause, *, is_lost: bool) -> None:
        self._forget(assigned)
        self._member.ended(assigned, cause, is_lost=is_lost)
        assigned.changes.beat()

    def _forget(self, assigned: SessionAssignment) -> None:
        self._assigned.pop(assigned.place, None)
        assigned.is_ended = True
        assigned.ready.clear()
        self._free(assigned.forget())

    def _free(self, freed: FreedCredit) -> None:
        self._tally.returned(freed.message_count)
        self._give_room(freed.message_count, freed.batch_bytes)

    def _give_room(self, messages: int, size_bytes: int) -> None:
        given = self._room.free(messages, size_bytes, counts_bytes=True)
        if given is not None:
            self.connection.send(given)
