"""What does not decode of a batch: as a book passes it over, and as it is found."""

import pytest

from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.unreadable import MAX_RUNS, NOTHING, Unreadable, explains, in_hand, set_aside
from partq.wire import batch
from tests.core.batches import Batch

FOUND = Unreadable.of_batch(10, 6, [(1, 2), (3, 5)])


def windows(book, first, stop, credit=100):
    found = []
    while (window := book.take(Batch(first), stop, credit)) is not None:
        found.append((window.start, window.stop, window.skip))
    return found


def test_no_window_is_sent_across_it():
    book = GroupCursor(10)
    assert set_aside(book, FOUND) == [(11, 12), (13, 15)]
    assert windows(book, 10, 16) == [(10, 11, []), (12, 13, []), (15, 16, [])]
    assert (book.position, book.in_flight) == (16, 3)
    book.discard([(11, 12), (13, 15)])
    book.ack(16, [], 0)
    assert (book.cursor, book.in_flight, bool(book.waiting), bool(book.unreadable)) == (
        16, 0, False, False,
    )  # fmt: skip


def test_what_is_acknowledged_before_is_left_alone():
    book = GroupCursor(12, [(13, 14)])
    assert set_aside(book, FOUND) == [(14, 15)]
    assert windows(book, 10, 16) == [(12, 13, []), (15, 16, [])]


def test_what_comes_again_leaves_it_out_too():
    book = GroupCursor(10)
    book.take(Batch(10), 16, 100)
    assert in_hand(book, FOUND) == [(11, 12), (13, 15)]
    taken = book.nack([(10, 16)], 0, now=5, delay_s=lambda _: 0, is_free=False, counts=False)
    assert (taken.messages, book.redeliveries) == (6, {})
    set_aside(book, FOUND)
    book.end_waits(5)
    assert windows(book, 10, 16) == [(10, 11, []), (12, 13, []), (15, 16, [])]
    assert book.in_flight == 3


@pytest.mark.parametrize(
    ("told", "is_explained"),
    [
        ([(10, 11)], False),
        ([(10, 12)], True),
        ([(12, 13)], False),
        ([(10, 11), (15, 16)], True),
        ([(14, 20)], True),
        ([], False),
    ],
)
def test_a_window_that_touches_it_is_explained(told, is_explained):
    assert explains(FOUND, told) is is_explained
    assert not explains(NOTHING, told)


def test_behind_many_stretches_all_counts():
    places = [(at, at + 1) for at in range(0, 100, 2)]
    found = Unreadable.of_batch(0, 100, places)
    assert len(found.ranges) == MAX_RUNS
    assert found.ranges[-1] == (2 * MAX_RUNS - 2, 100)
    assert [offset in found for offset in (0, 1, 99, 100)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("bodies", "places"),
    [
        ([b"ok", b"ok"], []),
        ([None, b"ok", None, None], [(0, 1), (2, 4)]),
        ([b"ok", None], [(1, 2)]),
    ],
)
def test_the_places_that_do_not_decode_are_found(bodies, places):
    encoded = [
        b"\xc1\xc1" if each is None else batch.encode_message(batch.Message("k", each))
        for each in bodies
    ]
    assert batch.undecodable(batch.encode(encoded, [0] * len(bodies))) == places


def test_nothing_of_a_body_that_does_not_open_decodes():
    bodies = [batch.encode_message(batch.Message("k", b"v" * 999))] * 3
    data = bytearray(batch.encode(bodies, [0] * 3, codec=batch.Codec.LZ4))
    at = batch.read_header(bytes(data)).body_at
    data[at:] = b"\xff" * (len(data) - at)
    assert batch.undecodable(bytes(data)) == [(0, 3)]
