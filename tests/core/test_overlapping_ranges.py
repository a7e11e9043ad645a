"""A frame may name an offset in many ranges; it costs no more than naming it once."""

import pytest

from partq.core.cursor import cursor
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.processing_times import ProcessingTimes
from partq.core.cursor.redelivery_queue import RedeliveryQueue
from tests.core.batches import BATCH

COUNT = 200
OVERLAPPING = [(start, stop) for start in (0, 1) for stop in range(2, COUNT + 1)]
"""Each offset about as often as there are ranges."""


class CountedWaiting(RedeliveryQueue):
    """Counts the offsets that it is asked for."""

    __slots__ = ("asked",)

    def __init__(self):
        super().__init__()
        self.asked = 0

    def __contains__(self, offset):
        self.asked += 1
        return super().__contains__(offset)

    def discard(self, start, stop):
        self.asked += stop - start
        super().discard(start, stop)


class CountedBegun(ProcessingTimes):
    """Counts the offsets that are reported."""

    __slots__ = ("reported",)

    def __init__(self):
        super().__init__()
        self.reported = 0

    def report(self, start, stop, now):
        self.reported += stop - start
        super().report(start, stop, now)


@pytest.fixture
def book():
    """A book all of whose messages are in flight."""
    book = GroupCursor(0)
    book.waiting = CountedWaiting()
    assert book.take(BATCH, COUNT, COUNT).messages == COUNT
    return book


@pytest.mark.parametrize("is_free", [False, True])
def test_a_nack_looks_at_no_offset_twice(book, is_free):
    taken = book.nack(OVERLAPPING, 0, now=0, delay_s=lambda count: 10, is_free=is_free)
    assert sorted(taken.offsets) == list(range(COUNT))
    assert book.waiting.asked == COUNT
    assert set(book.redeliveries.values()) == {1}


def test_an_ack_looks_at_no_offset_twice(book):
    assert book.ack(-1, OVERLAPPING, 0) == book.cursor == COUNT
    assert book.waiting.asked == COUNT


def test_what_has_begun_is_noted_once(monkeypatch):
    begun = CountedBegun()
    monkeypatch.setattr(cursor, "ProcessingTimes", lambda: begun)
    book = GroupCursor(0)
    book.take(BATCH, COUNT, COUNT)
    book.begin([*OVERLAPPING, (0, 10**15)], 0, 1.0)
    assert begun.reported == COUNT
    assert begun.expire(1.0) == list(range(COUNT))
