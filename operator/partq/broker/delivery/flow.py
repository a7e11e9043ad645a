"""One bound connection of a member, and what is sent over it."""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from partq.broker.delivery.pending_deliveries import PendingDeliveries, PendingDelivery
from partq.broker.partition.audit_buffer import delivered
from partq.broker.partition.group_partition import ConsumedPartition
from partq.core.cursor.windows import Window
from partq.core.model import Cause, MemberId, PartitionId
from partq.core.ranges import Ranges
from partq.errors import ForbiddenError
from partq.store.records.log import Entry
from partq.wire import frames

MAX_CREDIT = 10_000_000
PASSED_AT_ONCE = 1000
"""Batches of which nothing is left to send are passed over; after so many others get their turn."""
PARTIAL_WINDOW_WAIT_S = 0.02
"""How long a small rest of credit waits to become more before a batch is cut for it."""


class BatchFinder(Protocol):
    """Finds stored batches for a flow."""

    def find(self, subscription: ConsumedPartition, offset: int) -> Entry | None:
        """Return the batch that holds an offset; None: beyond the end, or being read."""

    def is_behind(self, subscription: ConsumedPartition) -> bool:
        """Whether messages wait beyond the book's position."""

    def forget(self, subscription: ConsumedPartition) -> None:
        """Let go what was read for a flow that has lost the partition."""


class ExpiryCheck(Protocol):
    """Judges the age of batches that have a time to live."""

    def must_wait(self, subscription: ConsumedPartition, entry: Entry) -> bool:
        """End what is too old of a batch; return whether nothing may be sent until a notice."""


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
        max_unacked: Callable[[], int],
        reader: BatchFinder,
        judge: ExpiryCheck,
        now: float,
    ) -> None:
        self.number = number
        self.group = group
        self.member = member
        self.incarnation = incarnation
        self.address = address
        self.kind = kind
        self.bound_at = now
        self.last_seen = now
        self.acked_at = now
        """When an ack last counted for something, or could: with nothing unacknowledged."""
        self.is_known_stuck = False
        """Whether it was told that the limit of unacknowledged messages holds it up."""
        self.is_leaving = False
        self.is_closed = False
        self.credit = credit
        self.out_bytes = 0
        """Of the batches that were sent and that the client has not handed out or dropped."""
        self.unacked = 0
        self.subscriptions: dict[ConsumedPartition, None] = {}
        self.wake = asyncio.Event()
        self.on_closed: Callable[[], None] | None = None
        """Called by the holder of the connection when the flow ends from this side."""
        self.fits: Callable[[Entry, int, int], int] | None = None
        """Says how many messages of a batch, from an offset on, its client can take now; at most
        the last argument. None: as many as its credit allows."""
        # A batch is sent again for each part of it, so a flow waits for credit worth a part. A
        # pull sends no batches.
        full_credit = min(credit, max_unacked())
        self._small_credit = full_credit // 4 if kind == "flow" else 0
        self._credit_bytes = credit_bytes
        self._max_unacked = max_unacked
        self._reader = reader
        self._judge = judge
        self._controls: deque[bytes] = deque()
        self.held = PendingDeliveries()
        """Frames that wait for their audit record."""
        self.look = asyncio.Lock()
        """Held while the broker looks into a batch that this client could not decode."""
        self._ready: dict[ConsumedPartition, None] = {}
        self._delayed: dict[ConsumedPartition, None] = {}
        """Partitions with messages that wait to be sent again."""
        self._partial_at = 0.0

    # ---- what happens to it ---------------------------------------------------------------------

    def check_address(self, address: str) -> None:
        """Let the member's own pod alone speak for it.

        Raises:
            ForbiddenError: the flow is bound from another address.
        """
        if self.address != address:
            raise ForbiddenError(
                f"member {self.member[:80]} of {self.group} is bound from {self.address}, the "
                f"call comes from {address}, expected its own pod's: only that one may speak for it"
            )

    def attach(self, subscription: ConsumedPartition) -> None:
        """Begin to deliver a partition; its epoch is the new one already."""
        subscription.flow = self
        subscription.incarnation = self.incarnation
        self.subscriptions[subscription] = None
        self._send_behind(
            subscription,
            frames.Assigned(
                *subscription.partition,
                subscription.broker_epoch,
                subscription.epoch,
                subscription.book.cursor,
            ),
        )
        if subscription.pause is not None:
            # A pause survives a re-bind.
            self.send_paused(subscription)
        self.watch(subscription)

    def unsent(self, partition: PartitionId) -> Ranges:
        """Return the offsets of deliveries that wait for their audit record: no client has them."""
        return self.held.unsent(partition)

    def forget(self, subscription: ConsumedPartition, cause: Cause) -> None:
        """Stop delivering a partition; the client is told why."""
        self.subscriptions.pop(subscription, None)
        self._ready.pop(subscription, None)
        self._delayed.pop(subscription, None)
        self._reader.forget(subscription)
        self.unacked -= subscription.book.in_flight
        messages, size, waiting = self.held.forget(subscription.partition)
        self.credit += messages  # the client never hears of them
        self.out_bytes -= size
        self._controls.extend(waiting)
        self.send(
            frames.Revoked(
                *subscription.partition, subscription.broker_epoch, subscription.epoch, cause
            )
        )
        if cause is Cause.BROKER_CHANGE:
            self.send(frames.Moved(*subscription.partition, "", ""))

    def send(self, frame: frames.Frame) -> None:
        """Queue a control frame."""
        if not self.is_closed:
            self._controls.append(frames.encode(frame))
            self.wake.set()

    def _send_behind(self, subscription: ConsumedPartition, frame: frames.Frame) -> None:
        """Queue a control frame behind the deliveries of its partition that are not sent yet."""
        if self.is_closed or not self.held.follow(subscription.partition, frames.encode(frame)):
            self.send(frame)

    def send_paused(self, subscription: ConsumedPartition) -> None:
        """Tell the client that nothing new comes, and ask it to release what it can."""
        self._send_behind(
            subscription,
            frames.Paused(*subscription.partition, subscription.broker_epoch, subscription.epoch),
        )

    def send_resumed(self, subscription: ConsumedPartition) -> None:
        """Tell the client that a pause is over without a handoff."""
        self._send_behind(
            subscription,
            frames.Resumed(*subscription.partition, subscription.broker_epoch, subscription.epoch),
        )

    def send_rewound(self, subscription: ConsumedPartition, start: int, cause: Cause) -> None:
        """Tell the client that all from `start` on is redelivered, under the book's number."""
        self._send_behind(
            subscription,
            frames.Rewound(
                *subscription.partition,
                subscription.broker_epoch,
                subscription.epoch,
                subscription.book.number,
                start,
                cause,
            ),
        )

    def notice(self, subscription: ConsumedPartition) -> None:
        """Look at a partition again: it may have something to send."""
        if subscription.flow is self and not self.is_closed:
            self._ready[subscription] = None
            self.wake.set()

    def watch(self, subscription: ConsumedPartition) -> None:
        """Look at a partition again: now, and when what waits in its book has waited enough."""
        if subscription.book.waiting:
            self._delayed[subscription] = None
        self.notice(subscription)

    def close(self) -> None:
        """End for good; the partitions are taken away already."""
        self.is_closed = True
        self.wake.set()
        if self.on_closed is not None:
            self.on_closed()

    def notice_all(self) -> None:
        """Look at every partition again."""
        for subscription in self.subscriptions:
            self._ready[subscription] = None
        self.wake.set()

    # ---- what it sends --------------------------------------------------------------------------

    @property
    def is_at_limit(self) -> bool:
        """Whether the client has room, and the limit of unacknowledged messages leaves none."""
        return self.credit > 0 and self.unacked >= self._max_unacked()

    @property
    def scattered(self) -> PartitionId | None:
        """A partition whose acks lie in too many pieces, so that nothing new of it is sent."""
        return next((s.partition for s in self.subscriptions if s.book.is_scattered), None)

    def take_credit(self, messages: int, size_bytes: int) -> None:
        """Take room that the client has again."""
        self.credit = min(self.credit + messages, MAX_CREDIT)
        self.out_bytes = max(0, self.out_bytes - size_bytes)
        self.notice_all()

    @property
    def control_count(self) -> int:
        """How many control frames wait to be sent."""
        return len(self._controls)

    def next_control(self) -> bytes | None:
        """Return the next control frame."""
        return self._controls.popleft() if self._controls else None

    def next_delivery(self, now: float) -> tuple[ConsumedPartition, Entry, Window] | float | None:
        """Take the next window that may be sent.

        None: nothing can be sent until something happens; a number: look again at that time.
        """
        look_at = self._end_waits(now)
        passed = 0
        for subscription in list(self._ready):
            # Out and in again: the partitions take turns.
            del self._ready[subscription]
            if not subscription.is_open or subscription.flow is not self:
                continue
            book = subscription.book
            again = book.waiting.next_again
            offset = book.position if again is None else again
            entry = self._reader.find(subscription, offset)
            while entry is not None:
                credit = min(self.credit, self._max_unacked() - self.unacked)
                stop = entry.first + entry.count
                if credit <= 0:
                    self._ready[subscription] = None
                    return None
                if not self._has_room(len(entry.data)):
                    # First in turn until it fits: smaller ones would keep its room without end.
                    self._ready = {subscription: None, **self._ready}
                    return None
                if self.fits is not None:
                    stop = min(stop, offset + self.fits(entry, offset, credit))
                    if stop <= offset:
                        self._ready = {subscription: None, **self._ready}
                        return None
                # Cutting a batch sends its bytes again for the rest: wait a little for more.
                is_small = again is None and credit < min(stop - offset, self._small_credit)
                if is_small and self.unacked and now < self._partial_at:
                    self._ready[subscription] = None
                    return self._partial_at
                if again is not None:
                    window = book.take_again(stop, credit)
                elif entry.ttl_ms and self._judge.must_wait(subscription, entry):
                    break
                else:
                    window = book.take(entry.first, stop, credit)
                if window is not None:
                    self._partial_at = now + PARTIAL_WINDOW_WAIT_S
                    if not self.unacked:
                        self.acked_at = now
                    self.credit -= window.messages
                    self.unacked += window.messages
                    self.out_bytes += len(entry.data)
                    if again is not None or self._reader.is_behind(subscription):
                        self._ready[subscription] = None
                    return subscription, entry, window
                if book.position < stop:
                    break  # the span above the cursor is used up, or something holds: they wake it
                passed += 1
                if passed >= PASSED_AT_ONCE:
                    self._ready[subscription] = None
                    return now
                offset = book.position
                entry = self._reader.find(subscription, offset)
        return look_at

    def _has_room(self, size_bytes: int) -> bool:
        """Whether the client has room for a batch; for one it always has."""
        if not self._credit_bytes or not self.out_bytes:
            return True
        return self.out_bytes + size_bytes <= self._credit_bytes

    def hold(
        self,
        subscription: ConsumedPartition,
        header: frames.Deliver,
        entry: Entry,
        window: Window,
    ) -> bool:
        """Send a window that was just taken once it is recorded; False: it need not be."""
        audit = subscription.audit
        if audit is None or not (audit.is_on or self.held.holds(subscription.partition)):
            return False
        held = PendingDelivery(subscription, header, entry, window.messages, window.new_from)
        self.held.hold(held)

        def told() -> None:
            self.held.recorded(held)
            self.wake.set()

        audit.note(self.record_of(header, window), told)
        return True

    def record_of(self, header: frames.Deliver, window: Window) -> bytes:
        """Return the audit record of a window that was just taken."""
        return delivered(
            self.group,
            self,
            header.epoch,
            window,
            delivery=header.delivery,
            append_broker_epoch=header.append_broker_epoch,
        )

    def _end_waits(self, now: float) -> float | None:
        """Let go what has waited enough; return when the next will have, None: nothing waits."""
        look_at: float | None = None
        for subscription in list(self._delayed):
            book = subscription.book
            if not book.waiting:
                del self._delayed[subscription]
            elif subscription.counts_stored == subscription.counts:  # else the flush wakes it
                if book.waiting.next_due <= now:
                    book.end_waits(now)
                    self._ready[subscription] = None
                due = book.waiting.next_due
                if due < inf:
                    look_at = due if look_at is None else min(look_at, due)
        return look_at

    def drop_controls(self) -> None:
        """Forget control frames: a pull tells what is held, not what happened."""
        self._controls.clear()

    def deliver_header(
        self, subscription: ConsumedPartition, entry: Entry, window: Window
    ) -> frames.Deliver:
        """Return the header of a delivery that was just taken."""
        return frames.Deliver(
            *subscription.partition,
            subscription.broker_epoch,
            subscription.epoch,
            subscription.book.number,
            entry.broker_epoch,
            entry.at_ms,
            entry.first,
            window.start,
            window.stop,
            window.cause,
            window.skip,
            window.redeliveries,
            len(entry.data) if subscription.take_kept(window) else 0,
        )
