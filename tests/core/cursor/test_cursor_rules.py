"""What is worth a sentence of its own of how a book delivers, steps back and is acknowledged."""

import pytest

from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.horizon import ACK_SPAN
from partq.core.model import Cause
from partq.errors import NotDeliveredError, RewoundError
from tests.core.batches import BATCH, Batch
from tests.core.cursor.book_model import COUNTED


def sent(*, stop, batch_end=None, acked=()):
    """A book whose flow has got the offsets below `stop`."""
    book = GroupCursor(0, acked)
    assert book.take(BATCH, batch_end or stop, stop) is not None
    return book


def test_what_was_acknowledged_behind_the_position_is_not_sent_again():
    book = sent(stop=5, acked=[(5, 10)])
    book.ack(5, [], 0)  # the cursor passes the offsets that were acknowledged before
    assert (book.cursor, book.position) == (10, 10)
    window = book.take(Batch(5), 20, 100)
    assert (window.start, window.stop, window.cause) == (10, 20, Cause.NONE)


def test_a_cumulative_ack_counts_up_to_what_was_released_after_its_delivery():
    book = sent(stop=20)
    book.release(5, 0)  # a pause that lapses
    book.take(BATCH, 20, 15)
    book.release(15, 1)  # another one, while 5 to 15 are in hand
    assert book.ack(15, [], 1) == 15
    assert (book.cursor, book.in_flight) == (15, 0)


def test_a_cumulative_ack_does_not_reach_what_was_released():
    book = sent(stop=20)
    book.release(0, 0)
    book.take(BATCH, 20, 20)
    book.release(10, 1)
    with pytest.raises(RewoundError, match="under delivery 0; the current one is 2"):
        book.ack(1, [], 0)
    assert book.ack(-1, [(3, 4)], 0) == 1, "a single one is no mistake: it was delivered"


def test_a_cumulative_ack_reaches_no_further_than_the_earliest_step_back_since_it():
    """A later one may begin before it, and then is all that counts."""
    book = sent(stop=20)
    book.release(12, 0)
    book.release(4, 1)
    book.take(BATCH, 20, 20)
    with pytest.raises(RewoundError, match="under delivery 0; the current one is 2"):
        book.ack(10, [], 0)
    assert book.ack(4, [], 0) == 4


def test_a_new_token_knows_nothing_of_earlier_steps_back():
    """Its delivery numbers begin at 0 again: what was released under the old one is delivered."""
    book = sent(stop=20)
    book.release(4, 0)
    book.rewind(Cause.BROKER_CHANGE)
    while book.take(BATCH, 20, 20):
        pass
    book.release(12, 0)
    assert book.ack(10, [], 0) == 10


def test_steps_back_below_the_cursor_are_forgotten():
    """Else the book grows with each, for as long as its group consumes."""
    book = GroupCursor(0)
    for offset in range(100):
        book.take(BATCH, 200, 2)
        book.release(offset + 1, book.number)
        book.ack(offset + 1, [], book.number)
    assert (book.cursor, book.number) == (100, 100)
    assert len(book._releases) == 1


def test_a_window_was_rewound_if_a_later_step_back_begins_below_its_end():
    book = sent(stop=10)
    assert not book.was_rewound(10, 0)
    book.release(6, 0)
    book.release(4, 1)
    assert [book.was_rewound(stop, 0) for stop in (4, 5, 10)] == [False, True, True]
    book.take(BATCH, 10, 10)
    assert not book.was_rewound(10, book.number)


def test_what_was_released_is_delivered_only_once_it_is_sent_again():
    """Nobody has begun it: until then no ack of it counts, and after that it is as good as new."""
    book = sent(stop=10)
    book.release(4, 0)
    with pytest.raises(NotDeliveredError, match="ack up to 7; delivered up to 4"):
        book.ack(-1, [(6, 7)], 1)
    assert book.take(BATCH, 10, 10).new_from == 4
    assert book.ack(-1, [(6, 7)], 1) == 1


def test_released_messages_come_again_without_a_cause():
    book = sent(stop=8)
    book.release(3, 0)
    window = book.take(BATCH, 8, 8)
    assert (window.start, window.stop, window.cause) == (3, 8, Cause.NONE)
    assert book.number == 1


def test_a_window_has_one_cause():
    book = sent(stop=10)
    book.rewind(Cause.FLOW_LOST)
    windows = [book.take(BATCH, 30, 100) for _ in range(2)]
    assert [(w.start, w.stop, w.cause) for w in windows] == [
        (0, 10, Cause.FLOW_LOST), (10, 30, Cause.NONE),
    ]  # fmt: skip


def test_the_last_event_explains_an_offset():
    book = GroupCursor(0)
    book.mark(20, Cause.BROKER_CHANGE)
    book.take(BATCH, 30, 10)
    book.rewind(Cause.FORCED_COMMIT)
    windows = [book.take(BATCH, 30, 100) for _ in range(3)]
    assert [(w.stop, w.cause) for w in windows] == [
        (10, Cause.FORCED_COMMIT), (20, Cause.BROKER_CHANGE), (30, Cause.NONE),
    ]  # fmt: skip


@pytest.mark.parametrize("cause", list(COUNTED))
def test_a_fault_counts_for_the_lowest_message_only(cause):
    book = sent(stop=10)
    book.ack(2, [(4, 5)], 0)
    assert book.redeliveries_after_rewind() == {2: 1}
    book.rewind(cause)
    assert book.redeliveries == {2: 1}
    assert book.take(BATCH, 10, 10).redeliveries == [(2, 1)]
    book.ack(3, [], 0)
    assert book.redeliveries == {}


@pytest.mark.parametrize("cause", [Cause.BROKER_CHANGE, Cause.STORE_ROLLED_BACK])
def test_what_brokers_do_counts_against_no_message(cause):
    book = sent(stop=10)
    book.rewind(cause)
    assert book.redeliveries == {}


def test_a_rewind_with_nothing_in_flight_counts_for_nobody():
    book = sent(stop=10)
    book.ack(10, [], 0)
    book.rewind(Cause.FLOW_LOST)
    assert (book.redeliveries, book.position) == ({}, 10)


@pytest.mark.parametrize(("cursor", "windows"), [
    pytest.param(0, [(0, 12, Cause.RESET), (12, 20, Cause.NONE)], id="back"),
    pytest.param(8, [(8, 12, Cause.RESET), (12, 20, Cause.NONE)], id="inside what was sent"),
    pytest.param(15, [(15, 20, Cause.NONE)], id="forward"),
])  # fmt: skip
def test_a_reset_begins_again_and_says_so_of_what_was_sent_before(cursor, windows):
    book = sent(stop=12, batch_end=20)
    book.ack(5, [(7, 9)], 0)
    book = book.moved_to(cursor)
    assert (book.cursor, book.in_flight, book.acked.pairs(), book.number) == (cursor, 0, [], 0)
    found = [book.take(BATCH, 20, 100) for _ in windows]
    assert [(w.start, w.stop, w.cause) for w in found] == windows
    assert [w.skip for w in found] == [[]] * len(found)


def test_two_resets_forget_nothing_of_what_was_sent():
    book = sent(stop=12, batch_end=20)
    book = book.moved_to(20).moved_to(5)
    window = book.take(BATCH, 20, 100)
    assert (window.start, window.stop, window.cause) == (5, 20, Cause.RESET)


def test_a_reset_says_so_of_what_a_broker_before_it_may_have_sent():
    book = GroupCursor(0)
    book.mark(10, Cause.BROKER_CHANGE)  # as after a claim: nothing is sent yet
    book = book.moved_to(0)
    window = book.take(BATCH, 20, 100)
    assert (window.start, window.stop, window.cause) == (0, 10, Cause.RESET)


def test_nothing_is_sent_beyond_the_span_above_the_cursor():
    huge = 10 * ACK_SPAN
    book = GroupCursor(0)
    assert book.take(BATCH, huge, huge).stop == ACK_SPAN
    assert book.take(BATCH, huge, huge) is None
    book.ack(-1, [(1, ACK_SPAN)], 0)
    assert book.take(BATCH, huge, huge) is None, "the lowest one holds the cursor"
    book.ack(1, [], 0)
    assert book.cursor == ACK_SPAN
    assert book.take(BATCH, huge, huge).stop == 2 * ACK_SPAN


def test_no_credit_takes_nothing():
    book = GroupCursor(0)
    assert book.take(BATCH, 5, 0) is None
    assert (book.position, book.in_flight) == (0, 0)


def test_a_full_batch_acknowledged_in_every_other_place_is_cut_by_credit():
    count = 65_536
    book = sent(stop=count)
    book.ack(-1, [(offset, offset + 1) for offset in range(1, count, 2)], 0)
    book.rewind(Cause.FLOW_LOST)
    window = book.take(BATCH, count, 1000)
    assert (window.start, window.stop, window.messages) == (0, 2000, 1000)
    assert len(window.skip) == 1000


@pytest.mark.parametrize(("upto", "ranges", "number", "error"), [
    pytest.param(11, [], 0, NotDeliveredError, id="beyond what was delivered"),
    pytest.param(-1, [(0, 2), (9, 11)], 0, NotDeliveredError, id="one of the ranges is"),
    pytest.param(-1, [(3, 3)], 0, NotDeliveredError, id="an empty range"),
    pytest.param(-1, [(-2, 3)], 0, NotDeliveredError, id="a negative offset"),
    pytest.param(2**63, [], 0, NotDeliveredError, id="absurd"),
    pytest.param(5, [], 1, RewoundError, id="a delivery number that never was"),
])  # fmt: skip
def test_a_refused_ack_changes_nothing(upto, ranges, number, error):
    book = sent(stop=10)
    with pytest.raises(error):
        book.ack(upto, ranges, number)
    assert (book.cursor, book.in_flight, book.acked.pairs()) == (0, 10, [])


def test_a_message_that_waited_out_of_turn_keeps_its_cause_when_its_turn_comes():
    book = sent(stop=8)
    book.nack([(5, 6)], 0, now=0, delay_s=lambda count: 0, is_free=True)
    book.end_waits(0)
    book.release(4, 0)
    windows = [book.take(BATCH, 8, 8) for _ in range(3)]
    assert book.waiting.next_again is None
    assert [(w.start, w.cause) for w in windows] == [
        (4, Cause.NONE), (5, Cause.NACK), (6, Cause.NONE),
    ]  # fmt: skip


def test_nothing_behind_a_nacked_message_is_sent_before_it():
    book = sent(stop=8, batch_end=12)
    nacked = book.nack([(5, 6), (3, 4)], 0, now=0, delay_s=lambda count: 10, is_free=False)
    assert (nacked.messages, nacked.rewound_from, book.number) == (5, 3, 1)
    assert book.take(BATCH, 12, 12) is None
    book.ack(-1, [(4, 5)], 0)  # it was in hand
    book.end_waits(9.9)
    assert book.take(BATCH, 12, 12) is None
    book.end_waits(10)
    window = book.take(BATCH, 12, 12)
    assert (window.start, window.stop, window.skip, window.cause) == (3, 8, [(4, 5)], Cause.NACK)
    assert window.redeliveries == [(3, 1), (5, 1)]
    assert book.take(BATCH, 12, 12).cause is Cause.NONE


def test_what_is_nacked_was_begun_whatever_its_client_says():
    book = sent(stop=10)
    back = book.nack([(2, 5)], 0, now=0, delay_s=lambda count: 0.0, is_free=False, begun=1)
    assert (back.rewound_from, back.begun_upto, back.sent_upto) == (2, 5, 10)


def test_the_wait_outlives_the_member():
    book = sent(stop=8)
    book.nack([(5, 6)], 0, now=0, delay_s=lambda count: 10, is_free=False)
    book.ack(5, [], 0)
    assert book.in_flight == 0, "what waits holds no handoff up"
    book.rewind(Cause.NONE)
    assert book.take(BATCH, 8, 8) is None
    book.end_waits(10)
    assert book.take(BATCH, 8, 8).redeliveries == [(5, 1)]


def test_a_lost_flow_does_not_count_against_what_waits():
    book = sent(stop=8)
    book.nack([(0, 1)], 0, now=0, delay_s=lambda count: 10, is_free=True)
    book.rewind(Cause.FLOW_LOST)
    assert book.redeliveries == {0: 1, 1: 1}


def late(book, since):
    """The offsets that are taken back because they were begun at `since` or before."""
    return sorted(book.time_out(since, now=since, delay_s=lambda _: 9.0, is_free=True).offsets)


def test_of_what_is_in_progress_all_that_can_is_extended():
    """0 is acknowledged, 1 in process, 2 given back alone."""
    book = GroupCursor(0)
    book.take(BATCH, 3, 3)
    book.begin([(0, 3)], 0, 1.0)
    book.ack(1, [], 0)
    book.nack([(2, 3)], 0, now=0, delay_s=lambda _: 9.0, is_free=True)
    with pytest.raises(RewoundError, match="offset 2 was taken back"):
        book.extend([(0, 3)], 0, 5.0)
    assert late(book, 4.0) == []
    assert late(book, 5.0) == [1]


def test_only_the_last_delivery_of_a_message_is_extended():
    """2 was sent before a step back behind it, given back after it, and sent again alone."""
    book = GroupCursor(0)
    book.take(BATCH, 10, 10)
    book.begin([(0, 10)], 0, 1.0)
    book.release(5, 0)
    book.nack([(2, 3)], 0, now=1.0, delay_s=lambda _: 1.0, is_free=True)
    book.end_waits(2.0)
    book.take_again(10, 1)
    book.begin([(2, 3)], 1, 2.0)
    with pytest.raises(RewoundError, match="offset 2 was taken back"):
        book.extend([(0, 5)], 0, 5.0)
    assert late(book, 2.0) == [2]
    assert late(book, 5.0) == [0, 1, 3, 4]


def test_what_was_sent_before_a_step_back_can_be_extended_below_it():
    book = GroupCursor(0)
    book.take(BATCH, 10, 10)
    book.begin([(0, 10)], 0, 1.0)
    book.nack([(5, 6)], 0, now=0, delay_s=lambda _: 0.0, is_free=False)
    book.extend([(0, 5)], 0, 3.0)
    with pytest.raises(RewoundError):
        book.extend([(5, 6)], 0, 3.0)
    with pytest.raises(RewoundError):
        book.extend([(0, 1)], 2, 3.0)
    assert late(book, 2.0) == []
    assert late(book, 3.0) == [0, 1, 2, 3, 4]
