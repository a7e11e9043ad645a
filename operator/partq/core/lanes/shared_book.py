"""The book of one group in one partition of which several members have lanes.

Each member that has lanes there is a *share*, with a separate book that says what the member has
and what it is sent next. What is done, what has failed and what lanes wait for is common to all. A
lane whose owner changes is *draining* while its former owner has messages of it: nothing of it is
sent until those are done, given back, lost with the flow, or taken by force.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import compress
from typing import ClassVar, NamedTuple, cast

from partq.core.cursor.progress import Range
from partq.core.lanes.lane_book import DEFAULT_MAX_PARKED, DEFAULT_MAX_SPAN, LaneBook
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.lane_sender import LaneSender
from partq.core.lanes.span import MAX_SHARE, OPEN
from partq.core.model import SLOT_COUNT, Cause
from partq.core.ranges import Ranges

WHOLE = 0
"""The number of the book that has no lanes, and speaks for all."""


class AskedLanes(NamedTuple):
    """Lanes of which a share is to return what it has not begun."""

    lanes: frozenset[int]
    notice: int


class ShareBook(LaneBook):
    """The book of one share: what its member has, and is sent."""

    __slots__ = ()

    def __init__(self, record: LaneRecord, share: int) -> None:
        LaneSender.__init__(self, record, share)

    def go_back(self) -> None:
        """Look again at all from the cursor on: lanes have come of which something is open."""
        self._position = self.cursor

    def ask(self, lanes: Iterable[int]) -> AskedLanes | None:
        """Note that the member is asked for what it has not begun of lanes; None: it is already."""
        asked = self._owed.ask(lanes)
        return AskedLanes(asked, self._owed.last_notice) if asked else None

    def force(self, lanes: Iterable[int]) -> list[int]:
        """Take what the member has of lanes; return which messages.

        All are sent again for the cause `FORCED_COMMIT`, and the lowest of each lane counts.
        """
        span, taken = self._span, list[int]()
        for lane in lanes:
            held = span.of_lanes([lane], self._share, self.cursor, span.read_end)
            if not held:
                continue
            self._redeliveries[held[0]] = self._redeliveries.get(held[0], 0) + 1
            self._blocked.count([lane])
            for offset in held:
                span.set(offset, offset + 1, OPEN)
                span.mark(offset, offset + 1, Cause.FORCED_COMMIT)
                self._begun.forget(offset)
            self._blocked.end_trials(held)
            taken += held
        self._note_opened(taken)
        self._in_flight -= len(taken)
        self._record.recall(taken)
        return sorted(taken)


class SharedBook(LaneBook):
    """The book that has no lanes itself: it opens and ends shares, and speaks for all of them."""

    __slots__ = ()
    _RECORD: ClassVar[type[LaneRecord]] = LaneRecord
    _SHARE: ClassVar[type[ShareBook]] = ShareBook

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
        """Start from a record, as `LaneBook` does; nobody has a lane."""
        record = self._RECORD(
            cursor,
            redeliveries,
            parked=parked,
            quarantined=quarantined,
            max_span=max_span,
            max_parked=max_parked,
        )
        record.is_shared = True
        record.span.assign(bytes(SLOT_COUNT))
        LaneSender.__init__(self, record, WHOLE)
        for start, stop in acked:
            self.discard([(start, stop)])

    @property
    def _shares(self) -> Mapping[int, ShareBook]:
        return cast(Mapping[int, ShareBook], self._record.shares)

    # ---- shares ---------------------------------------------------------------------------------

    def open_share(self) -> tuple[int, ShareBook]:
        """Begin a share that has no lanes yet; return its number and its book.

        At most 250 at a time: the caller sees to it.
        """
        number = next(each for each in range(1, MAX_SHARE + 1) if each not in self._shares)
        share = self._SHARE(self._record, number)
        self._record.shares[number] = share
        return number, share

    def close_share(self, number: int, cause: Cause, unsent: Ranges | None = None) -> None:
        """End a share: all that its member has is sent again, to those that `assign` names next.

        Of causes that count, the lane of the lowest message waits until its count is stored.
        """
        share = self._shares[number]
        share.rewind(cause, unsent)
        del self._record.shares[number]

    def assign(self, owners: bytes) -> dict[int, AskedLanes]:
        """Give lanes to shares; return of which share what is asked back.

        Lanes of which their former owner has nothing move in this instant; the others drain.

        Args:
            owners: the number of the share of each of the 65,536 lanes; 0: nobody.
        """
        record, span = self._record, self._record.span
        before = span.assign(owners)
        holders = {
            lane: share
            for lane, share in span.holders(self.cursor).items()
            if owners[lane] != share
        }
        news = holders.keys() - record.blocked.draining.keys()
        record.go_on(record.blocked.drain(holders))
        for number in _gaining(before, owners):
            if number in self._shares:
                self._shares[number].go_back()
        record.has_news = True
        asked = {
            number: share.ask(lane for lane in news if holders[lane] == number)
            for number, share in self._shares.items()
        }
        return {number: each for number, each in asked.items() if each is not None}

    @property
    def draining(self) -> Mapping[int, int]:
        """Lane → the share that has messages of it, and is not its owner."""
        return self._record.blocked.draining

    def force(self, lanes: Iterable[int]) -> dict[int, list[int]]:
        """Let draining lanes go on at once; return which messages each share has lost by it."""
        draining = self._record.blocked.draining
        found = [lane for lane in lanes if lane in draining]
        taken = {
            share: self._shares[share].force(lane for lane in found if draining[lane] == share)
            for share in {draining[lane] for lane in found}
        }
        self._record.end_drains(found)
        return taken

    def pop_news(self) -> bool:
        """Say whether shares may have something to send since this was asked for last."""
        has_news, self._record.has_news = self._record.has_news, False
        return has_news

    # ---- what it says for all -------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The next offset that no share has looked at."""
        tops = [share._sent_top for share in self._shares.values()]
        return max([self.cursor, self._record.delivered, *tops])

    @property
    def in_flight(self) -> int:
        """Messages that are delivered and neither acknowledged nor given back, over all shares."""
        return sum(share.in_flight for share in self._shares.values())

    def delivered(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that members have."""
        found = [part for share in self._shares.values() for part in share.delivered(start, stop)]
        return Ranges(sorted(found)).pairs()

    def moved_to(self, cursor: int) -> "SharedBook":
        """Return the book of a group that begins again at `cursor`; no share is open.

        Every ack is forgotten, and every lane that waits for its time. What may have been processed
        before, and lies ahead now, goes out for the cause `RESET`.
        """
        book = type(self)(cursor, max_span=self.max_span, max_parked=self.max_parked)
        book.hold_as(self)
        book.mark(self.sent_end, Cause.RESET)
        return book


def _gaining(before: bytes | bytearray | None, after: bytes) -> set[int]:
    """Return the shares that get lanes which they did not have."""
    if before is None:
        return set(after)
    changed = int.from_bytes(before, "little") ^ int.from_bytes(after, "little")
    return set(compress(after, changed.to_bytes(len(after), "little")))
