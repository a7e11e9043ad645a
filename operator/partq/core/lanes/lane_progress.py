"""How far a group has come in a partition of which it is sent lanes, not the whole."""

from collections.abc import Iterable

from partq.core.cursor.processing_times import within
from partq.core.cursor.progress import Range
from partq.core.lanes.codec import MAX_BITS, encode_bits
from partq.core.lanes.lane_record import LaneRecord
from partq.core.lanes.span import ACKED, OPEN
from partq.core.ranges import Ranges


class LaneProgress:
    """What a group has done with, what its member has, and what has failed."""

    __slots__ = ("_lent", "_record", "_redeliveries", "_share", "_span")

    def __init__(self, record: LaneRecord, share: int) -> None:
        """Start a share; `share` is its number, 0 that of none."""
        self._record = record
        self._share = share
        self._span, self._redeliveries = record.span, record.redeliveries
        self._lent = record.lent

    @property
    def cursor(self) -> int:
        """Everything below is acknowledged."""
        return self._record.cursor

    @property
    def redeliveries(self) -> dict[int, int]:
        """How often an offset was sent again for a cause that counts, where not 0."""
        return dict(self._redeliveries)

    @property
    def is_scattered(self) -> bool:
        """False: the acks are bits, and the span bounds them and the counts."""
        return False

    @property
    def reach(self) -> int:
        """What lies from here on cannot be discarded while something below is not done."""
        return self.cursor + MAX_BITS

    def is_done(self, offset: int) -> bool:
        """Whether the group has done with an offset."""
        return offset < self.cursor or self._span.state(offset) == ACKED

    def undone(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that the group has not done with."""
        return self._span.undone(max(start, self.cursor), stop)

    def unsent(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that are still to be sent, now or once they may be."""
        return self._span.opened(max(start, self.cursor), stop)

    def delivered(self, start: int, stop: int) -> list[Range]:
        """Return the parts of [start, stop) that the member has."""
        return self._span.runs(self._share, max(start, self.cursor), stop)

    def newly_acked(self, upto: int, ranges: Iterable[Range]) -> list[Range]:
        """Return what an ack of `ranges` adds to what the group has done with."""
        del upto  # `ack` refuses it
        found = Ranges()
        for start, stop in ranges:
            for part in self.delivered(start, stop):
                found.add(*part)
            for offset in self._lent_in(start, stop):
                found.add(offset, offset + 1)
        return found.pairs()

    def lane_of(self, offset: int) -> int:
        """Return the lane of an offset that was sent, from the cursor on."""
        return self._span.lane(offset)

    def exceeding(self, limit: int) -> list[int]:
        """Return the offsets that were sent again more than `limit` times by their own fault."""
        return sorted(offset for offset, times in self._redeliveries.items() if times > limit)

    def acked_pairs(self) -> list[Range]:
        """Return the acknowledged ranges above the cursor, rising."""
        return self._span.runs(ACKED, self.cursor, self._span.end)

    def stored_acks(self) -> bytes:
        """Return the acks above the cursor as the record holds them: see `codec`."""
        return encode_bits(self._span.acked_flags(self.cursor))

    def _sent_since(self, number: int, ranges: Iterable[Range]) -> tuple[Iterable[Range], int]:
        """Return ranges without what a copy of `number` does not count for, and how much that is.

        Such a copy was taken back; another one may be under way, or processed.
        """
        recalled = self._record.recalled
        if not recalled:
            return ranges, 0
        named = Ranges(sorted(ranges))
        late = [
            offset
            for start, stop in named.pairs()
            for offset in within(recalled, start, stop)
            if number < recalled[offset]
            and self._lent.get(offset) != self._share
            and not self.is_done(offset)
        ]
        for offset in late:
            named.remove(offset, offset + 1)
        return named.pairs(), len(late)

    def _counts_late(self, offset: int) -> bool:
        """Whether the ack of a copy whose time was over counts.

        Where lanes move, only if all lower messages of its lane are done: those could be taken from
        the member while the ack is under way.
        """
        if not self._record.is_shared:
            return True
        lane = self._span.lane(offset)
        return all(
            not self._span.of_lanes([lane], state, self.cursor, offset)
            for state in (OPEN, *self._record.shares)
        )

    def _lent_in(self, start: int, stop: int) -> list[int]:
        """Return what of [start, stop) the member may still acknowledge though it is open."""
        return [o for o in within(self._lent, start, stop) if self._lent[o] == self._share]

    def _end_loans(self, offsets: Iterable[int]) -> None:
        """Let the acks of copies whose time was over count no more."""
        for offset in list(offsets):
            self._lent.pop(offset, None)

    def _forget_counts(self, start: int, stop: int) -> None:
        """Forget the counts of what is done of [start, stop)."""
        for offset in within(self._redeliveries, start, stop):
            if self.is_done(offset):
                del self._redeliveries[offset]
