"""A book that lies in too many pieces gets nothing new, and can always be closed."""

import pytest

from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.horizon import ACK_SPAN, MAX_PIECES
from tests.core.batches import BATCH

STOP = 50_000


def leave_holes(book, count):
    """Acknowledge every second message from the cursor on, so that there are so many ranges."""
    start = book.cursor + 1
    book.ack(-1, [(at, at + 1) for at in range(start, start + 2 * count, 2)], book.number)


def test_nothing_new_is_sent_while_there_are_too_many_holes():
    book = GroupCursor(0)
    assert book.take(BATCH, STOP, 10_000).stop == 10_000
    leave_holes(book, MAX_PIECES)
    assert book.take(BATCH, STOP, 10).stop == 10_010, "as many as that are no matter"
    book.ack(-1, [(9000, 9001)], 0)
    assert book.is_scattered
    assert book.take(BATCH, STOP, 10) is None
    book.ack(-1, [(0, 1)], 0)
    assert not book.is_scattered, "an ack that closes a hole always counts"
    assert book.take(BATCH, STOP, 10).start == 10_010


def test_the_holes_come_again_when_their_flow_is_lost():
    """Also at another broker, and of a book that an older one has stored."""
    book = GroupCursor(0, [(at, at + 1) for at in range(1, 20_000, 2)])
    end, windows = 0, 0
    while (window := book.take(BATCH, STOP, 100)) is not None:
        assert window.stop <= 20_000
        end, windows = window.stop, windows + 1
        book.ack(end, [], 0)
        if not book.is_scattered:
            break
    assert (len(book.acked), book.cursor) == (MAX_PIECES, end)
    assert windows == (10_000 - MAX_PIECES) // 100


@pytest.mark.parametrize("is_free", [False, True])
def test_nothing_new_is_sent_while_too_many_messages_failed(is_free):
    book = GroupCursor(0)
    book.take(BATCH, STOP, 3000)
    failed = [(0, MAX_PIECES + 1)]
    book.nack(failed, 0, now=0, delay_s=lambda _: 60, is_free=is_free)
    assert book.is_scattered
    assert book.take(BATCH, STOP, 10) is None
    book.end_waits(60)
    window = (book.take_again if is_free else lambda *most: book.take(BATCH, *most))(STOP, 10_000)
    assert (window.start, window.stop) == (0, MAX_PIECES + 1), "what failed comes again"
    book.ack(-1, [(0, 1)], book.number)
    assert not book.is_scattered
    window = book.take(BATCH, STOP, 10)
    assert window.start == (3000 if is_free else MAX_PIECES + 1)


def test_a_book_in_few_pieces_gets_as_many_as_its_span_takes():
    book = GroupCursor(5, [(9, 10)])
    assert book.take(BATCH, 10 * ACK_SPAN, 10 * ACK_SPAN).stop == 5 + ACK_SPAN
