"""One bound connection of a member, and what is sent over it."""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf

from partq.aio import Signal
from partq.broker.delivery.credit import FlowCredit
from partq.broker.delivery.unrecorded_deliveries import UnrecordedDeliveries, UnrecordedDelivery
from partq.broker.partition.audit_buffer import delivered
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.flow_ports import BatchFinder, ExpiryCheck
from partq.broker.partition.flow_records import record_of
from partq.core.cursor.windows import TakenBack, Window
from partq.core.model import SLOT_COUNT, BrokerEpoch, Cause, Epoch, MemberId, PartitionId
from partq.core.ranges import Ranges
from partq.errors import ForbiddenError
from partq.excerpts import excerpt
from partq.store.records.log import Entry
from partq.wire import frames

MAX_NOTICES = 1024
"""Of a partition, that are not answered and of which it is known since when."""
PASSED_AT_ONCE = 1000
"""Batches with nothing left to send are passed over. After this many, others get their turn."""


class Flow:
    """A member's flow at this broker: its partitions, its credit, its outgoing frames.

    One task sends: control frames first, then deliveries in turn over the partitions, so what a
    client sees of one partition is in the order in which it was decided here.
    """

    def __init__(
        self,
        *,
        number: int,
        group: str,
        member: MemberId,
        incarnation: str,
        address: str,
        kind: str,
        credit: int,
        credit_bytes: int,
        priority: int,
        wants_standing: bool,
        takes_lanes: bool,
        takes_turns: bool,
        ranges: tuple[tuple[int, int], ...],
        max_unacked: Callable[[], int],
        batch_finder: BatchFinder,
        expiry_check: ExpiryCheck,
        now: float,
    ) -> None:
        self.number = number
        self.group = group
        self.member = member
        self.incarnation = incarnation
        self.address = address
        self.kind = kind
        self.priority = priority
        self.ranges = ranges
        self.takes_lanes, self.takes_turns = takes_lanes, takes_turns
        """Whether its client can have partitions of a group of order Key, of type Shared."""
        self._wants_standing, self._sends_standing = wants_standing, False
        self.bound_at = now
        self.last_seen = now
        self.acked_at = now
        """When an ack last counted, or when the flow last had nothing to acknowledge."""
        self.is_known_stuck = False
        """Whether it was told that the limit of unacknowledged messages holds it up."""
        self.is_leaving = self.is_closed = False
        self.is_sending = False
        """Its connection is taking a frame: nothing else is sent meanwhile."""
        # A batch is sent again for each part of it. A pull sends no batches.
        self.credit = FlowCredit(
            credit, credit_bytes, max_unacked=max_unacked, cuts_batches=kind == "flow"
        )
        self.partitions: dict[ConsumedPartition, None] = {}
        self.wake = Signal()
        self.on_closed: Callable[[], None] | None = None
        """Called by the holder of the connection when the flow ends from this side."""
        self.count_fitting: Callable[[Entry, int, int], int] | None = None
        """Says how many messages of a batch, from an offset on, its client can take now; at most
        the last argument. None: as many as its credit allows."""
        self._batch_finder = batch_finder
        self._expiry_check = expiry_check
        self._controls: deque[bytes] = deque()
        self.unrecorded = UnrecordedDeliveries()
        """Frames that wait for their audit record."""
        self.decode_lock = asyncio.Lock()
        """Held while the broker looks into a batch that this client could not decode."""
        self._ready: dict[ConsumedPartition, None] = {}
        self._delayed: dict[ConsumedPartition, None] = {}
        """Partitions with messages that wait to be sent again."""
        self._asked: dict[ConsumedPartition, set[int]] = {}
        """Lanes that the client is asked for at the end of this turn of the event loop."""
        self.asked_back: dict[ConsumedPartition, dict[int, float | None]] = {}
        """Notices that are not answered, each with when that was first seen; None: it was not."""

    # ---- what happens to it ---------------------------------------------------------------------

    def check_address(self, address: str) -> None:
        """Let the member's own pod alone speak for it.

        Raises:
            ForbiddenError: the flow is bound from another address.
        """
        if self.address != address:
            raise ForbiddenError(
                f"member {excerpt(self.member)} of {self.group} got a call from "
                f"{address}, expected {self.address}, where it is bound: call from its pod"
            )

    def attach(self, consumed: ConsumedPartition) -> None:
        """Begin to deliver a partition; its epoch is the new one already."""
        consumed.flow = self
        consumed.incarnation = self.incarnation
        self.partitions[consumed] = None
        if consumed.session is not None:
            self.watch(consumed)
            return
        assigned = frames.Assigned(*_round(consumed), consumed.book.cursor, consumed.mode)
        self.send_behind(consumed.partition, assigned)
        if consumed.root is not consumed and consumed.keys is not None:
            self.send_lanes(consumed)
        self._send_standing(consumed, is_active=True)
        if consumed.pause is not None:
            # A pause survives a re-bind.
            self.send_paused(consumed)
        self.watch(consumed)

    def unsent(self, partition: PartitionId) -> Ranges:
        """Return the offsets of deliveries that wait for their audit record: no client has them."""
        return self.unrecorded.unsent(partition)

    def detach(self, consumed: ConsumedPartition, cause: Cause) -> None:
        """Stop delivering a partition; the client is told why."""
        self.partitions.pop(consumed, None)
        self._ready.pop(consumed, None)
        self._delayed.pop(consumed, None)
        self._asked.pop(consumed, None)
        self.asked_back.pop(consumed, None)
        self._batch_finder.forget(consumed)
        self.credit.forget(consumed)
        self.end_in_flight(consumed.book.in_flight)
        messages, size, waiting = self.unrecorded.forget(consumed)
        self.credit.give_back(messages, size)
        self._controls.extend(waiting)
        if consumed.session is not None:
            if cause is not Cause.NONE or consumed.root.is_dropped:
                self.send(frames.SessionLost(*_round(consumed), consumed.session, cause))
            return
        self.send(frames.Revoked(*_round(consumed), cause))
        if cause is Cause.BROKER_CHANGE:
            self.send(frames.Moved(*consumed.partition, "", ""))
        else:
            self.stand_by(consumed)

    def begin_standing(self) -> bool:
        """Tell the client from now on which partitions it has; return whether that is news to it.

        It does not end before the flow, also if the group gets another type: else the client would
        keep a standing that is over.
        """
        is_new = self._wants_standing and not self._sends_standing
        self._sends_standing = self._wants_standing
        for consumed in self.partitions if is_new else ():
            self._send_standing(consumed, is_active=True)
        return is_new

    def stand_by(self, consumed: ConsumedPartition) -> None:
        """Tell the client that another member, or nobody, has the partition."""
        self._send_standing(consumed, is_active=False)

    def _send_standing(self, consumed: ConsumedPartition, *, is_active: bool) -> None:
        if self._sends_standing:
            self.send_behind(consumed.partition, frames.Standing(*consumed.partition, is_active))

    def send(self, frame: frames.Frame) -> None:
        """Queue a control frame."""
        if not self.is_closed:
            self._controls.append(frames.encode(frame))
            self.wake.set()

    def send_behind(self, partition: PartitionId, frame: frames.Frame) -> None:
        """Queue a control frame behind the frames of its partition that are not sent yet."""
        if self.is_closed or not self.unrecorded.follow(partition, frames.encode(frame)):
            self.send(frame)

    def send_paused(self, consumed: ConsumedPartition) -> None:
        """Tell the client that nothing new comes, and ask it to release what it can."""
        self.send_behind(consumed.partition, frames.Paused(*_round(consumed)))
        self.ask_all_back(consumed)

    def ask_all_back(self, consumed: ConsumedPartition) -> None:
        """Ask the client for all that has not begun, if it does not give that back by itself.

        What an answer to a pull has counts as begun.
        """
        lanes = consumed.lanes
        if lanes is not None and lanes.in_flight and self.kind != "pull":
            self._send_ask_back(consumed, lanes.ask_back(), [(0, SLOT_COUNT)])

    def ask_back(self, consumed: ConsumedPartition, taken: TakenBack) -> None:
        """Ask the client for what has not begun of the lanes of messages that were taken back."""
        self.ask_lanes_back(consumed, taken.asked, taken.notice)

    def ask_lanes_back(
        self, consumed: ConsumedPartition, asked: frozenset[int], notice: int
    ) -> None:
        """Ask the client for what has not begun of lanes.

        One frame asks for the lanes of a turn of the event loop. The answers to its nacks follow
        it, as their counts are to be stored first.
        """
        lanes = consumed.lanes
        if lanes is None or not asked:
            return
        if self.kind != "pull":
            if consumed not in self._asked:
                self._asked[consumed] = set()
                asyncio.get_running_loop().call_soon(self._ask_for_lanes, consumed)
            self._asked[consumed] |= asked
            return
        # All that was answered has begun; what is still to be is dropped from the answer.
        unanswered = self.unsent(consumed.partition)
        offsets = [at for part in unanswered.pairs() for at in range(*part)]
        dropped = [(at, at + 1) for at in offsets if lanes.lane_of(at) in asked]
        if (audit_writer := consumed.audit_writer) is not None:
            for part in Ranges(dropped).pairs():
                audit_writer.note(record_of("release", consumed, self, part))
        self.end_in_flight(lanes.returned(dropped, notice))

    def send_lanes(self, consumed: ConsumedPartition) -> None:
        """Tell the client which slots of a partition it has now."""
        self.send_behind(consumed.partition, frames.Lanes(*_round(consumed), consumed.lane_ranges))

    def _ask_for_lanes(self, consumed: ConsumedPartition) -> None:
        asked, lanes = self._asked.pop(consumed, None), consumed.lanes
        if asked and lanes is not None:
            slots = Ranges((lane, lane + 1) for lane in sorted(asked)).pairs()
            if consumed.session is not None:
                slots = [(0, SLOT_COUNT)]  # the session is all that its client has of the token
            self._send_ask_back(consumed, lanes.join_notices(asked), slots)

    def _send_ask_back(
        self, consumed: ConsumedPartition, notice: int, slots: list[tuple[int, int]]
    ) -> None:
        open_notices = self.asked_back.setdefault(consumed, {})
        if len(open_notices) < MAX_NOTICES:  # the oldest one counts
            open_notices[notice] = None
        self.send_behind(consumed.partition, frames.AskBack(*_round(consumed), notice, slots))

    def send_resumed(self, consumed: ConsumedPartition) -> None:
        """Tell the client that a pause is over without a handoff."""
        self.send_behind(consumed.partition, frames.Resumed(*_round(consumed)))

    def send_rewound(self, consumed: ConsumedPartition, start: int, cause: Cause) -> None:
        """Tell the client that all from `start` on is redelivered, under the book's number."""
        self.send_behind(
            consumed.partition,
            frames.Rewound(*_round(consumed), consumed.book.number, start, cause),
        )

    def notice(self, consumed: ConsumedPartition) -> None:
        """Look at a partition again: it may have something to send."""
        if consumed.flow is self and not self.is_closed:
            self._ready[consumed] = None
            self.wake.set()

    def watch(self, consumed: ConsumedPartition) -> None:
        """Look at a partition again: now, and when what waits in its book has waited enough."""
        if consumed.book.next_due < inf:
            self._delayed[consumed] = None
        self.notice(consumed)

    def close(self) -> None:
        """End for good; the partitions are taken away already."""
        self.is_closed = True
        self.wake.set()
        if self.on_closed is not None:
            self.on_closed()

    def notice_all(self) -> None:
        """Look at every partition again."""
        self._ready |= self.partitions
        self.wake.set()

    # ---- what it sends --------------------------------------------------------------------------

    @property
    def scattered(self) -> PartitionId | None:
        """A partition whose acks lie in too many pieces, so that nothing new of it is sent."""
        return next((each.partition for each in self.partitions if each.book.is_scattered), None)

    @property
    def standing_still(self) -> tuple[PartitionId, str] | None:
        """A partition of which nothing new is sent, as its book says, and why."""
        return next(
            ((each.partition, why) for each in self.partitions if (why := each.book.stands_still)),
            None,
        )

    @property
    def is_able(self) -> bool:
        """Whether it could be sent something now: it has room, and sends nothing else."""
        return not self.is_sending and self.credit.left > 0 and not self.unrecorded.is_full

    def take_credit(self, messages: int, size_bytes: int) -> None:
        """Take room that the client has again."""
        self.credit.add(messages, size_bytes)
        self.notice_all()

    def end_in_flight(self, messages: int) -> None:
        """Count messages that the client has acknowledged, given back or lost."""
        for consumed in self.credit.end_unacked(messages):
            self.notice(consumed)

    @property
    def control_count(self) -> int:
        """How many control frames wait to be sent."""
        return len(self._controls) + self.unrecorded.control_count

    def next_control(self) -> bytes | None:
        """Return the next control frame."""
        return self._controls.popleft() if self._controls else None

    def next_delivery(self, now: float) -> tuple[ConsumedPartition, Entry, Window] | float | None:
        """Take the next window that may be sent.

        None: nothing can be sent until something happens; a number: look again at that time.
        """
        look_at = self._end_waits(now)
        passed = 0
        for consumed in list(self._ready):
            # Out and in again: the partitions take turns.
            del self._ready[consumed]
            if not (consumed.is_its_turn() and consumed.is_open and consumed.flow is self):
                self.credit.note_short(consumed)
                continue
            if consumed.make_letters():
                continue
            book = consumed.book
            again = book.next_again
            offset = book.position if again is None else again
            entry = self._batch_finder.find(consumed, offset)
            while entry is not None:
                left = self.credit.left
                stop = self._reserve_turn(consumed, entry, offset, left)
                if stop <= offset:
                    consumed.end_turn()
                    return None
                if again is None:
                    until = self.credit.wait_for_more(left, stop - offset, now)
                    if until is not None:
                        self._ready[consumed] = None
                        consumed.end_turn()
                        return until
                # In a group of order Key it may be sent for the first time, or has waited.
                may_expire = entry.ttl_ms and (again is None or consumed.lanes is not None)
                if may_expire and self._expiry_check.must_wait(consumed, entry):
                    break
                most = consumed.most_at_once(left, entry.count)
                if again is None:
                    window = book.take(entry, stop, most)
                else:
                    window = book.take_again(stop, most)
                holds = consumed.make_letters()
                if window is not None:
                    self._spend(entry, window, now)
                    waits = consumed.end_turn(has_taken=True)
                    if waits or again is not None or self._batch_finder.is_behind(consumed):
                        self._ready[consumed] = None
                    return consumed, entry, window
                if holds or (again is None and book.position < stop):
                    consumed.end_turn()
                    break  # the span above the cursor is used up, or something holds: they wake it
                passed += 1
                if passed >= PASSED_AT_ONCE:
                    self._ready[consumed] = None
                    return now
                again = book.next_again
                offset = book.position if again is None else again
                entry = self._batch_finder.find(consumed, offset)
        return look_at

    def _reserve_turn(
        self, consumed: ConsumedPartition, entry: Entry, offset: int, left: int
    ) -> int:
        """Return up to where a batch may be sent now; it keeps its turn where that is the offset.

        `left`: of the credit.
        """
        if left <= 0:
            self._ready[consumed] = None
            return offset
        stop = entry.first + entry.count
        if not self.credit.fits(len(entry.data)):
            stop = offset
        elif self.count_fitting is not None:
            stop = min(stop, offset + self.count_fitting(entry, offset, left))
        if stop <= offset:
            # First in turn until it fits: smaller ones would keep its room without end.
            self._ready = {consumed: None, **self._ready}
        return stop

    def _spend(self, entry: Entry, window: Window, now: float) -> None:
        """Count a window that is about to be sent."""
        if not self.credit.unacked:
            self.acked_at = now
        self.credit.spend(window.messages, len(entry.data), now)

    def hold(
        self,
        consumed: ConsumedPartition,
        header: frames.Deliver,
        entry: Entry,
        window: Window,
    ) -> bool:
        """Send a window that was just taken once it is recorded; False: it need not be."""
        audit = consumed.audit
        if audit is None or not (audit.is_on or self.unrecorded.has(consumed.partition)):
            return False
        delivery = UnrecordedDelivery(consumed, header, entry, window)
        self.unrecorded.add(delivery)

        def recorded() -> None:
            self.unrecorded.recorded(delivery)
            self.wake.set()

        audit.note(self.record_of(consumed, header, window), recorded)
        return True

    def record_of(
        self, consumed: ConsumedPartition, header: frames.Deliver, window: Window
    ) -> bytes:
        """Return the audit record of a window that was just taken."""
        return delivered(
            self.group,
            self,
            header.epoch,
            window,
            delivery=header.delivery,
            append_broker_epoch=header.append_broker_epoch,
            is_keyed=consumed.lanes is not None,
            shared_flag=consumed.shared_flag,
        )

    def _end_waits(self, now: float) -> float | None:
        """Let go what has waited enough; return when the next will have, None: nothing waits."""
        look_at: float | None = None
        for consumed in list(self._delayed):
            book = consumed.book
            due = book.next_due
            if due == inf:
                del self._delayed[consumed]
            elif consumed.may_end_waits:  # else the flush wakes it
                if due <= now:
                    book.end_waits(now)
                    self._ready[consumed] = None
                    if consumed.root is not consumed:
                        consumed.has_changed()  # other flows may have the keys
                    due = book.next_due
                if due < inf:
                    look_at = due if look_at is None else min(look_at, due)
        return look_at

    def drop_controls(self) -> None:
        """Forget control frames: a pull tells what is held, not what happened."""
        self._controls.clear()

    def deliver_header(
        self, consumed: ConsumedPartition, entry: Entry, window: Window
    ) -> frames.Deliver:
        """Return the header of a delivery that was just taken."""
        return frames.Deliver(
            *_round(consumed),
            consumed.book.number,
            entry.broker_epoch,
            entry.at_ms,
            entry.first,
            window.start,
            window.stop,
            window.cause,
            window.skip,
            window.redeliveries,
            len(entry.data) if consumed.take_kept(window) else 0,
            entry.producer,
            entry.number,
            window.mask or b"",
            window.causes,
        )


def _round(consumed: ConsumedPartition) -> tuple[int, int, BrokerEpoch, Epoch]:
    """Return what frames about a partition begin with: which one, and under which epochs."""
    return (*consumed.partition, consumed.broker_epoch, consumed.epoch)
