"""The flow of a member at one broker: what its frames mean."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.assignment.delivered_window import DeliveredWindow, FreedCredit
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.client.consume.assignment.kinds import KINDS
from partq.client.consume.assignment.ready_windows import ReadyWindows
from partq.client.consume.assignment.sequential_partition import SequentialPartition
from partq.client.consume.credit import ConsumerCredit, CreditBook
from partq.client.consume.deliveries import cause_of
from partq.client.consume.flow_acks import AckBook, SeekBook
from partq.client.consume.membership import Membership
from partq.client.consume.naming import member_path
from partq.client.consume.offsets import window_size
from partq.client.consume.state_calls import StateCalls
from partq.client.consumer_stats import Tally
from partq.client.transport.broker_connection import BrokerConnection
from partq.client.transport.liveness import Clock
from partq.client.transport.positions import SeekPlace
from partq.client.transport.session import Session
from partq.core.dead_letters import LetterNote
from partq.core.model import Cause, PartitionId
from partq.errors import (
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

GROUP_DELAY_MS = -1
"""A nack that waits as long as the group's rules say."""


class ConsumerFlow:
    """Holds partitions of one broker and hands out their messages in the order of arrival."""

    def __init__(
        self,
        membership: Membership,
        session: Session,
        *,
        url: str,
        queue: str,
        group: str,
        credit: ConsumerCredit,
        clock: Clock,
        tally: Tally,
        look_around: Callable[[], None],
        name_timeout_s: float,
    ) -> None:
        self.url = url
        self.queue = queue
        self._membership = membership
        self._credit = credit
        self._look_around = look_around
        self._name_timeout_s = name_timeout_s
        self._bound = frames.UNBOUND
        """What the broker has said of itself."""
        self._has_left = False
        self._assigned: dict[PartitionId, AssignedPartition] = {}
        self._ready = ReadyWindows()
        self.number = 0
        """What the broker calls this flow."""
        self.alive_path = f"{member_path(group, membership.member)}/alive"
        self.connection = BrokerConnection(
            session, url, f"/groups/{quoted(group, 'group')}/flow", self, clock
        )
        self._tally = tally
        self._room = CreditBook(credit)
        self._acks = AckBook(self.connection.send, tally)
        self._seeks = SeekBook(url, self.connection.send)
        self.states = StateCalls(url, self.connection.send, self._acks)

    # ---- what the application takes ----

    def next_window(self) -> DeliveredWindow | None:
        """Return the first window that has messages left, if the broker is proven to be alive."""
        window = self._ready.first()
        # Else the broker does not answer; or this process stood still, and has to read first.
        return window if window is not None and self.is_valid() else None

    def next_window_of(self, partition: PartitionId) -> DeliveredWindow | None:
        """Return the first window of one partition, as `next_window` of any."""
        assigned = self._assigned.get(partition)
        window = None if assigned is None else self._ready.first_of(assigned)
        return window if window is not None and self.is_valid() else None

    def taken(self, messages: int, size_bytes: int = 0) -> None:
        """Give room back to the broker, a quarter of the credit at once.

        `size_bytes`: of deliveries that have nothing left to take.
        """
        given = self._room.free(messages, size_bytes, counts_bytes=self._bound.counts_bytes)
        if given is not None:
            self.connection.send(given)

    def _free(self, freed: FreedCredit) -> None:
        self._tally.returned(freed.message_count)
        self.taken(freed.message_count, freed.batch_bytes)

    def reject(self, window: DeliveredWindow, error: UndecodableError) -> None:
        """Give back what is left of a window, because it cannot be read; report it."""
        self._tally.undecodable(window.left)
        assigned = self._assigned[window.assigned.partition]  # else nothing of it would be left
        ranges = self._nack_rest(assigned, window, frames.UNDECODABLE)
        start, stop = ranges[0][0], ranges[-1][1]
        self._membership.report(
            UndecodableError(
                f"{window.assigned}: cannot be read from offset {start} to {stop - 1} "
                f"({error.message}); given back: what the broker cannot read either becomes "
                "a dead letter, the rest is redelivered; other messages continue"
            )
        )

    def _nack_rest(
        self, assigned: AssignedPartition, window: DeliveredWindow, reason: str
    ) -> list[Range]:
        """Give back what is left of a window, and return what that is."""
        rest, count = window.pass_over()
        self.taken(count, window.freed_bytes())
        self.nack(assigned, window.delivery, rest, GROUP_DELAY_MS, LetterNote(reason))
        return rest

    def leave(self) -> None:
        """Tell the broker that the process is ending; the partitions continue until revoked."""
        if not self._has_left:
            self._has_left = True
            self.connection.retire()
            self.connection.send(frames.Leave())

    def give_back(self, *, must: bool) -> None:
        """End the connection at once, if the application has begun what it will not acknowledge.

        What has not begun is released first: only what has begun is redelivered for a cause.
        Without it the drain of each partition would wait for the acks, for `maxHandoffSeconds`.
        `must`: also when nothing has begun.
        """
        self._acks.send_all()
        if not must and not any(assigned.has_in_hand for assigned in self._assigned.values()):
            return
        self.leave()
        for assigned in self._assigned.values():
            release = assigned.release_last()
            if release is not None:
                self.connection.send(release)
        self.connection.hang_up()

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
        """Give messages back; until the broker has answered, nothing of the partition goes out.

        They may be redelivered before everything that is ready, and the broker decides that. In a
        group of order Key that concerns their `slots` alone, if these are known. A broker of an
        earlier version gets no reason of the application.

        Raises:
            UnavailableError: dead letters are asked for, and the broker is of such a version.
            ConflictError: the application has acknowledged all of it.
        """
        if not self._bound.takes_dead_letters and note.reason != frames.UNDECODABLE:
            if note.is_asked_for and not assigned.is_ended:
                raise UnavailableError(
                    f"{self.url}: the broker is of an earlier version, and makes no dead letters "
                    "for an application; nothing has happened: update the brokers, or give the "
                    "message back by `nack`"
                )
            note = LetterNote()
        future = self._acks.nack(assigned, delivery, ranges, delay_ms, note)
        if slots and isinstance(assigned, KeyedPartition):
            assigned.hold_up(slots)
            future.add_done_callback(lambda _: self._let_go(assigned, slots))
        else:
            assigned.waits += 1
            future.add_done_callback(lambda _: self.go_on(assigned))
        return future

    def _let_go(self, assigned: KeyedPartition, slots: Collection[int]) -> None:
        self._ready.put_back(assigned, assigned.let_go(slots))
        self._membership.wake()

    def extend(
        self, assigned: AssignedPartition, delivery: int, ranges: list[Range]
    ) -> asyncio.Future[None]:
        """Have the time for the acks of messages start again.

        Raises:
            UnavailableError: the broker is of an earlier version, and would end the connection.
        """
        if not self._bound.takes_in_progress and not assigned.is_ended:
            raise UnavailableError(
                f"{self.url}: the broker is of an earlier version, and extends no ack timeout; "
                "nothing has happened: update the brokers, or give the group a longer "
                "`ack.timeoutSeconds`"
            )
        return self._acks.extend(assigned, delivery, ranges)

    def pause(self, assigned: AssignedPartition) -> None:
        """Hand out nothing of a partition until `resume`.

        What came and has not begun is given back, so that it takes no credit from the others. A
        broker of an earlier version would send it again at once: then it is kept here.
        """
        assigned.is_paused = True
        assigned.waits += 1
        if self._bound.takes_withholds:
            self._withhold(assigned)
            self._release(assigned)

    def resume(self, assigned: AssignedPartition) -> None:
        """Hand out messages of a partition again."""
        assigned.is_paused = False
        if self._bound.takes_withholds:
            self._withhold(assigned)
        self.go_on(assigned)

    def _withhold(self, assigned: AssignedPartition) -> None:
        place = (*assigned.partition, *assigned.token)
        self.connection.send(frames.Withhold(*place, assigned.is_paused))

    def check_seeks(self) -> None:
        """Refuse seeks at a broker that does not know them.

        Raises:
            UnavailableError: it is of an earlier version.
        """
        if not self._bound.takes_seeks:
            raise UnavailableError(
                f"{self.url}: the broker is of an earlier version, and does not know seeks; "
                "nothing was moved: update the brokers, or use `partq reset`"
            )

    def seek(self, assigned: AssignedPartition, place: SeekPlace) -> asyncio.Future[int]:
        """Have the group's cursor moved, behind the acks so far.

        Nothing of the partition goes out until the broker has answered.
        """
        assigned.waits += 1
        self._acks.send_all()
        future = self._seeks.begin(assigned, place)
        if not self._seeks.has(assigned):
            self.go_on(assigned)
        return future

    # ---- what the broker says ----

    def hello(self) -> frames.Frame:
        """Bind the member."""
        self._room.reset()
        member = self._membership
        return frames.Bind(
            member.member,
            member.incarnation,
            self._credit.message_count,
            member.held,
            credit_bytes=self._credit.batch_bytes,
            priority=member.priority,
            wants_standing=member.wants_standing,
            takes_lanes=True,
            takes_turns=True,
            ranges=member.ranges,
        )

    def welcomed(self, frame: frames.AnyFrame) -> float:
        """Take the binding."""
        if not isinstance(frame, frames.Bound):
            raise InternalError(f"{self.url}: expected Bound, got {type(frame).__name__}")
        self.number = frame.flow
        self._bound = self.states.bound = frame
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
                self._membership.wake()  # what came before the first answer may be handed out now
                self._send_begun()
            case frames.Rewound(generation, index, broker_epoch, epoch):
                assigned = self._current(PartitionId(generation, index), (broker_epoch, epoch))
                if isinstance(assigned, SequentialPartition):
                    kept_bytes = sum(each.kept_bytes for each in self._assigned.values())
                    self._free(assigned.rewind(frame, self._credit.batch_bytes - kept_bytes))
            case frames.AskBack(generation, index, broker_epoch, epoch):
                assigned = self._current(PartitionId(generation, index), (broker_epoch, epoch))
                if isinstance(assigned, KeyedPartition):
                    self._return(assigned, frame)
            case frames.Assigned():
                self._begin(frame)
            case frames.Lanes():
                self._membership.follow_lanes(frame)
            case frames.Standing(generation, index, is_active):
                self._membership.stand(PartitionId(generation, index), is_active=is_active)
            case frames.Sought(request, cursor):
                self._end_seek(request, cursor)
            case frames.SeekRefused(request, code, message, retry_after_ms):
                retry_after_s = retry_after_ms / 1000 or None
                self._end_seek(request, from_code(code, message, retry_after_s=retry_after_s))
            case frames.Paused(generation, index, broker_epoch, epoch):
                self._pause(PartitionId(generation, index), (broker_epoch, epoch))
            case frames.Revoked(generation, index, broker_epoch, epoch, cause):
                self._revoke(PartitionId(generation, index), (broker_epoch, epoch), cause_of(cause))
            case frames.Moved(generation, index):
                assigned = self._assigned.get(PartitionId(generation, index))
                if assigned is not None:
                    self.give_up(assigned, Cause.BROKER_CHANGE)
                self._look_around()
            case _:
                pass  # resumed: deliveries follow by themselves; or news of a later version

    def lost(self, error: PartqError) -> None:
        """Forget everything that came over the connection: its tokens have ended."""
        self._end_all()
        self._look_around()
        self._membership.wake()

    def failing(self, error: PartqError, for_s: float) -> None:
        """Stop the consumer when it is refused, or another has its name or slots, for too long."""
        is_refused = isinstance(error, MemberInUseError | MemberRefusedError)
        if (is_refused or error.code == ConflictError.code) and for_s >= self._name_timeout_s:
            self._membership.stop(error)

    def refused(self, error: PartqError) -> None:
        """Stop the consumer: the broker does not take this member."""
        self._membership.stop(error)

    # ---- inside ----

    def _begin(self, frame: frames.Assigned) -> None:
        kind = KINDS.get(frame.mode)
        if kind is None:
            raise InternalError(
                f"{self.url}: partition {frame.generation}.{frame.partition} came with mode "
                f"{frame.mode}, which this client does not know; use a client of the broker's "
                "version"
            )
        partition = PartitionId(frame.generation, frame.partition)
        token = (frame.broker_epoch, frame.epoch)
        assigned = self._membership.begin(self, kind, partition, token, frame.cursor)
        if assigned is not None:
            self._assigned[partition] = assigned

    def _deliver(self, frame: frames.Deliver, payload: bytes) -> None:
        size = frame.kept_bytes or len(payload)
        self._room.hold(size)
        partition = PartitionId(frame.generation, frame.partition)
        token = (frame.broker_epoch, frame.epoch)
        assigned = self._held(partition, token)
        if assigned is None or assigned.token != token:
            if self._membership.is_news(partition, token):
                raise InternalError(
                    f"{self.url}: partition {partition} came without a token; use a client of "
                    "the broker's version"
                )
            self.taken(window_size(frame), size)  # of a token that has ended
            return
        window = assigned.accept(frame, payload)
        if window is None:
            self.taken(window_size(frame), size)
            return
        if frame.causes:
            for cause, count in Counter(frame.causes).items():
                self._tally.received(count, 0, cause_of(cause))
            self._tally.received(0, len(payload), Cause.NONE)
        else:
            self._tally.received(window.left, len(payload), cause_of(frame.cause))
        if window.is_missing:  # it is redelivered with its bytes
            if window.is_in_turn:
                self._release(assigned)
            else:
                self._tally.returned(window.left)
                self._nack_rest(assigned, window, "")
        elif assigned.is_paused and self._bound.takes_withholds and window.is_in_turn:
            self._release(assigned)  # it was on its way
        else:
            self._ready.add(window)
            self._membership.wake()

    def _pause(self, partition: PartitionId, token: tuple[int, int]) -> None:
        assigned = self._current(partition, token)
        if assigned is not None:
            self._release(assigned)

    def _release(self, assigned: AssignedPartition) -> None:
        release, freed = assigned.release()
        if release is not None:
            self.connection.send(release)
        self._free(freed)

    def _return(self, assigned: KeyedPartition, asked: frames.AskBack) -> None:
        """Give back what the application has not got of what the broker asks for."""
        returned, freed = assigned.ask_back(asked)
        self.connection.send(returned)
        self._tally.returned(sum(stop - start for start, stop in returned.ranges))
        self.taken(freed.message_count, freed.batch_bytes)
        self._membership.wake()

    def _revoke(self, partition: PartitionId, token: tuple[int, int], cause: Cause) -> None:
        assigned = self._assigned.get(partition)
        if assigned is None or token < assigned.token:
            return
        if cause is Cause.RESET and self._seeks.has(assigned):
            assigned.is_sought = True
            self._free_all(assigned)
            self._membership.end(assigned, cause)
        else:
            self._membership.forget(partition)
            self.give_up(assigned, cause)

    def _end_seek(self, request: int, answer: int | PartqError) -> None:
        """Take the answer to a seek: the next assignment has begun before it, or comes late."""
        assigned = self._seeks.answered(request, answer)
        if assigned is not None:
            if not self._seeks.has(assigned):  # the answer to another one follows its assignment
                self._membership.end_seek(assigned, Cause.RESET)
            self.go_on(assigned)

    def _current(self, partition: PartitionId, token: tuple[int, int]) -> AssignedPartition | None:
        """Return what is held under a token."""
        assigned = self._held(partition, token)
        return assigned if assigned is not None and assigned.token == token else None

    def _held(self, partition: PartitionId, token: tuple[int, int]) -> AssignedPartition | None:
        """Return what is held of a partition; where members take turns, from now on under a token.

        `token`: of a frame that came.
        """
        assigned = self._assigned.get(partition)
        if assigned is not None and assigned.follows_rounds:
            self._membership.follow_round(assigned, token)
        return assigned

    def is_valid(self) -> bool:
        """Say whether the broker is proven to be alive, by the clock of this moment."""
        return self.connection.is_valid()

    def go_on(self, assigned: AssignedPartition) -> None:
        """Note that a nack was answered, or that `on_assigned` is done."""
        assigned.waits -= 1
        if not assigned.waits:
            set_aside, assigned.set_aside = assigned.set_aside, []
            self._ready.put_back(assigned, set_aside)
            self._membership.wake()

    def _send_begun(self) -> None:
        """Tell the broker, about once a second, what the application has begun since."""
        if not self._bound.takes_begun:
            return
        for partition, assigned in self._assigned.items():
            place = (*partition, *assigned.token)
            for delivery, ranges in assigned.begun_copies():
                if ranges:
                    self.connection.send(frames.Begun(*place, delivery, ranges))

    def give_up(self, assigned: AssignedPartition, cause: Cause) -> None:
        """End an assignment: nothing more of it is handed out, acks are refused from now on."""
        self._free_all(assigned)
        self._membership.end(assigned, cause)

    def _free_all(self, assigned: AssignedPartition) -> None:
        self._assigned.pop(assigned.partition, None)
        self._free(assigned.forget())

    def _end_all(self) -> None:
        for assigned in tuple(self._assigned.values()):
            self.give_up(assigned, Cause.FLOW_LOST)
        for assigned in self._seeks.lose_all():
            self._membership.end_seek(assigned, Cause.FLOW_LOST)
        self._ready.clear()
        self.states.lose_all(self._acks.lost(self.url))
