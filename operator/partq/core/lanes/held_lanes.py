"""Lanes that wait until somebody releases them, as a message of theirs has failed too often."""

from collections.abc import Iterable
from heapq import nsmallest
from math import inf

from partq.core.lanes.lane_progress import LaneProgress
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.span import OPEN


class HeldLanes(LaneProgress):
    """Holds lanes: of a *blocked* one nothing is sent, a *quarantined* one makes dead letters.

    The messages of a quarantined lane that were passed in turn are in `LaneRecord.to_letter`.
    """

    __slots__ = ("_blocked", "_position")

    def __init__(self, record: LaneRecord, share: int) -> None:
        super().__init__(record, share)
        self._position = record.cursor
        self._blocked = record.blocked

    @property
    def position(self) -> int:
        """The next offset to look at in turn."""
        return max(self._position, self._record.cursor)

    @property
    def held_lanes(self) -> list[int]:
        """The lanes that wait until they are released."""
        return self._blocked.parked.held

    @property
    def quarantined_lanes(self) -> frozenset[int]:
        """Those of them whose messages become dead letters."""
        return frozenset(self._blocked.parked.quarantined)

    @property
    def blocked_count(self) -> int:
        """How many lanes wait until they are released, and make no dead letters."""
        return len(self.held_lanes) - len(self._blocked.parked.quarantined)

    @property
    def holds_made(self) -> int:
        """Grows with every lane that is held: dead letters come after that is stored."""
        return self._blocked.parked.holds_made

    def hold(self, offsets: Iterable[int], *, quarantines: bool) -> bool:
        """Hold the lanes of messages that have failed too often; return whether one is new.

        A lane that is held already stays as it is. One whose message was not read since the
        partition was claimed is held as soon as it is.
        """
        is_new = False
        for offset in offsets:
            if self.is_done(offset):
                continue
            lane = self._span.lane(offset)
            if lane < 0:
                self._record.exhausted[offset] = quarantines
            else:
                is_new |= self._hold(lane, quarantines=quarantines)
        return is_new

    def _hold(self, lane: int, *, quarantines: bool) -> bool:
        is_new = self._blocked.hold(lane, quarantines=quarantines)
        if is_new and quarantines:
            self._record.to_letter.update(
                self._span.of_lanes([lane], OPEN, self.cursor, self.position)
            )
        return is_new

    def hold_lanes(self, lanes: Iterable[int], *, quarantines: bool) -> bool:
        """Hold lanes; return whether one is new."""
        return sum(self._hold(lane, quarantines=quarantines) for lane in lanes) > 0

    def hold_as(self, book: "HeldLanes") -> None:
        """Hold the lanes that another book holds."""
        quarantined = book.quarantined_lanes
        self.hold_lanes(quarantined, quarantines=True)
        self.hold_lanes({*book.held_lanes} - quarantined, quarantines=False)

    def _hold_read(self) -> None:
        """Hold the lanes of exhausted messages that are read by now."""
        for offset in [each for each in self._record.exhausted if each < self._span.read_end]:
            quarantines = self._record.exhausted.pop(offset)
            if self.is_done(offset):
                continue
            lane = self._span.lane(offset)
            if lane in self._record.released:
                self._redeliveries.pop(offset, None)
            else:
                self._hold(lane, quarantines=quarantines)
        if not self._record.exhausted:
            self._record.released.clear()

    def _forget_failures(self, lane: int) -> None:
        """Let the messages of a lane that is released fail as often as they may, once more."""
        for offset in [each for each in self._redeliveries if self._span.lane(each) == lane]:
            del self._redeliveries[offset]
        if self._record.exhausted:
            self._record.released.add(lane)

    def may_exceed(self, offset: int) -> bool:
        """Whether a message with too many redeliveries is not one of a lane that is held."""
        lane = self._span.lane(offset)
        held = self._blocked.parked.is_held
        # Of a message that was not read nobody knows.
        return not held(lane) if lane >= 0 else not self._blocked.parked.held

    def _note_passed(self, start: int, stop: int) -> None:
        """Note what of quarantined lanes was passed in turn."""
        if lanes := self._blocked.parked.quarantined:
            self._record.to_letter.update(self._span.of_lanes(lanes, OPEN, start, stop))

    def _note_opened(self, offsets: Iterable[int]) -> None:
        """Note what has come back, where its lane is quarantined."""
        if lanes := self._blocked.parked.quarantined:
            self._record.to_letter.update(o for o in offsets if self._span.lane(o) in lanes)

    def next_quarantined(self, most: int) -> list[int]:
        """Return the next messages of quarantined lanes that are to become dead letters, rising.

        What lies behind a message that the member has waits for it: they go in order.
        """
        span, lanes = self._span, self._blocked.parked.quarantined
        if not self._record.to_letter or most <= 0:
            return []
        self._record.to_letter = {
            each
            for each in self._record.to_letter
            if each >= self.cursor and span.state(each) == OPEN and span.lane(each) in lanes
        }
        in_hand: dict[int, int] = {}
        for share in self._record.shares:
            for offset in span.of_lanes(lanes, share, self.cursor, span.read_end):
                in_hand.setdefault(span.lane(offset), offset)
        free = (o for o in self._record.to_letter if o < in_hand.get(span.lane(o), inf))
        return nsmallest(most, free)
