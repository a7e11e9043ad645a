"""Which messages of its lanes a group is sent next, and what each lane waits for."""

from collections.abc import Collection, Iterable, Mapping
from itertools import compress, count, islice
from typing import NamedTuple

from partq.core.cursor.book import SlottedBatch
from partq.core.cursor.processing_times import ProcessingTimes, within
from partq.core.cursor.windows import Window
from partq.core.lanes.blocked_lanes import OwedLanes
from partq.core.lanes.held_lanes import HeldLanes
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.parked_lanes import ALL_LANES, ParkedLanes
from partq.core.lanes.resend_queue import ResendQueue
from partq.core.lanes.span import HELD, MAX_SHARE, OPEN, mask_of
from partq.core.model import Cause


class ParkedLane(NamedTuple):
    """A lane that waits for its time."""

    lane: int
    until: float
    """On the caller's clock, in seconds."""
    """Infinity: until it is released."""
    offset: int
    """The lowest of it that is open; -1: none is known."""
    is_quarantined: bool = False
    """Its messages become dead letters."""


class LaneSender(HeldLanes):
    """Takes windows in turn, at `position`, and below it what came back and whose lane goes on.

    What is open below the position is in `_again`, or its lane is blocked: so the lowest open
    message of a lane is sent before those above it.
    """

    __slots__ = ("_again", "_begun", "_in_flight", "_owed", "_top", "_unreadable")

    def __init__(self, record: LaneRecord, share: int) -> None:
        super().__init__(record, share)
        self._top = record.cursor
        """The highest that the position was, under this token."""
        self._in_flight = 0
        self._again = ResendQueue()
        self._unreadable = record.unreadable
        self._owed = OwedLanes()
        self._begun = ProcessingTimes()

    @property
    def _sent_top(self) -> int:
        """All that the member has was taken below."""
        return max(self._top, self._record.cursor)

    @property
    def in_flight(self) -> int:
        """Messages that are delivered and neither acknowledged nor given back."""
        return self._in_flight

    @property
    def max_span(self) -> int:
        """Nothing is sent that lies so many offsets above the cursor, or more."""
        return self._record.max_span

    @max_span.setter
    def max_span(self, offsets: int) -> None:
        self._record.max_span = offsets

    # ---- what lanes wait for --------------------------------------------------------------------

    @property
    def max_parked(self) -> int:
        """How many lanes may wait for their time while new messages are sent."""
        return self._blocked.parked.max_lanes

    @max_parked.setter
    def max_parked(self, lanes: int) -> None:
        self._blocked.parked.max_lanes = lanes

    @property
    def parked(self) -> Mapping[int, float]:
        """What is stored of the lanes that wait: lane → until when, on the caller's clock."""
        return self._blocked.parked.stored()

    @property
    def parked_changes(self) -> int:
        """Grows whenever `parked` changes."""
        return self._blocked.parked.changes

    @property
    def counts_made(self) -> int:
        """Grows with every nack, ack timeout and lost flow that counts."""
        return self._blocked.counts_made

    def counts_stored(self, counts_made: int) -> None:
        """Note that the counts are stored as they were at `counts_made`: their lanes go on."""
        self._record.go_on(self._blocked.counts_stored(counts_made))

    @property
    def next_due(self) -> float:
        """When the next lane has waited long enough; infinity: none waits for its time."""
        return self._blocked.parked.next_due

    @property
    def delayed(self) -> int:
        """How many lanes wait for their time."""
        return self.parked_count - len(self.held_lanes)

    @property
    def parked_count(self) -> int:
        """How many lanes wait, for their time or until they are released."""
        return len(self._blocked.parked)

    def end_waits(self, now: float) -> None:
        """Let the lanes go on that have waited long enough."""
        self._record.go_on(self._blocked.end_waits(now))

    def unpark(self, lane: int) -> bool:
        """Let a lane go on before its time, or release it; return whether it waited."""
        is_parked = lane in self._blocked.parked
        if self._blocked.parked.is_held(lane):
            self._forget_failures(lane)
        self._record.go_on(self._blocked.unpark([lane]))
        return is_parked

    @property
    def are_all_parked(self) -> bool:
        """Whether every lane waits, for more wait than the record holds one by one."""
        return self._blocked.are_all_parked

    def park_by_name(self, lanes: Collection[int]) -> None:
        """Have lanes wait for as long as all did, in the place of all."""
        due = self._blocked.parked.until[ALL_LANES]
        for lane in lanes:
            self._blocked.park(lane, due)
        self.unpark(ALL_LANES)

    def unpark_all(self) -> int:
        """Let all lanes go on, or release them; return how many waited."""
        lanes = self._blocked.parked.lanes
        for lane in lanes:
            self.unpark(lane)
        return len(lanes) + self.unpark(ALL_LANES)

    def doom(self, offsets: Iterable[int]) -> None:
        """Send nothing of the lanes of some offsets until `spare`: they are to be dead letters."""
        for offset in offsets:
            if offset < self.cursor:
                continue
            if (lane := self._span.lane(offset)) >= 0:
                self._blocked.doom(offset, lane)
            else:
                self._record.doomed_unread.add(offset)

    def spare(self, offset: int) -> None:
        """Note that an offset is a dead letter, or will be none."""
        self._record.doomed_unread.discard(offset)
        self._record.go_on(self._blocked.spare(offset))

    @property
    def is_crowded(self) -> bool:
        """Whether so many lanes wait, for time or dead letters, that nothing new is sent."""
        return self._blocked.is_crowded

    @property
    def sent_end(self) -> int:
        """What may have been processed before lies below."""
        return max(self._record.delivered, self._span.marked_end, self.position)

    def list_parked(self) -> list[ParkedLane]:
        """Return the lanes that wait for their time, by number."""
        parked = self._blocked.parked
        lowest: dict[int, int] = {}
        for offset in reversed(self._open_parked()):
            lowest[self._span.lane(offset)] = offset
        return [
            ParkedLane(at, parked.until[at], lowest.get(at, -1), at in parked.quarantined)
            for at in parked.lanes
        ]

    @property
    def lowest_parked(self) -> int:
        """The lowest offset of the lanes that wait for their time; -1: none is known."""
        return next(iter(self._open_parked()), -1)

    def _open_parked(self) -> list[int]:
        lanes = self._blocked.parked.lanes
        # All that was read, also if no member is sent anything now.
        stop = self._span.read_end
        return self._span.of_lanes(lanes, OPEN, self.cursor, stop) if lanes else []

    def go_on(self, lanes: list[int]) -> None:
        """Have sent what is open of lanes that nothing blocks any more, where they are its own."""
        mine = [lane for lane in lanes if self._has(lane)]
        if mine:
            self._again.add(self._span.of_lanes(mine, OPEN, self.cursor, self.position))

    def reopen(self, offsets: list[int]) -> None:
        """Have sent what was given back of lanes that nothing blocks, where they are its own."""
        lane_of, blocked = self._span.lane, self._blocked.lanes
        self._again.add(
            offset
            for offset in offsets
            if (lane := lane_of(offset)) not in blocked and self._has(lane)
        )

    def _has(self, lane: int) -> bool:
        return self._span.owner(lane) == self._share

    @property
    def stands_still(self) -> str:
        """Why nothing new is sent, for people; empty: the book does not say so."""
        blocked = self._blocked
        if blocked.are_all_parked:
            return (
                "KeysParked: all keys wait, until a delay is over, as more than "
                f"{blocked.parked.max_lanes} waited when the broker claimed the partition; "
                f"{self._lowest()}"
            )
        if blocked.is_crowded:
            return (
                f"KeysParked: {blocked.waiting} keys wait for their redelivery"
                f"{_until_released(blocked.parked)}, and at most {blocked.parked.max_lanes} may "
                f"while new messages are sent; {self._lowest()}"
            )
        if self.position >= self.cursor + self.max_span:
            return (
                f"SpanFull: all that may be sent above the cursor is, {self.max_span} offsets; "
                f"{self._lowest()}"
            )
        return ""

    def _lowest(self) -> str:
        lane, state = self._span.lane(self.cursor), self._span.state(self.cursor)
        what = "is in flight" if HELD <= state <= MAX_SHARE else "waits to be sent"
        if lane >= 0 and lane in self.held_lanes:
            what = f"waits until the slot is released (`partq keys release --slot {lane}`)"
        return f"offset {self.cursor}{f' of slot {lane}' if lane >= 0 else ''} {what}"

    @property
    def stored_size_bytes(self) -> int:
        """About how many bytes the book has as it is stored."""
        waiting = max(min(self.parked_count, self.max_parked), len(self.held_lanes))
        pairs = len(self._redeliveries) + waiting
        return (self._span.end - self.cursor) // 8 + (len(str(self.position)) + 3) * pairs

    # ---- what is sent ---------------------------------------------------------------------------

    def take(self, batch: SlottedBatch, stop: int, credit: int) -> Window | None:
        """Take the next window of a stored batch, below `stop`, which lies in it or is its end.

        `position` must lie in the batch. At most `credit` messages. None when nothing of the
        batch is left to send, or nothing may be sent now; `position` tells which.
        """
        span, blocked, owed = self._span, self._blocked, self._owed
        if (
            credit <= 0
            or owed.are_all
            or blocked.are_all_parked
            or blocked.is_crowded
            or (self._again and self.next_again is not None)
        ):
            return None
        if span.read_end < batch.first + batch.count:
            span.read(batch)
            if self._record.exhausted:
                self._hold_read()
            if self._record.doomed_unread:
                unread, self._record.doomed_unread = self._record.doomed_unread, set()
                self.doom(unread)
        if stop > self.cursor + self.max_span:
            stop = self.cursor + self.max_span
            self._record.waits_for_span = True
        lanes = blocked.lanes | owed.notices.keys() if owed.notices else blocked.lanes
        is_blocked = lanes.__contains__ if lanes else None
        while (start := self.position) < stop:
            end = stop
            if self._unreadable:
                start, end = self._readable(start, stop)
            free = span.free(start, end, is_blocked, self._share)
            messages, top = free.count(1), self._top
            if messages > credit:
                free = free[: next(islice(compress(count(), free), credit, None))]
                messages = credit
            self._position = start + len(free)
            if is_blocked:
                self._note_passed(start, self._position)
            window = None
            if messages:
                first = free.find(1)
                free = free[first : free.rfind(1) + 1]
                window = self._send(start + first, free, messages, is_new=True, top=top)
            self._top = max(self._top, self._position)
            if window is not None:
                return window
        return None

    def _readable(self, start: int, stop: int) -> tuple[int, int]:
        """Return what is sent in one window: what a client skips, it decodes all the same."""
        start = min(self._unreadable.end_of_run(start), stop)
        bad = self._unreadable.within(start, stop)
        return start, bad[0][0] if bad else stop

    def _send(
        self, start: int, free: bytes, messages: int, *, is_new: bool, top: int = 0
    ) -> Window:
        stop = start + len(free)
        self._span.hold(start, free, self._share)
        self._in_flight += messages
        self._record.delivered = max(self._record.delivered, stop)
        if start < top:
            # The position was set back: their begin is noted one by one, as that of others.
            for offset in compress(range(start, min(stop, top)), free):
                self._begun.resend(offset, offset + 1)
        if self._lent:
            self._end_loans(o for o in within(self._lent, start, stop) if free[o - start])
        counts = within(self._redeliveries, start, stop) if self._redeliveries else []
        causes = self._span.causes(start, free)
        cause = Cause(causes[0]) if causes else Cause.NONE
        return Window(
            start,
            stop,
            [],
            cause,
            sorted((o, self._redeliveries[o]) for o in counts if free[o - start]),
            messages,
            start if is_new else stop,
            is_in_turn=is_new,
            mask=mask_of(free),
            causes=b"" if causes.count(cause) == len(causes) else causes,
        )

    @property
    def next_again(self) -> int | None:
        """The lowest offset below `position` that is to be sent now."""
        if self._owed.are_all or self._blocked.are_all_parked:
            return None
        return self._again.lowest(self._may_go)

    def take_again(self, stop: int, credit: int) -> Window | None:
        """Take what is to be sent below `position`, from `next_again` on, below `stop`.

        `stop` is the end of the stored batch that holds that offset. At most `credit` messages.
        """
        start = self.next_again
        if start is None:
            return None
        if self._unreadable:
            start, stop = self._readable(start, stop)
        offsets = self._again.take(stop, credit, self._goes)
        if not offsets:
            return None
        free = bytearray(offsets[-1] + 1 - start)
        for offset in offsets:
            free[offset - start] = 1
            self._begun.resend(offset, offset + 1)
        return self._send(start, bytes(free), len(offsets), is_new=False)

    def _goes(self, offset: int) -> bool:
        """Return whether an offset is sent again; one that has failed goes alone of its lane."""
        goes = self._may_go(offset)
        if goes and offset in self._redeliveries:
            self._blocked.try_again(offset, self._span.lane(offset))
        return goes

    def _may_go(self, offset: int) -> bool:
        if not self.cursor <= offset < self.position or self._span.state(offset) != OPEN:
            return False
        lane = self._span.lane(offset)
        return (
            lane not in self._blocked.lanes and lane not in self._owed.notices and self._has(lane)
        )

    def mark(self, stop: int, cause: Cause, *, start: int = 0) -> None:
        """Note that all below `stop`, from `start` on, may have been processed before."""
        self._span.mark(max(start, self.cursor), stop, cause)


def _until_released(parked: ParkedLanes) -> str:
    held = len(parked.held)
    return f", {held} of them until somebody releases them (`partq keys release`)" if held else ""
