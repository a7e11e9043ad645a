"""The book of one group in one partition whose nacked messages hold up their lane alone.

A lane is a slot: the messages of one key are all in one. A message is sent once it is the lowest of
its lane that is neither delivered nor done, and while nothing blocks the lane:

- *parked*: a message of it was given back, and its delay is not over;
- *owed*: its member was asked to return what it has not begun, and has not answered;
- *uncounted*: a redelivery count of it is not stored;
- *doomed*: a message of it is to become a dead letter, and is not stored as one;
- *tried*: a message of it that was given back is in the member's hands again. Were the rest sent
  with it, all of it would be asked back at each failure.

No I/O and no clock. There is no step back: the delivery number is always 0.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from partq.core.cursor.processing_times import MAX_EXTENDED_S, ProcessingTimes, within
from partq.core.cursor.progress import Range
from partq.core.cursor.windows import TakenBack
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.lane_sender import LaneSender
from partq.core.lanes.span import ACKED, ASIDE, HELD, OPEN
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.errors import BadRequestError, ConflictError, NotDeliveredError, RewoundError

_COUNTED = frozenset({Cause.FLOW_LOST, Cause.FORCED_COMMIT})
"""Causes of a rewind that may be the fault of the message being processed."""
DEFAULT_MAX_SPAN = 20_000
DEFAULT_MAX_PARKED = 1024


class LaneBook(LaneSender):
    """The book of one group in one partition, for as long as one broker owns it."""

    __slots__ = ()

    def __init__(
        self,
        cursor: int,
        acked: Iterable[Range] = (),
        redeliveries: Mapping[int, int] | None = None,
        *,
        parked: Mapping[int, float] | None = None,
        quarantined: Collection[int] = (),
        max_span: int = DEFAULT_MAX_SPAN,
        max_parked: int = DEFAULT_MAX_PARKED,
    ) -> None:
        """Start from a record; `parked`: lane → until when, on the caller's clock.

        Infinity: until it is released; those that are `quarantined` make dead letters.
        `max_span`: offsets above the cursor that may be delivered; `max_parked`: lanes that may
        wait for their time while new messages are sent.
        """
        record = LaneRecord(
            cursor,
            redeliveries,
            parked=parked,
            quarantined=quarantined,
            max_span=max_span,
            max_parked=max_parked,
        )
        super().__init__(record, HELD)
        record.shares[HELD] = self
        for start, stop in acked:
            self.discard([(start, stop)])

    @property
    def number(self) -> int:
        """Delivery number: 0, as there is no step back, unless there are several shares."""
        return self._record.number

    # ---- what comes back ------------------------------------------------------------------------

    def ack(self, upto: int, ranges: Iterable[Range], number: int) -> int:
        """Acknowledge what the member has of `ranges`; return how many were in flight.

        Raises:
            BadRequestError: `upto` is not -1; nothing was changed.
            RewoundError: no delivery had that `number`; nothing was changed.
            NotDeliveredError: the member does not have all of it, or has it under a later number;
                the rest is acknowledged.
        """
        if upto >= 0:
            raise BadRequestError(
                f"cumulative ack up to {upto}; a group of order Key takes acks of single messages "
                "and ranges: acknowledge each message"
            )
        self._check_number("ack", number)
        span, record, before, lent = self._span, self._record, self.in_flight, list[int]()
        asked = [*ranges]
        ranges, missing = self._sent_since(number, asked)
        draining = set[int]()
        for start, stop in ranges:
            low = max(start, self.cursor)
            if low >= stop:
                continue
            acked = span.change(self._share, ACKED, low, stop)
            self._in_flight -= acked
            record.end_trials(low, stop)
            if acked < stop - low:
                late = self._lent_in(low, stop)
                lent += late
                missing += stop - low - span.count(ACKED, low, stop) - len(late)
            if self._redeliveries:
                self._forget_counts(low, stop)
            if record.blocked.draining:
                draining |= span.lanes_in(low, stop)
        acked = before - self.in_flight
        record.end_drains(draining)
        self._move_cursor()
        for offset in sorted(lent):
            if self._counts_late(offset):
                self.discard([(offset, offset + 1)])
            else:
                missing += 1
        if missing > 0:
            has_others = missing < sum(stop - start for start, stop in asked)
            rest = "the others are acknowledged" if has_others else "none is acknowledged by this"
            raise NotDeliveredError(
                f"ack: {missing} of the messages are not delivered to this member, or were taken "
                f"back since; {rest}"
            )
        return acked

    def _move_cursor(self) -> None:
        cursor = self._span.end_of_acked(self.cursor)
        if cursor != self.cursor:
            self._record.move_cursor(cursor)

    def discard(self, ranges: Iterable[Range]) -> int:
        """Have done with `ranges`, for whatever reason; return how many were in flight.

        A lane goes on that waits for what is done now, unless it has to be released. What lies
        beyond `reach` is left as it is, unless all below it is done.
        """
        record, ended, given_back, draining = self._record, 0, set[int](), set[int]()
        for start, stop in Ranges(sorted(ranges)).pairs():
            low = max(start, self.cursor)
            high = stop if low == self.cursor else min(stop, self.reach)
            if low >= high:
                continue
            given_back |= self._parked_in(low, high)
            known = min(high, self._span.end) if low == self.cursor else high
            self._span.extend(known)
            ended += sum(share.lose(low, known) for share in record.shares.values())
            if record.blocked.draining:
                draining |= self._span.lanes_in(low, known)
            if low < known:
                self._span.set(low, known, ACKED)
            for offset in within(self._redeliveries, low, high):
                del self._redeliveries[offset]
            record.end_trials(low, high)
            if known < high:
                record.move_cursor(high)
            self._move_cursor()
        record.end_drains(draining)
        if given_back:
            record.go_on(self._blocked.unpark(given_back - self._failed_of(given_back)))
        return ended

    def lose(self, start: int, stop: int) -> int:
        """Have nothing of [start, stop) in flight any more; return how many messages were."""
        held = self._span.count(self._share, start, stop)
        self._in_flight -= held
        self._end_loans(self._lent_in(start, stop))
        return held

    def _parked_in(self, start: int, stop: int) -> set[int]:
        """Return the parked lanes whose message in [start, stop) has failed, and is open."""
        if not self._blocked.parked or not self._redeliveries:
            return set()
        return {
            lane
            for offset in within(self._redeliveries, start, stop)
            if (lane := self._span.lane(offset)) in self._blocked.parked
            and not self._blocked.parked.is_held(lane)
            and self._span.state(offset) == OPEN
        }

    def _failed_of(self, lanes: set[int]) -> set[int]:
        """Return those of some lanes that have a message with a count which is not done."""
        span = self._span
        left = [
            o
            for state in (OPEN, *self._record.shares)
            for o in span.of_lanes(lanes, state, self.cursor, span.read_end)
        ]
        return {span.lane(offset) for offset in left if offset in self._redeliveries}

    def pass_over(self, start: int, stop: int) -> list[Range]:
        """Send nothing of [start, stop), and let nothing wait for it, until it is discarded.

        None of it is in flight. Returns the parts that the group had not done with.
        """
        self._unreadable.add(start, stop)
        parts = self.undone(start, stop)
        if self._record.is_shared:
            # What others have in flight they give back themselves.
            held = Ranges(
                part
                for share in self._record.shares
                for part in self._span.runs(share, max(start, self.cursor), stop)
            )
            parts = [rest for part in parts for rest in held.outside(*part)]
        self._span.extend(stop)
        for part in parts:
            self._span.change(OPEN, ASIDE, *part)
        self._end_loans(within(self._lent, start, stop))
        return parts

    def release(self, start: int, number: int) -> int:
        """Take back all from `start` on, none of which was begun; return how many messages.

        Raises:
            NotDeliveredError: `start` lies beyond what was delivered.
            RewoundError: the delivery number is not 0.
        """
        self._check_number("release", number)
        if start > self._sent_top:
            raise NotDeliveredError(f"release from {start}; delivered up to {self._sent_top}")
        return self._open([(start, self._sent_top)])

    def join_notices(self, lanes: Collection[int]) -> int:
        """Have one notice ask for lanes whose own notices were not sent; return its number.

        All of them are owed.
        """
        return self._owed.join(lanes)

    def ask_back(self) -> int:
        """Note that the member is asked for all that it has not begun; return the notice's number.

        Nothing is sent before the answer.
        """
        return self._owed.ask_all()

    def returned(self, ranges: Iterable[Range], notice: int) -> int:
        """Take back what the member has not begun, as it was asked; return how many messages.

        They have no new cause, and do not count. What it does not have is left alone. A notice
        that is not open any more ends nothing.
        """
        blocked = self._blocked.lanes
        self.go_on([lane for lane in self._owed.answered(notice) if lane not in blocked])
        return self._open(ranges)

    def _open(self, ranges: Iterable[Range]) -> int:
        """Take back, without a cause, what the member has of ranges."""
        before = self.in_flight
        opened: list[int] = []
        for start, stop in ranges:
            low = max(start, self.cursor)
            for part in self._span.runs(self._share, low, stop):
                opened += range(*part)
            self._in_flight -= self._span.change(self._share, OPEN, low, stop)
            self._record.end_trials(low, stop)
        self._record.reopen(opened)
        self._note_opened(opened)
        if self._blocked.draining:
            self._record.end_drains({self._span.lane(offset) for offset in opened})
        return before - self.in_flight

    def nack(
        self,
        ranges: Iterable[Range],
        number: int,
        *,
        now: float,
        delay_s: Callable[[int], float],
        is_free: bool = False,
        begun: int | None = None,
        counts: bool = True,
    ) -> TakenBack:
        """Take back what the member has of `ranges`: it could not be processed.

        Each counts, unless not `counts`; its lane waits as long as `delay_s` says of its count, and
        the member is asked for what it has not begun of the lane. `is_free` and `begun` say nothing
        here.

        Raises:
            NotDeliveredError: an offset was never delivered; nothing was changed.
            RewoundError: the delivery number is not 0; nothing was changed.
        """
        del is_free, begun
        ranges, _ = self._sent_since(number, ranges)
        offsets = self._checked("nack", ranges, number)
        held = [offset for offset in offsets if self._span.state(offset) == self._share]
        return self._take_back(held, now, delay_s, Cause.NACK, counts=counts)

    def not_done(self, ranges: Iterable[Range], number: int, *, most: int) -> list[int]:
        """Return the offsets of `ranges` that the group has not done with, at most `most`.

        Raises:
            NotDeliveredError: the member does not have all of them.
            RewoundError: the delivery number is not 0.
        """
        offsets = self._checked("dead letter", ranges, number)
        undone = [offset for offset in offsets if not self.is_done(offset)]
        for offset in undone:
            if self._span.state(offset) != self._share and not self._lent_in(offset, offset + 1):
                raise NotDeliveredError(
                    f"dead letter: offset {offset} is not delivered to this member, or was taken "
                    "back since: nothing was changed"
                )
        return undone[:most]

    def begin(self, ranges: Iterable[Range], number: int, now: float) -> None:
        """Note that the application has begun `ranges`; what was not delivered is left out."""
        if not 0 <= number <= self.number:
            return
        self._begun.drop_below(self.cursor)
        ranges, _ = self._sent_since(number, ranges)
        for start, stop in Ranges(sorted(ranges)).within(self.cursor, self._sent_top):
            self._begun.report(start, stop, now)

    def extend(self, ranges: Iterable[Range], number: int, now: float) -> None:
        """Let the time for the acks of `ranges` start again, from `now` on.

        Raises:
            NotDeliveredError: an offset was never delivered; nothing was changed.
            RewoundError: one was taken back, the others are extended; or the delivery number is
                not 0.
            ConflictError: one was begun too long ago to be extended again.
        """
        ranges, late_copies = self._sent_since(number, ranges)
        offsets = self._checked("in progress", ranges, number)
        state = self._span.state
        self._begun.drop_below(self.cursor)
        late = self._begun.extend(
            [offset for offset in offsets if state(offset) == self._share], now
        )
        gone = next((offset for offset in offsets if state(offset) in (OPEN, ASIDE)), None)
        if gone is not None:
            raise RewoundError(
                f"in progress: offset {gone} was taken back, and is redelivered: stop working on it"
            )
        if late_copies:
            raise RewoundError(
                f"in progress: {late_copies} of the messages were taken back, and are redelivered: "
                "stop working on them"
            )
        if late:
            raise ConflictError(
                f"in progress: offset {late[0]} was begun more than {MAX_EXTENDED_S / 3600:g} h "
                "ago, and its time is not extended any more: acknowledge it, or give it back"
            )

    def time_out(
        self, since: float, *, now: float, delay_s: Callable[[int], float], is_free: bool = False
    ) -> TakenBack:
        """Take back, as `nack`, what the application began at `since` or before.

        Its ack still counts, until the message is sent again.
        """
        del is_free
        self._begun.drop_below(self.cursor)
        offsets = [o for o in self._begun.expire(since) if self._span.state(o) == self._share]
        taken = self._take_back(offsets, now, delay_s, Cause.ACK_TIMEOUT)
        self._lent.update(dict.fromkeys(offsets, self._share))
        return taken

    def _take_back(
        self,
        offsets: Sequence[int],
        now: float,
        delay_s: Callable[[int], float],
        cause: Cause,
        *,
        counts: bool = True,
    ) -> TakenBack:
        if not offsets:
            return TakenBack(0, 0, None, offsets)
        span, waits = self._span, dict[int, float]()
        for offset in offsets:
            times = self._redeliveries.get(offset, 0) + 1
            if counts:
                self._redeliveries[offset] = times
            span.set(offset, offset + 1, OPEN)
            span.mark(offset, offset + 1, cause)
            self._begun.forget(offset)
            self._blocked.end_trials([offset])  # it waits for its time from now on
            lane = self._span.lane(offset)
            waits[lane] = max(waits.get(lane, 0.0), now + delay_s(times))
        self._in_flight -= len(offsets)
        self._record.recall(offsets)
        for lane, due in waits.items():
            self._blocked.park(lane, due)
        if not all(map(self._has, waits)):
            self._record.has_news = True  # the share that has the lane now is to know its time
        self._note_opened(offsets)
        if counts:
            self._blocked.count(waits)
        held = span.of_lanes(waits, self._share, self.cursor, span.read_end)
        asked = self._owed.ask({self._span.lane(offset) for offset in held})
        self._record.end_drains(waits)
        return TakenBack(
            len(offsets),
            len(offsets),
            None,
            offsets,
            asked=asked,
            notice=self._owed.last_notice if asked else 0,
        )

    def _checked(self, what: str, ranges: Iterable[Range], number: int) -> list[int]:
        """Return the offsets of ranges from the cursor on."""
        self._check_number(what, number)
        ranges = sorted(ranges)
        for start, stop in ranges:
            if not 0 <= start < stop <= self._sent_top:
                raise NotDeliveredError(
                    f"{what} up to {stop}; delivered up to {self._sent_top}: nothing was changed"
                )
        return [
            offset
            for start, stop in Ranges(ranges).pairs()
            for offset in range(max(start, self.cursor), stop)
        ]

    def _check_number(self, what: str, number: int) -> None:
        if not 0 <= number <= self.number:
            known = f"0 to {self.number}" if self.number else "only 0"
            raise RewoundError(f"{what} under delivery {number}; a group of order Key has {known}")

    def was_rewound(self, stop: int, number: int) -> bool:
        """Whether a window is redelivered under a later number: there are no later ones."""
        del stop
        return number < 0

    # ---- changes of the token -------------------------------------------------------------------

    def redeliveries_after_rewind(self, unsent: Ranges | None = None) -> dict[int, int]:
        """Return the counts that a rewind leaves; they are stored before anything goes out again.

        The lowest offset that the member has counts; not what was taken and is `unsent`.
        """
        counts, lowest = dict(self._redeliveries), self._lowest_held(unsent)
        if lowest is not None:
            counts[lowest] = counts.get(lowest, 0) + 1
        return counts

    def _lowest_held(self, unsent: Ranges | None) -> int | None:
        for start, stop in self.delivered(self.cursor, self._span.end):
            for part in unsent.outside(start, stop) if unsent else [(start, stop)]:
                return part[0]
        return None

    def rewind(self, cause: Cause, unsent: Ranges | None = None) -> None:
        """Start a new token: what the member has goes out again, for `cause`; the rest waits on.

        Of causes that count, the lane of the lowest message waits until its count is stored.
        """
        if cause in _COUNTED and (lowest := self._lowest_held(unsent)) is not None:
            self._redeliveries[lowest] = self._redeliveries.get(lowest, 0) + 1
            self._blocked.count([self._span.lane(lowest)])
        held = self.delivered(self.cursor, self._span.end)
        for part in held:
            self._span.mark(*part, cause)
        self._span.change(self._share, OPEN, self.cursor, self._span.end)
        self._in_flight = 0
        for part in held:
            self._record.end_trials(*part)
        if self._record.is_shared:
            self._note_opened(offset for part in held for offset in range(*part))
        else:
            self._record.to_letter.clear()  # all is passed once more
        self._start_over(held)
        self._end_loans(self._lent_in(0, self._span.end))
        self._begun = ProcessingTimes()
        self._owed.forget()

    def _start_over(self, held: Sequence[Range]) -> None:
        """Have everything looked at once more; `held`: what the member had."""
        del held
        self._position = self._top = self.cursor
        self._again.clear()

    def moved_to(self, cursor: int) -> "LaneBook":
        """Return the book of a group that begins again at `cursor`, back or forward.

        Every ack is forgotten, and every lane that waits for its time. What may have been processed
        before, and lies ahead now, goes out for the cause `RESET`.
        """
        book = LaneBook(cursor, max_span=self.max_span, max_parked=self._blocked.parked.max_lanes)
        book.hold_as(self)
        book.mark(self.sent_end, Cause.RESET)
        return book
