"""The offsets that a lane book speaks of: what became of each, its lane, and its cause.

A byte of state, two of lane and, once there is one, one of cause for each offset. What is done to
many offsets at once is done by calls that run in C: no Python code per message.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from itertools import compress, count

from partq.core.cursor.book import SlottedBatch
from partq.core.cursor.cause_ranges import CauseRanges
from partq.core.cursor.progress import Range
from partq.core.lanes.codec import pack
from partq.core.model import Cause

OPEN = 0
"""Neither delivered nor done."""
HELD = 1
"""Delivered, and neither acknowledged nor given back. Up to `MAX_SHARE`: the number of the share
that has it; where a partition has one share, that is number 1."""
MAX_SHARE = 250
ASIDE = 252
"""Undecodable: never sent, and nothing waits for it until it is done."""
ACKED = 254
"""Done."""
_KEPT_BELOW = 4096
"""Offsets below the cursor that may stay in memory, so that dropping them is rare."""


def _table(changes: dict[int, int], default: int | None = None) -> bytes:
    """Return a table for `bytes.translate`; None: what is not named stays as it is."""
    values = range(256)
    return bytes(changes.get(value, value if default is None else default) for value in values)


_IS_OPEN = _table({OPEN: 1}, 0)
_IS_UNDONE = _table({ACKED: 0}, 1)
_IS_HELD = _table(dict.fromkeys(range(HELD, MAX_SHARE + 1), 1), 0)
_DIGITS = _table({0: ord("0")}, ord("1"))
_ACKED_DIGITS = _table({ACKED: ord("1")}, ord("0"))


@cache
def _change(before: int, after: int) -> bytes:
    """Return the table that changes one state into another."""
    return _table({before: after})


@cache
def _is(number: int) -> bytes:
    """Return the table that makes 1 of a number, and 0 of others."""
    return _table({number: 1}, 0)


@cache
def _runs_of(state: int) -> "re.Pattern[bytes]":
    return re.compile(b"[" + re.escape(bytes([state])) + b"]+")


_NOT_ACKED = re.compile(b"[^" + re.escape(bytes([ACKED])) + b"]+")


class LaneSpan:
    """States of the offsets from a little below the cursor on."""

    __slots__ = ("_causes", "_first", "_lanes", "_marked", "_owners", "_states", "_table")

    def __init__(self, cursor: int) -> None:
        self._first = cursor
        """The offset of the first element of each array."""
        self._states = bytearray()
        self._lanes = array("H")
        """As far as batches were read."""
        self._table: bytes | bytearray | None = None
        """The owner of each of the 65,536 lanes; None: one share has all."""
        self._owners = bytearray()
        """Of each offset whose lane is known the share that has the lane, if there is a table."""
        self._causes = bytearray()
        """As long as `_states`, or empty: no offset has one."""
        self._marked = CauseRanges()
        """Causes of what is beyond the arrays."""

    @property
    def end(self) -> int:
        """All from here on is open."""
        return self._first + len(self._states)

    @property
    def read_end(self) -> int:
        """The lanes of all below are known, unless they are done."""
        return self._first + len(self._lanes)

    @property
    def marked_end(self) -> int:
        """The end of what has a cause, is done with or in flight; at least the cursor's place."""
        known = max(len(self._causes.rstrip(b"\0")), len(self._states.rstrip(b"\0")))
        return max(self._marked.stop, self._first + known)

    def read(self, batch: SlottedBatch) -> None:
        """Learn the lanes of a batch. What lies between it and the last one is done."""
        stop = batch.first + batch.count
        missing = batch.first - self.read_end
        if missing > 0:
            self._lanes.frombytes(bytes(2 * missing))
        lanes = array("H", batch.slots[self.read_end - batch.first :])
        self._lanes.extend(lanes)
        if self._table is not None:
            self._owners.extend(bytes(max(0, missing)))
            self._owners.extend(map(self._table.__getitem__, lanes))
        self.extend(stop)

    def assign(self, owners: bytes | bytearray) -> bytes | bytearray | None:
        """Give lanes to shares: the number of the share of each of the 65,536 lanes; 0: nobody.

        Returns how they were given before; None: one share had all. An array of bytes stays the
        caller's, who may change it for lanes that were not read.
        """
        before, self._table = self._table, owners
        self._owners = bytearray(map(owners.__getitem__, self._lanes))
        return before

    def give(self, lane: int, share: int) -> None:
        """Give one lane to a share, or to nobody (0), where the table is an array of bytes."""
        assert isinstance(self._table, bytearray)  # noqa: S101 - from `assign` on
        self._table[lane] = share
        for at in _places(self._lanes.tobytes(), array("H", [lane]).tobytes()):
            self._owners[at] = share

    def first_free(self, cursor: int, is_blocked: Callable[[int], bool]) -> int | None:
        """Return the first open offset of a lane that nobody has and nothing blocks."""
        if self.read_end <= cursor:
            return None
        at = self.free(cursor, self.read_end, is_blocked, 0).find(1)
        return cursor + at if at >= 0 else None

    def lanes_undone(self, cursor: int) -> Counter[int]:
        """Return the lanes of what was read from the cursor on and is not done: how often each."""
        low = max(0, cursor - self._first)
        undone = self._states[low : len(self._lanes)].translate(_IS_UNDONE)
        return Counter(compress(self._lanes[low:], undone))

    def lowest_undone(self, cursor: int) -> dict[int, int]:
        """Return of each of these lanes the lowest offset that is not done."""
        low = max(0, cursor - self._first)
        undone = self._states[low : len(self._lanes)].translate(_IS_UNDONE)
        places = [*compress(enumerate(self._lanes[low:], self._first + low), undone)]
        return {lane: offset for offset, lane in reversed(places)}

    def owner(self, lane: int) -> int:
        """Return the share that has a lane, where a table says so."""
        return HELD if self._table is None else self._table[lane]

    def holders(self, cursor: int) -> dict[int, int]:
        """Return the lanes of what is held from the cursor on, each with the share that has it."""
        low = cursor - self._first
        held = self._states[low:].translate(_IS_HELD)
        lanes, shares = compress(self._lanes[low:], held), compress(self._states[low:], held)
        return dict(zip(lanes, shares, strict=True))

    def lanes_in(self, start: int, stop: int) -> set[int]:
        """Return the lanes of [start, stop), as far as they are known."""
        return set(self._lanes[max(0, start - self._first) : max(0, stop - self._first)])

    def extend(self, stop: int) -> None:
        """Have the arrays of states and causes reach up to `stop`, at least."""
        start, more = self.end, stop - self.end
        if more <= 0:
            return
        self._states.extend(bytes(more))
        if self._causes or self._marked.ranges:
            self._mark_known(start, stop)

    def _mark_known(self, start: int, stop: int) -> None:
        self._causes.extend(bytes(len(self._states) - len(self._causes)))
        while start < stop:
            cause, high = self._marked.at(start, stop)
            self._causes[start - self._first : high - self._first] = bytes([cause]) * (high - start)
            start = high
        self._marked.drop_below(stop)

    def state(self, offset: int) -> int:
        """Return the state of an offset from the cursor on."""
        return self._states[offset - self._first] if offset < self.end else OPEN

    def lane(self, offset: int) -> int:
        """Return the lane of an offset from the cursor on; -1: it was not read."""
        return self._lanes[offset - self._first] if offset < self.read_end else -1

    def set(self, start: int, stop: int, state: int) -> None:
        """Give all of [start, stop), which the arrays hold, a state."""
        self._states[start - self._first : stop - self._first] = bytes([state]) * (stop - start)

    def count(self, state: int, start: int, stop: int) -> int:
        """Return how many offsets of [start, stop) that the arrays hold have a state."""
        return self._states.count(state, max(0, start - self._first), max(0, stop - self._first))

    def change(self, before: int, after: int, start: int, stop: int) -> int:
        """Change one state to another in [start, stop), and return how many offsets had it."""
        low, high = max(0, start - self._first), max(0, stop - self._first)
        found = self._states.count(before, low, high)
        if found:
            part = self._states[low:high]
            is_whole = found == len(part)
            change = _change(before, after)
            self._states[low:high] = bytes([after]) * found if is_whole else part.translate(change)
        return found

    def runs(self, state: int, start: int, stop: int) -> list[Range]:
        """Return the ranges of [start, stop) that have a state and that the arrays hold."""
        return self._find(_runs_of(state), start, stop)

    def opened(self, start: int, stop: int) -> list[Range]:
        """Return the ranges of [start, stop) that are open."""
        return self._with_rest(self._find(_runs_of(OPEN), start, stop), start, stop)

    def undone(self, start: int, stop: int) -> list[Range]:
        """Return the ranges of [start, stop) that are not done."""
        return self._with_rest(self._find(_NOT_ACKED, start, stop), start, stop)

    def _with_rest(self, found: list[Range], start: int, stop: int) -> list[Range]:
        """Add what lies beyond the arrays, all of which is open."""
        start = max(start, self.end)
        if start >= stop:
            return found
        if found and found[-1][1] == start:
            start = found.pop()[0]
        return [*found, (start, stop)]

    def _find(self, pattern: "re.Pattern[bytes]", start: int, stop: int) -> list[Range]:
        first = self._first
        low, high = max(0, start - first), max(0, stop - first)
        runs = pattern.finditer(self._states, low, high)
        return [(first + run.start(), first + run.end()) for run in runs]

    def end_of_acked(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not done."""
        run = _runs_of(ACKED).match(self._states, offset - self._first)
        return offset if run is None else self._first + run.end()

    def acked_flags(self, cursor: int) -> bytes:
        """Return a byte `1` for each offset from the cursor on that is done, `0` for others."""
        return bytes(self._states[cursor - self._first :]).translate(_ACKED_DIGITS)

    def free(
        self, start: int, stop: int, is_blocked: Callable[[int], bool] | None, share: int
    ) -> bytes:
        """Return a byte 1 for each offset of [start, stop) that may be sent, 0 for others.

        `is_blocked` says of a lane that nothing of it may be sent; None: of no lane. `share`: to
        whom; it gets what is of its lanes.
        """
        low, high = start - self._first, stop - self._first
        free = bytes(self._states[low:high].translate(_IS_OPEN))
        if self._table is not None and 1 in free:
            free = _both(free, self._owners[low:high].translate(_is(share)))
        if is_blocked is None or 1 not in free:
            return free
        blocked = bytes(map(is_blocked, self._lanes_of(start, stop)))
        left = int.from_bytes(free, "little") & ~int.from_bytes(blocked, "little")
        return left.to_bytes(len(free), "little")

    def _lanes_of(self, start: int, stop: int) -> Iterable[int]:
        """Return the lane of each offset of [start, stop), which was read."""
        return self._lanes[start - self._first : stop - self._first]

    def hold(self, start: int, free: bytes, share: int) -> None:
        """Give the offsets from `start` on whose byte is 1, all of them open, to a share."""
        low, high = start - self._first, start - self._first + len(free)
        is_whole = 0 not in free
        if share != HELD:
            free = free.translate(_change(1, share))
        if not is_whole:
            states = int.from_bytes(self._states[low:high], "little")
            free = (states | int.from_bytes(free, "little")).to_bytes(len(free), "little")
        self._states[low:high] = free

    def of_lanes(self, lanes: Collection[int], state: int, start: int, stop: int) -> list[int]:
        """Return the offsets of lanes in [start, stop), which was read, that have a state."""
        low, high = start - self._first, min(stop, self.read_end) - self._first
        part = self._lanes[low:high]
        if len(lanes) == 1:
            found = _places(part.tobytes(), array("H", lanes).tobytes())
        else:
            found = compress(count(), map(frozenset(lanes).__contains__, part))
        return [start + at for at in found if self._states[low + at] == state]

    def mark(self, start: int, stop: int, cause: Cause) -> None:
        """Give [start, stop) a cause, in the place of those that it had."""
        end = min(stop, self.end)
        if start < end:
            self._causes.extend(bytes(len(self._states) - len(self._causes)))
            self._causes[start - self._first : end - self._first] = bytes([cause]) * (end - start)
        self._marked.mark(max(start, self.end), stop, cause)

    def causes(self, start: int, free: bytes) -> bytes:
        """Return the causes of the offsets from `start` on whose byte is 1; empty: none has one."""
        if not self._causes:
            return b""
        low = start - self._first
        return bytes(compress(self._causes[low : low + len(free)], free))

    def drop_below(self, cursor: int) -> None:
        """Forget what is far enough below the cursor."""
        below = cursor - self._first
        if below <= min(_KEPT_BELOW, len(self._states)):
            return
        del self._states[:below]
        del self._lanes[:below]
        del self._owners[:below]
        del self._causes[:below]
        self._first = cursor
        self._marked.drop_below(cursor)
        if self._causes.count(0) == len(self._causes):
            self._causes.clear()


def _both(left: bytes, right: bytes | bytearray) -> bytes:
    """Return the bytes 1 that both have, which are of one length."""
    both = int.from_bytes(left, "little") & int.from_bytes(right, "little")
    return both.to_bytes(len(left), "little")


def _places(lanes: bytes, lane: bytes) -> Iterator[int]:
    """Return where a lane is among others, two bytes each."""
    at = lanes.find(lane)
    while at >= 0:
        if at % 2 == 0:
            yield at // 2
        at = lanes.find(lane, at + 1)


def mask_of(free: bytes) -> bytes | None:
    """Return one bit for each byte 0 or 1, the least significant first; None: all are 1."""
    return pack(free.translate(_DIGITS)) if 0 in free else None
