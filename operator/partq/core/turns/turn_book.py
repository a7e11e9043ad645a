"""The book of one group in one partition of which any member may have any message.

It is a book of lanes in which each message is a lane: what is given back waits by itself, and holds
nothing else up. The members' shares look at the messages together, once: there is one position, and
one queue of what is sent again. Which share is sent the next window is for `Turns` to say.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, cast

from partq.core.cursor.book import SlottedBatch
from partq.core.cursor.progress import Range
from partq.core.lanes.lane_book import DEFAULT_MAX_PARKED, DEFAULT_MAX_SPAN
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.lane_sender import ParkedLane
from partq.core.lanes.resend_queue import ResendQueue
from partq.core.lanes.shared_book import ShareBook, SharedBook
from partq.core.lanes.span import HELD, MAX_SHARE, OPEN, LaneSpan
from partq.core.model import SLOT_COUNT
from partq.errors import BadRequestError

_FIRST_LANE = SLOT_COUNT + 1
"""The lane of offset 0. No slot, and not `ALL_LANES`: nobody takes it for one."""


class TurnSpan(LaneSpan):
    """States of offsets, each of which is its own lane."""

    __slots__ = ()

    @property
    def read_end(self) -> int:
        """What is known of messages is known of all below."""
        return self.end

    def read(self, batch: SlottedBatch) -> None:
        """Have the states reach up to the end of a batch."""
        self.extend(batch.first + batch.count)

    def assign(self, owners: bytes | bytearray) -> None:
        """Give no lanes to anybody: any share may have any message."""
        del owners

    def lane(self, offset: int) -> int:
        """Return the lane of an offset."""
        return offset + _FIRST_LANE

    def lanes_in(self, start: int, stop: int) -> set[int]:
        """Return the lanes of [start, stop)."""
        return set(self._lanes_of(start, stop))

    def of_lanes(self, lanes: Collection[int], state: int, start: int, stop: int) -> list[int]:
        """Return those of some lanes in [start, stop) that have a state, as offsets, rising."""
        stop = min(stop, self.end)
        offsets = sorted(lane - _FIRST_LANE for lane in lanes)
        return [o for o in offsets if start <= o < stop and self.state(o) == state]

    def _lanes_of(self, start: int, stop: int) -> Iterable[int]:
        return range(start + _FIRST_LANE, stop + _FIRST_LANE)


class TurnRecord(LaneRecord):
    """What the shares have in common: also how far they have looked, and what is sent again."""

    __slots__ = ("again", "position")

    def __init__(
        self,
        cursor: int,
        redeliveries: Mapping[int, int] | None,
        *,
        parked: Mapping[int, float] | None,
        quarantined: Collection[int],
        max_span: int,
        max_parked: int,
    ) -> None:
        # What waits for its time is no part of the record: no key of another order counts.
        del parked, quarantined
        super().__init__(
            cursor,
            redeliveries,
            parked=None,
            quarantined=(),
            max_span=max_span,
            max_parked=max_parked,
        )
        self.span = TurnSpan(cursor)
        self.position = cursor
        """The next offset to look at in turn. It never goes back."""
        self.again = ResendQueue()

    def go_on(self, lanes: list[int]) -> None:
        """Have messages sent that nothing holds up any more."""
        if lanes:
            self.has_news = True
            self.again.add(self.span.of_lanes(lanes, OPEN, self.cursor, self.position))

    def reopen(self, offsets: list[int]) -> None:
        """Have sent again what was given back, unless it waits for its time."""
        if offsets:
            self.has_news = True
            lane_of, blocked = self.span.lane, self.blocked.lanes
            self.again.add(o for o in offsets if lane_of(o) not in blocked)


class _LooksTogether(ShareBook):
    """A book whose position, and queue of what is sent again, are those of its record."""

    __slots__ = ()

    @property
    def _turns(self) -> TurnRecord:
        return cast(TurnRecord, self._record)

    @property
    def _position(self) -> int:
        return self._turns.position

    @_position.setter
    def _position(self, position: int) -> None:
        self._turns.position = max(position, self._turns.position)

    @property
    def _top(self) -> int:
        return self._turns.position

    @_top.setter
    def _top(self, position: int) -> None:
        del position

    @property
    def _again(self) -> ResendQueue:
        return self._turns.again

    @_again.setter
    def _again(self, queue: ResendQueue) -> None:
        del queue


class TurnShareBook(_LooksTogether):
    """The book of one share: what its member has, and what it is sent when it is its turn."""

    __slots__ = ()

    def ack(self, upto: int, ranges: Iterable[Range], number: int) -> int:
        """Acknowledge what the member has of `ranges`, as `LaneBook.ack` does.

        Raises:
            BadRequestError: `upto` is not -1; nothing was changed.
            RewoundError, NotDeliveredError: see `LaneBook.ack`.
        """
        if upto >= 0:
            raise BadRequestError(
                f"cumulative ack up to {upto}; in a group of the type Shared others have messages "
                "below it: acknowledge each message; nothing was changed"
            )
        return super().ack(upto, ranges, number)

    def go_back(self) -> None:
        """Look at nothing twice: what is open below the position is in the common queue."""

    @property
    def is_asked_back(self) -> bool:
        """Whether the member is sent nothing before it has given back what it has not begun."""
        return self._owed.are_all

    @property
    def again_count(self) -> int:
        """About how many messages below the position are to be sent again."""
        return len(self._again)

    def _has(self, lane: int) -> bool:
        del lane
        return True

    def _start_over(self, held: Sequence[Range]) -> None:
        self._record.reopen([offset for part in held for offset in range(*part)])


class TurnBook(SharedBook):
    """The book that speaks for all shares; it opens and ends them."""

    __slots__ = ()
    _RECORD: ClassVar[type[LaneRecord]] = TurnRecord
    _SHARE: ClassVar[type[ShareBook]] = TurnShareBook

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
        """Start from a record. `parked` and `quarantined` are those of another order, and end.

        As many messages may wait for their time as the span has.
        """
        del parked, quarantined, max_parked
        super().__init__(cursor, acked, redeliveries, max_span=max_span, max_parked=max_span)

    @property
    def max_span(self) -> int:
        """Nothing is sent that lies so many offsets above the cursor, or more."""
        return self._record.max_span

    @max_span.setter
    def max_span(self, offsets: int) -> None:
        self._record.max_span = self._blocked.parked.max_lanes = offsets

    @property
    def position(self) -> int:
        """The next offset that no share has looked at."""
        return max(self.cursor, cast(TurnRecord, self._record).position)

    @property
    def parked(self) -> Mapping[int, float]:
        """Nothing: what waits for its time goes out at once from the next broker."""
        return {}

    @property
    def parked_changes(self) -> int:
        """0: nothing of it is stored."""
        return 0

    def list_parked(self) -> list[ParkedLane]:
        """Return no keys: each message waits by itself."""
        return []

    @property
    def stands_still(self) -> str:
        """Why nothing new is sent, for people; empty: the book does not say so."""
        if self.position < self.cursor + self.max_span:
            return ""
        state = self._span.state(self.cursor)
        what = "is in flight" if HELD <= state <= MAX_SHARE else "waits to be sent"
        return (
            f"SpanFull: all that may be sent above the cursor is, {self.max_span} offsets; "
            f"offset {self.cursor} {what}"
        )
