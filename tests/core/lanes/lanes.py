"""Lanes, and books of them, as the tests of the rules use them."""

from array import array
from itertools import cycle, islice

from partq.core.lanes.lane_book import LaneBook
from tests.core.batches import Batch

A, B, C = 513, 7, 65_535


def batch(*lanes, first=0):
    return Batch(first, len(lanes), array("H", lanes))


def many(count, lanes=(A, B, C), first=0):
    return batch(*islice(cycle(lanes), count), first=first)


def book_of(*lanes, **bounds):
    """Return a book whose messages are all in flight."""
    book = LaneBook(0, **bounds)
    book.take(batch(*lanes), len(lanes), 10_000)
    return book


def nack(book, *offsets, delay_s=0.0, now=0.0):
    return book.nack([(o, o + 1) for o in offsets], 0, now=now, delay_s=lambda _: delay_s)


def store(book):
    """Note that a flush has stored the book."""
    book.counts_stored(book.counts_made)


def taken(window):
    """Return the offsets of a window."""
    bits = window.mask
    return [
        offset
        for at, offset in enumerate(range(window.start, window.stop))
        if bits is None or bits[at // 8] >> at % 8 & 1
    ]
