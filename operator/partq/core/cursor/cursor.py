"""What one consumer group has got, and has done with, in one partition.

The book that a broker keeps: cursor, acknowledged ranges above it, the next offset to send, which
offsets are sent again and why. No I/O and no clock; the broker's flows and flushes drive it.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from partq.core.cursor.book import SlottedBatch
from partq.core.cursor.cause_ranges import CauseRanges
from partq.core.cursor.horizon import horizon, is_scattered
from partq.core.cursor.processing_times import MAX_EXTENDED_S, ProcessingTimes, within
from partq.core.cursor.progress import CursorProgress, Range
from partq.core.cursor.redelivery_queue import QueuedOffset, RedeliveryQueue
from partq.core.cursor.windows import TakenBack, Window
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.errors import ConflictError, NotDeliveredError, RewoundError

_COUNTED = frozenset({Cause.FLOW_LOST, Cause.FORCED_COMMIT})
"""Causes of a rewind that may be the fault of the message being processed."""


class GroupCursor(CursorProgress):
    """The book of one group in one partition, for as long as one broker owns it."""

    __slots__ = (
        "_begun",
        "_causes",
        "_delivered",
        "_redeliveries",
        "_releases",
        "in_flight",
        "number",
        "position",
        "unreadable",
        "waiting",
    )

    def __init__(
        self,
        cursor: int,
        acked: Iterable[tuple[int, int]] = (),
        redeliveries: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(cursor, acked)
        self.position = cursor
        """The next offset to send in turn; all below it were sent under the current token."""
        self._delivered = cursor
        """All below may be in the application's hands: `position` before it went back."""
        self.in_flight = 0
        """Messages below `position` that are neither acknowledged nor given back."""
        self.waiting = RedeliveryQueue()
        """What was given back one by one and is sent again; it outlives a token."""
        self.unreadable = Ranges()
        """Undecodable offsets, as far as noticed: no window is sent across one."""
        self._begun = ProcessingTimes()
        self.number = 0
        """Delivery number of the current token."""
        self._releases: list[tuple[int, int]] = []
        """Delivery number and start of each step back that no later one has undercut: both grow."""
        self._causes = CauseRanges()
        self._redeliveries = dict(redeliveries or {})

    @property
    def redeliveries(self) -> dict[int, int]:
        """How often an offset was sent again for a cause that counts, where not 0."""
        return dict(self._redeliveries)

    @property
    def is_scattered(self) -> bool:
        """Whether nothing new is sent before some of what lies between the acks is done."""
        return is_scattered(self.acked, self._redeliveries)

    def newly_acked(self, upto: int, ranges: Iterable[Range]) -> list[Range]:
        """Return what an ack adds to what the group has done with."""
        wanted = Ranges((max(start, self.cursor), stop) for start, stop in ranges)
        for part in self.waiting.outside(self.cursor, upto):
            wanted.add(*part)
        return [part for each in wanted.pairs() for part in self.acked.outside(*each)]

    @property
    def stored_size_bytes(self) -> int:
        """About how many bytes the book has as it is stored."""
        digits = len(str(self.acked.stop or self.position)) + 1
        return 2 * digits * len(self.acked) + (digits + 2) * len(self._redeliveries)

    @property
    def next_due(self) -> float:
        """When the next delay is over; infinity: nothing waits for its time."""
        return self.waiting.next_due

    @property
    def delayed(self) -> int:
        """How many offsets wait for their time."""
        return self.waiting.delayed

    @property
    def next_again(self) -> int | None:
        """The lowest offset that is to be sent out of its turn."""
        return self.waiting.next_again

    @property
    def sent_end(self) -> int:
        """What may have been processed before lies below."""
        return max(self.position, self._delivered, self._causes.stop)

    def exceeding(self, limit: int) -> list[int]:
        """Return the offsets that were sent again more than `limit` times by their own fault."""
        return sorted(offset for offset, count in self._redeliveries.items() if count > limit)

    def mark(self, stop: int, cause: Cause, *, start: int = 0) -> None:
        """Note that all below `stop`, from `start` on, may have been processed before.

        What has a cause elsewhere keeps it: the last event explains the offsets that it concerns.
        """
        self._causes.mark(max(start, self.cursor), stop, cause)

    def redeliveries_after_rewind(self, unsent: Ranges | None = None) -> dict[int, int]:
        """Return the counts that a rewind leaves; they are stored before anything goes out again.

        Only the lowest offset in flight can have been in process when a process died, so no other
        is counted; nor is what was taken and is `unsent`.
        """
        counts, unsent = dict(self._redeliveries), unsent or Ranges()
        lowest = self.acked.end_of_run(self.cursor)
        while lowest in self.waiting or unsent.end_of_run(lowest) > lowest:
            lowest = self.acked.end_of_run(lowest + 1)
        if lowest < self.position:
            counts[lowest] = counts.get(lowest, 0) + 1
        return counts

    def rewind(self, cause: Cause, unsent: Ranges | None = None) -> None:
        """Start a new token at the cursor: what is in flight goes out again, what waits waits on.

        `unsent`: see `redeliveries_after_rewind`.
        """
        if cause in _COUNTED:
            self._redeliveries = self.redeliveries_after_rewind(unsent)
        self.mark(self.position, cause)
        self.position = self._delivered = self.cursor
        self._mark_all(self.waiting.go_back(self.position))
        self.waiting.start_token()
        self._begun = ProcessingTimes()
        self.in_flight = 0
        self.number = 0
        self._releases.clear()

    def moved_to(self, cursor: int) -> "GroupCursor":
        """Return the book of a group that begins again at `cursor`, back or forward.

        Every ack is forgotten, and every message that waits. What may have been processed before,
        and lies ahead now, goes out for the cause `RESET`.
        """
        book = GroupCursor(cursor)
        book.mark(self.sent_end, Cause.RESET)
        return book

    def end_waits(self, now: float) -> None:
        """Let what has waited long enough be sent; its counts are stored."""
        self._mark_all(self.waiting.end_waits(now, self.position))

    def take(self, batch: SlottedBatch, stop: int, credit: int) -> Window | None:
        """Take the next window of a stored batch, below `stop`, which lies in it or is its end.

        `position` must lie in the batch. At most `credit` messages. None when nothing of the
        batch is left to send, or nothing may be sent now; `position` tells which.
        """
        absent = self.acked
        end = min(stop, horizon(self.cursor, self.acked, self._redeliveries))
        if self.waiting:
            held_from, passed = self.waiting.hidden(self.position, end)
            end = min(end, held_from)
            if passed:
                acked = self.acked.within(batch.first, stop)
                absent = Ranges([*acked, *((offset, offset + 1) for offset in passed)])
        begin = absent.end_of_run(self.position)
        if begin >= stop:
            self._move_to(begin)
            return None
        cause = Cause.NONE
        if self._causes.ranges:
            cause, end = self._causes.at(begin, end)
        if self.unreadable and (bad := self.unreadable.within(begin + 1, end)):
            end = bad[0][0]  # what a client skips, it decodes all the same
        if end <= begin or credit <= 0:
            return None
        end = absent.end_of_window(begin, end, credit)
        skip = absent.within(begin, end)
        messages = end - begin - sum(b - a for a, b in skip)
        new_from = max(begin, self._delivered)
        self._move_to(end)
        self.in_flight += messages
        counts = self._counts(begin, end) if self._redeliveries else []
        return Window(begin, end, skip, cause, counts, messages, new_from)

    def take_again(self, stop: int, credit: int) -> Window | None:
        """Take what is to be sent out of turn from `waiting.next_again` on, below `stop`.

        `stop` is the end of the stored batch that holds that offset. At most `credit` messages.
        """
        if credit <= 0:
            return None
        begin, end, cause = self.waiting.take_again(stop, credit, self.position)
        self._begun.resend(begin, end)
        self.in_flight += end - begin
        counts = self._counts(begin, end)
        return Window(begin, end, [], cause, counts, end - begin, end, is_in_turn=False)

    def ack(self, upto: int, ranges: Iterable[tuple[int, int]], number: int) -> int:
        """Acknowledge all below `upto` (-1: none) and `ranges`; return how many were in flight.

        Of what is below `upto`, that is left out which `waiting.outside` leaves out.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: `upto` reaches what was given back since the delivery number it names.
        """
        ranges = list(ranges)
        if number > self.number or (number < self.number and upto > self._released_from(number)):
            raise RewoundError(
                f"cumulative ack under delivery {number}; the current one is {self.number}: "
                "acknowledge what was delivered again"
            )
        if upto > self.position:
            raise self._not_delivered("ack", upto)
        self._check(ranges, "ack")
        return self.discard([*self.waiting.outside(self.cursor, upto), *ranges])

    def discard(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Have done with `ranges`, for whatever reason; return how many were in flight."""
        before = self.in_flight
        # Sorted each is cheap to add; merged no offset is looked at twice.
        for start, stop in Ranges(sorted(ranges)).pairs():
            low = max(start, self.cursor)
            if low < stop:
                self._done(low, stop)
                self.acked.add(low, stop)
        if self.acked:
            self.cursor = self.acked.end_of_run(self.cursor)
            self.acked.drop_below(self.cursor)
            # What was acknowledged under an older token is not sent again, nor looked at.
            self._move_to(max(self.position, self.cursor))
        if self.unreadable:
            self.unreadable.drop_below(self.cursor)
        while len(self._releases) > 1 and self._releases[1][1] <= self.cursor:
            del self._releases[0]
        if self._causes.ranges:
            self._causes.drop_below(self.cursor)
        return before - self.in_flight

    def pass_over(self, start: int, stop: int) -> list[Range]:
        """Send nothing of [start, stop), none of which is in flight; return what was not done."""
        self.unreadable.add(start, stop)
        parts = self.undone(start, stop)
        for part in parts:
            self.waiting.hide(*part)
        return parts

    def release(self, start: int, number: int) -> int:
        """Take back all from `start` on, none of which was begun; return how many messages.

        Raises:
            NotDeliveredError, RewoundError: see `Book.release`.
        """
        if 0 <= number < self.number and start >= self._released_from(number):
            return 0  # it has crossed a step back that took all of it already
        if number != self.number:
            raise RewoundError(f"release under delivery {number}; the current one is {self.number}")
        start = max(start, self.cursor)
        if start > self.position:
            raise NotDeliveredError(f"release from {start}; delivered up to {self.position}")
        released = self._open_in(start, self.position)
        if released:
            self._go_back(start)
            self._delivered = start
        return released

    def nack(
        self,
        ranges: Iterable[tuple[int, int]],
        number: int,
        *,
        now: float,
        delay_s: Callable[[int], float],
        is_free: bool,
        begun: int | None = None,
        counts: bool = True,
    ) -> TakenBack:
        """Take back `ranges`, whose messages could not be processed.

        Each counts, and waits as long as `delay_s` says of its count. What was acknowledged, given
        back already or delivered again since is left alone. Unless `is_free`, all from the lowest
        on is sent again, and waits for it; what nobody has begun of that, because it lies above
        these and from `begun` on, has no new cause. None: all may have begun. Without `counts` none
        of them counts: another message was at fault.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: the delivery number does not belong to the token.
        """
        ranges = sorted(ranges)
        if not 0 <= number <= self.number:
            raise RewoundError(f"nack under delivery {number}; the current one is {self.number}")
        self._check(ranges, "nack")
        anew_from = self._released_from(number) if number < self.number else self.position
        offsets = dict.fromkeys(
            offset
            for start, stop in Ranges(ranges).pairs()
            for offset in range(max(start, self.cursor), stop)
            if self._is_open(offset) and not anew_from <= offset < self.position
            if not self.waiting.was_given_back(offset, number)
        )
        return self._take_back(
            offsets, now, delay_s, Cause.NACK, is_free=is_free, begun=begun, counts=counts
        )

    def not_done(self, ranges: Iterable[tuple[int, int]], number: int, *, most: int) -> list[int]:
        """Return the offsets of `ranges` that the group has not done with, at most `most`.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: the delivery number does not belong to the token.
        """
        ranges = sorted(ranges)
        if not 0 <= number <= self.number:
            raise RewoundError(
                f"dead letter under delivery {number}; the current one is {self.number}"
            )
        self._check(ranges, "dead letter")
        found = (
            offset
            for start, stop in Ranges(ranges).pairs()
            for offset in range(max(start, self.cursor), stop)
            if not self.is_done(offset)
        )
        return list(islice(found, most))

    def begin(self, ranges: Iterable[tuple[int, int]], number: int, now: float) -> None:
        """Note that the application has begun `ranges`; what was not delivered is left out."""
        stop_at = self.position
        if number < self.number:
            stop_at = min(stop_at, self._released_from(number))
        self._begun.drop_below(self.cursor)
        for start, stop in Ranges(sorted(ranges)).within(self.cursor, stop_at):
            self._begun.report(start, stop, now)

    def extend(self, ranges: Iterable[tuple[int, int]], number: int, now: float) -> None:
        """Let the time for the acks of `ranges` start again, from `now` on.

        What the group has done with is left out, and all that is in process is extended in any
        case.

        Raises:
            NotDeliveredError: an offset was not delivered under the current token.
            RewoundError: one was taken back, and is redelivered; or the delivery number does not
                belong to the token.
            ConflictError: one was begun too long ago to be extended again.
        """
        ranges = sorted(ranges)
        if not 0 <= number <= self.number:
            raise RewoundError(
                f"in progress under delivery {number}; the current one is {self.number}"
            )
        self._check(ranges, "in progress")
        stop_at = self._released_from(number) if number < self.number else self.position
        offsets = [
            offset
            for start, stop in Ranges(ranges).pairs()
            for offset in range(max(start, self.cursor), stop)
            if not self.is_done(offset)
        ]
        taken_back = [
            offset
            for offset in offsets
            if offset >= stop_at
            or offset in self.waiting
            or self.waiting.was_given_back(offset, number)
        ]
        gone = set(taken_back)
        self._begun.drop_below(self.cursor)
        late = self._begun.extend([offset for offset in offsets if offset not in gone], now)
        if taken_back:
            raise RewoundError(
                f"in progress: offset {taken_back[0]} was taken back, and is redelivered: stop "
                "working on it"
            )
        if late:
            raise ConflictError(
                f"in progress: offset {late[0]} was begun more than {MAX_EXTENDED_S / 3600:g} h "
                "ago, and its time is not extended any more: acknowledge it, or give it back"
            )

    def time_out(
        self, since: float, *, now: float, delay_s: Callable[[int], float], is_free: bool
    ) -> TakenBack:
        """Take back, as `nack`, what the application began at `since` or before."""
        self._begun.drop_below(self.cursor)
        offsets = [offset for offset in self._begun.expire(since) if self._is_open(offset)]
        return self._take_back(offsets, now, delay_s, Cause.ACK_TIMEOUT, is_free=is_free)

    def _take_back(
        self,
        offsets: Collection[int],
        now: float,
        delay_s: Callable[[int], float],
        cause: Cause,
        *,
        is_free: bool,
        begun: int | None = None,
        counts: bool = True,
    ) -> TakenBack:
        before = self.in_flight
        for offset in offsets:
            count = self._redeliveries.get(offset, 0) + 1
            if counts:
                self._redeliveries[offset] = count
            if offset < self.position:
                self.in_flight -= 1
                self._begun.forget(offset)
            after = self.number + (offset < self.position and not is_free)
            self.waiting.add(
                offset, QueuedOffset(now + delay_s(count), cause, holds=not is_free), after
            )
        lowest = min(offsets, default=self.position)
        if is_free or lowest >= self.position:
            return TakenBack(len(offsets), before - self.in_flight, None, offsets)
        begun = self.position if begun is None else max(begun, max(offsets) + 1)
        begun = min(begun, self.position)
        sent = self.position
        self.mark(begun, cause, start=lowest)
        self._go_back(lowest)
        return TakenBack(len(offsets), before - self.in_flight, lowest, offsets, begun, sent)

    def _go_back(self, start: int) -> None:
        """Send everything from `start` on again, under the next delivery number."""
        self.in_flight -= self._open_in(start, self.position)
        self.position = start
        self._mark_all(self.waiting.go_back(start))
        self._begun.go_back(start)
        while self._releases and self._releases[-1][1] >= start:
            self._releases.pop()
        self._releases.append((self.number, start))
        self.number += 1

    def _mark_all(self, causes: Iterable[tuple[int, Cause]]) -> None:
        for offset, cause in causes:
            self.mark(offset + 1, cause, start=offset)

    def _move_to(self, position: int) -> None:
        self.position = position
        self._delivered = max(self._delivered, position)

    def _is_open(self, offset: int) -> bool:
        """Whether a delivered offset is neither acknowledged nor given back."""
        return self.acked.end_of_run(offset) == offset and offset not in self.waiting

    def _open_in(self, start: int, stop: int) -> int:
        """Count the offsets of [start, stop), from the cursor on, that are in flight if sent."""
        count = stop - start - self.acked.count(start, stop)
        return count - self.waiting.count(start, stop) if self.waiting else count

    def _counts(self, start: int, stop: int) -> list[tuple[int, int]]:
        return sorted((o, self._redeliveries[o]) for o in within(self._redeliveries, start, stop))

    def _check(self, ranges: Sequence[tuple[int, int]], what: str) -> None:
        for start, stop in ranges:
            if not 0 <= start < stop <= self._delivered:
                raise self._not_delivered(what, stop)

    def _not_delivered(self, what: str, upto: int) -> NotDeliveredError:
        return NotDeliveredError(
            f"{what} up to {upto}; delivered up to {self._delivered}: nothing was changed"
        )

    def was_rewound(self, stop: int, number: int) -> bool:
        """Whether part of a window up to `stop`, of delivery `number`, is sent again later."""
        return number < self.number and stop > self._released_from(number)

    def _released_from(self, number: int) -> int:
        """Return the first offset that was released since an older delivery number."""
        at = bisect_left(self._releases, (number, 0))
        start = self._releases[at][1] if self._releases else 0
        return max(start, self.cursor)

    def _done(self, start: int, stop: int) -> None:
        """Forget all about [start, stop), which is about to be acknowledged."""
        sent = min(stop, self.position)
        if start < sent:
            self.in_flight -= self._open_in(start, sent)
        self.waiting.discard(start, stop)
        if self._redeliveries:
            for offset in within(self._redeliveries, start, stop):
                del self._redeliveries[offset]
