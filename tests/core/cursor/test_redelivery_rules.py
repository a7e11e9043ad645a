"""How long messages wait that come again, and which were in hand for too long."""

import pytest

from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.redelivery_rules import RedeliveryBackoff, RedeliveryRules
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.resources.redelivery import AckPolicy, NackPolicy
from tests.core.batches import BATCH

DOUBLING = RedeliveryBackoff(1, 60, 2)


def at_once(count):
    return 0.0


def delivered(stop, *, begun=None, at=0.0):
    """A book whose flow has got all below `stop`, and has begun all below `begun`."""
    book = GroupCursor(0)
    book.take(BATCH, stop, stop)
    if begun is not None:
        book.begin([(0, begun)], 0, at)
    return book


def time_out(book, since, *, now=100.0, is_free=False):
    return book.time_out(since, now=now, delay_s=at_once, is_free=is_free)


@pytest.mark.req("PUL-29")
def test_nacks_back_off_as_the_table_says():
    rules = RedeliveryRules(nack_backoff=DOUBLING)
    assert [rules.after_nack_s(n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.req("PUL-34")
def test_ack_timeouts_back_off_as_the_table_says():
    rules = RedeliveryRules(ack_timeout_s=10, ack_backoff=DOUBLING)
    waits = [rules.ack_timeout_s + rules.after_timeout_s(n) for n in range(1, 9)]
    assert waits == [10 + 1, 10 + 2, 10 + 4, 10 + 8, 10 + 16, 10 + 32, 10 + 60, 10 + 60]


def test_a_backoff_does_not_outgrow_what_can_be_counted():
    assert RedeliveryBackoff(1, 60, 100).delay_s(100_000) == 60


@pytest.mark.req("PUL-28", "PUL-31")
def test_the_defaults():
    rules = RedeliveryRules()
    assert [rules.after_nack_s(n) for n in (1, 5)] == [60, 60]
    assert RedeliveryRules(nack_delay_s=2).after_nack_s(1) == 2
    assert rules.ack_timeout_s == 0
    assert rules.after_timeout_s(3) == 0


def test_the_defaults_are_those_of_the_resource():
    rules, ack, nack = RedeliveryRules(), AckPolicy(), NackPolicy()
    assert rules.order == nack.order
    assert (rules.nack_delay_s, rules.nack_backoff) == (nack.delay_seconds, nack.backoff)
    assert (rules.ack_timeout_s, rules.ack_tick_s) == (ack.timeout_seconds, ack.tick_seconds)
    assert rules.ack_backoff == ack.backoff


def test_what_was_begun_long_ago_and_not_acknowledged_is_late():
    book = delivered(10, begun=4)
    book.begin([(4, 7)], 0, 5.0)
    book.ack(2, [(3, 4)], 0)
    late = time_out(book, 0.0)
    assert (late.counted, late.rewound_from) == (1, 2)
    assert book.redeliveries == {2: 1}, "not those that have time left or were not begun"
    book.end_waits(100.0)
    again = book.take(BATCH, 10, 10)
    assert (again.start, again.skip, again.cause) == (2, [(3, 4)], Cause.ACK_TIMEOUT)


def test_what_comes_again_has_all_its_time_again():
    book = delivered(3, begun=3)
    assert time_out(book, 0.0).counted == 3
    assert time_out(book, 50.0).counted == 0, "nothing of it was sent again"
    book.end_waits(100.0)
    book.take(BATCH, 3, 3)
    assert time_out(book, 200.0).counted == 0, "nothing of it has begun again"
    book.begin([(0, 2)], 1, 110.0)
    assert time_out(book, 109.0).counted == 0
    assert time_out(book, 110.0).counted == 2
    assert book.redeliveries == {0: 2, 1: 2, 2: 1}


def test_word_of_an_older_delivery_does_not_begin_what_comes_again():
    book = delivered(6, begun=6)
    book.nack([(3, 4)], 0, now=0, delay_s=at_once, is_free=False)
    book.end_waits(0)
    book.take(BATCH, 6, 6)
    book.begin([(0, 6)], 0, 1.0)  # was on its way
    assert time_out(book, 50.0).counted == 3, "0 to 2 are still in hand, 3 to 5 are not yet"


def test_what_was_not_delivered_cannot_begin():
    book = delivered(2)
    book.begin([(0, 9)], 0, 1.0)
    book.take(BATCH, 9, 9)
    assert time_out(book, 50.0).counted == 2


def test_a_lost_flow_ends_the_watch():
    book = delivered(5, begun=5)
    book.rewind(Cause.FLOW_LOST)
    book.take(BATCH, 5, 5)
    assert time_out(book, 50.0).counted == 0


def test_in_free_order_only_the_late_message_comes_again():
    book = delivered(5, begun=5)
    book.ack(-1, [(0, 2), (3, 5)], 0)
    late = time_out(book, 0.0, is_free=True)
    assert (late.counted, late.messages, late.rewound_from, book.number) == (1, 1, None, 0)
    book.end_waits(100.0)
    again = book.take_again(5, 10)
    assert (again.start, again.stop, again.cause) == (2, 3, Cause.ACK_TIMEOUT)
    assert time_out(book, 300.0, is_free=True).counted == 0, "it has not begun again"
    book.begin([(2, 3)], 0, 310.0)
    assert time_out(book, 309.0, is_free=True).counted == 0
    assert time_out(book, 310.0, is_free=True).counted == 1


def test_a_message_of_free_order_is_judged_by_its_last_delivery():
    book = delivered(5, begun=5)
    book.nack([(1, 2)], 0, now=0, delay_s=at_once, is_free=True)
    book.end_waits(0)
    assert book.take_again(5, 10).start == 1
    book.begin([(1, 2)], 0, 30.0)
    assert time_out(book, 20.0, is_free=True).counted == 4, "all but the one that came again"


def test_what_is_above_a_limit():
    book = delivered(3)
    for _ in range(3):
        book.nack([(0, 1), (2, 3)], book.number, now=0, delay_s=at_once, is_free=False)
        book.end_waits(0)
        book.take(BATCH, 3, 3)
    book.nack([(2, 3)], book.number, now=0, delay_s=at_once, is_free=False)
    assert book.redeliveries == {0: 3, 2: 4}
    assert [book.exceeding(limit) for limit in (2, 3, 4)] == [[0, 2], [2], []]


def test_a_cumulative_ack_leaves_out_what_waits():
    """It may have been given back by another member: nobody who acknowledges has got it."""
    book = delivered(8)
    book.nack([(2, 4)], 0, now=0, delay_s=lambda count: 10, is_free=True)
    assert book.ack(6, [], 0) == 4
    assert (book.cursor, book.acked.pairs(), book.in_flight) == (2, [(4, 6)], 2)
    assert (2 in book.waiting, book.redeliveries) == (True, {2: 1, 3: 1})
    book.ack(3, [], 0)
    assert book.cursor == 3, "the message that it names was given back, and is acknowledged"


def test_a_cumulative_ack_leaves_out_what_was_sent_out_of_turn_after_its_message():
    """That may still be on its way; who got a later message in turn has got it before."""
    book = delivered(6)
    book.nack([(2, 4)], 0, now=0, delay_s=at_once, is_free=True)
    book.end_waits(0)
    assert book.take_again(8, 8).start == 2
    book.ack(6, [], 0)
    assert (book.cursor, book.acked.pairs(), book.in_flight) == (2, [(4, 6)], 2)
    book.take(BATCH, 8, 8)
    book.ack(7, [], 0)
    assert (book.cursor, book.in_flight) == (7, 1)


def test_after_a_step_back_a_later_message_is_one_that_is_sent_again():
    book = delivered(6)
    book.nack([(1, 2)], 0, now=0, delay_s=at_once, is_free=True)
    book.end_waits(0)
    book.take_again(8, 8)
    book.release(4, 0)
    book.take(BATCH, 8, 8)
    book.ack(4, [], 1)
    assert (book.cursor, book.acked.pairs()) == (1, [(2, 4)])
    book.ack(5, [], 1)
    assert book.cursor == 5


@pytest.mark.req("PUL-27")
def test_a_nack_of_what_has_timed_out_counts_once():
    """Its time is over, it was not sent again for want of credit, and the first copy is nacked."""
    book = delivered(2, begun=1)
    assert time_out(book, 0.0, now=0.0).counted == 1
    book.end_waits(0)
    late = book.nack([(0, 1)], 0, now=0, delay_s=at_once, is_free=False)
    assert (late.counted, book.redeliveries) == (0, {0: 1})
    book.take(BATCH, 2, 2)
    again = book.nack([(0, 1)], book.number, now=0, delay_s=at_once, is_free=False)
    assert (again.counted, book.redeliveries) == (1, {0: 2})


def test_a_lost_flow_does_not_count_against_what_it_was_never_sent():
    """It was taken, and waited for its audit record."""
    book = delivered(3)
    book.nack([(0, 1)], 0, now=0, delay_s=at_once, is_free=True)
    book.end_waits(0)
    book.take_again(3, 1)
    book.rewind(Cause.FLOW_LOST, Ranges([(0, 1), (2, 3)]))
    assert book.redeliveries == {0: 1, 1: 1}
    book.take(BATCH, 3, 3)
    book.rewind(Cause.FLOW_LOST, Ranges([(0, 3)]))
    assert book.redeliveries == {0: 1, 1: 1}
