"""What a book of several shares does, one rule at a time."""

from array import array

import pytest

from partq.core.lanes.shared_book import SharedBook
from partq.core.model import SLOT_COUNT, Cause
from partq.errors import BadRequestError, NotDeliveredError, RewoundError
from tests.core.batches import Batch
from tests.core.lanes.lanes import nack, taken

X, Y = 7, 513


class Partition:
    """A batch, and a book with the shares of two members."""

    def __init__(self, *lanes, **owners):
        self.batch = Batch(0, len(lanes), array("H", lanes))
        self.book = SharedBook(0)
        (self.a_number, self.a), (self.b_number, self.b) = (
            self.book.open_share(),
            self.book.open_share(),
        )
        self.assign(**owners)

    def assign(self, *, x="a", y="b"):
        table = bytearray(SLOT_COUNT)
        for lane, owner in ((X, x), (Y, y)):
            table[lane] = getattr(self, f"{owner}_number")
        return self.book.assign(bytes(table))

    def send(self, share):
        """Return what a share is sent, all that it may have."""
        sent, stop = [], self.batch.count
        while share.next_again is not None:
            sent += taken(share.take_again(stop, 100))
        while share.position < stop and (window := share.take(self.batch, stop, 100)):
            sent += taken(window)
        return sent


def ack(share, *offsets, number=0):
    return share.ack(-1, [(o, o + 1) for o in offsets], number)


def test_each_share_is_sent_what_is_of_its_lanes():
    at = Partition(X, Y, X, Y, X)
    assert (at.send(at.a), at.send(at.b)) == ([0, 2, 4], [1, 3])
    assert (at.a.in_flight, at.b.in_flight, at.book.in_flight) == (3, 2, 5)
    assert at.book.delivered(0, 5) == [(0, 5)]
    ack(at.a, 0, 2)
    assert (at.book.cursor, at.a.cursor, at.b.cursor) == (1, 1, 1)
    ack(at.b, 1)
    assert at.book.cursor == 3


def test_what_nobody_has_is_sent_once_somebody_has_it():
    at = Partition(X, Y)
    at.book.assign(bytes(SLOT_COUNT))
    assert (at.send(at.a), at.send(at.b)) == ([], [])
    at.assign()
    assert (at.send(at.a), at.send(at.b)) == ([0], [1])


def test_a_lane_of_which_nothing_is_held_moves_at_once():
    at = Partition(X, Y, X, Y)
    at.send(at.a)
    ack(at.a, 0, 2)
    at.send(at.b)
    assert at.assign(x="b") == {}
    assert not at.book.draining


def test_a_lane_drains_at_its_former_owner_which_is_asked_back():
    at = Partition(X, X, Y, X)
    assert at.send(at.a) == [0, 1, 3]
    asked = at.assign(x="b")
    assert asked == {at.a_number: (frozenset([X]), 1)}
    assert (at.book.draining, at.send(at.b)) == ({X: at.a_number}, [2])
    assert at.a.returned([(1, 2), (3, 4)], 1) == 2
    assert at.send(at.b) == []
    ack(at.a, 0)
    assert not at.book.draining
    assert at.send(at.b) == [1, 3]


def test_a_lane_that_moves_back_is_at_once_at_the_former_owner_again():
    at = Partition(X, X, Y)
    at.send(at.a)
    at.assign(x="b")
    assert at.assign(x="a") == {}
    assert not at.book.draining
    at.a.returned([(1, 2)], 1)
    assert at.send(at.a) == [1]


def test_what_is_owed_is_not_sent_to_who_owes_it():
    at = Partition(X, X, Y)
    at.send(at.a)
    at.assign(x="b")
    ack(at.a, 0)
    at.assign(x="a")
    at.a.release(1, 0)
    assert at.send(at.a) == []
    at.a.returned([], 1)
    assert at.send(at.a) == [1]


def test_a_lane_is_taken_by_force_alone_and_its_lowest_counts():
    at = Partition(X, X, Y)
    at.send(at.a)
    at.send(at.b)
    at.assign(x="b")
    assert at.book.force([X, Y]) == {at.a_number: [0, 1]}
    assert at.book.redeliveries == {0: 1}
    assert at.send(at.b) == []
    at.book.counts_stored(at.book.counts_made)
    window = at.b.take_again(3, 100)
    assert (taken(window), window.cause) == ([0], Cause.FORCED_COMMIT), "what has failed goes alone"
    ack(at.b, 0, number=at.b.number)
    assert at.send(at.b) == [1]


def test_the_ack_of_a_copy_that_was_taken_by_force_counts_no_more():
    at = Partition(X, Y)
    at.send(at.a)
    at.assign(x="b")
    at.book.force([X])
    at.book.counts_stored(at.book.counts_made)
    at.assign(x="a")
    at.a.returned([], 1)
    assert at.send(at.a) == [0]
    with pytest.raises(NotDeliveredError):
        ack(at.a, 0, number=0)
    assert ack(at.a, 0, number=at.a.number) == 1


def test_the_ack_of_a_copy_that_timed_out_counts_until_another_copy_is_sent():
    at = Partition(X, Y, X)
    at.send(at.a)
    for offset in (0, 2):
        at.a.begin([(offset, offset + 1)], 0, 1.0)
    assert at.a.time_out(1.0, now=1.0, delay_s=lambda _: 0.0).messages == 2
    with pytest.raises(NotDeliveredError):
        ack(at.a, 2)  # 0 may be sent to somebody else meanwhile
    assert ack(at.a, 0) == 0
    assert at.book.cursor == 1
    at.book.counts_stored(at.book.counts_made)
    at.book.end_waits(1.0)
    assert at.send(at.a) == [2]
    with pytest.raises(NotDeliveredError):
        ack(at.a, 2)
    assert ack(at.a, 2, number=1) == 1


def test_an_ack_counts_only_from_the_share_that_has_the_message():
    at = Partition(X, Y)
    at.send(at.a)
    at.send(at.b)
    with pytest.raises(NotDeliveredError):
        ack(at.b, 0)
    assert at.a.delivered(0, 2) == [(0, 1)]
    with pytest.raises(RewoundError):
        ack(at.a, 0, number=1)


def test_a_nack_holds_its_lane_up_wherever_it_moves():
    at = Partition(X, Y, X)
    at.send(at.a)
    ack(at.a, 2)
    nack(at.a, 0, delay_s=9)
    at.assign(x="b")
    at.book.counts_stored(at.book.counts_made)
    assert at.send(at.b) == [1]
    at.a.end_waits(9)
    assert at.book.pop_news()
    assert at.send(at.b) == [0]


def test_the_messages_of_a_lost_share_go_to_who_has_its_lanes():
    at = Partition(X, X, Y)
    at.send(at.a)
    at.send(at.b)
    at.book.close_share(at.a_number, Cause.FLOW_LOST)
    at.assign(x="b")
    assert at.send(at.b) == []
    at.book.counts_stored(at.book.counts_made)
    assert at.send(at.b) == [0]
    ack(at.b, 0)
    assert at.send(at.b) == [1]


def test_dead_letters_end_what_any_share_has():
    at = Partition(X, Y, X)
    at.send(at.a)
    at.send(at.b)
    assert at.book.discard([(0, 2)]) == 2
    assert (at.a.in_flight, at.b.in_flight, at.book.cursor) == (1, 0, 2)


def test_a_batch_that_does_not_decode_is_set_aside_but_for_what_others_have():
    at = Partition(X, Y, X)
    at.send(at.b)
    assert at.a.pass_over(0, 3) == [(0, 1), (2, 3)]
    assert at.send(at.a) == []


def test_the_span_is_that_of_all_shares():
    at = Partition(X, Y, X, Y)
    at.book.max_span = 2
    assert (at.send(at.a), at.send(at.b)) == ([0], [1])
    at.book.pop_news()
    ack(at.a, 0)
    assert at.book.pop_news()
    assert (at.send(at.a), at.send(at.b)) == ([2], [])
    ack(at.b, 1)
    assert at.send(at.b) == [3]


def test_a_book_that_begins_elsewhere_has_no_shares():
    at = Partition(X, Y, X)
    at.send(at.a)
    book = at.book.moved_to(1)
    assert (book.cursor, book.in_flight, book.sent_end) == (1, 0, 3)
    _, share = book.open_share()
    assert share.take(at.batch, 3, 100) is None


def test_a_cumulative_ack_is_refused_and_counts_for_nothing():
    at = Partition(X, Y, X)
    at.send(at.a)
    with pytest.raises(BadRequestError):
        at.a.ack(3, [], 0)
    assert (at.book.cursor, at.a.in_flight) == (0, 2)


def test_a_lane_drains_no_more_when_its_former_owner_is_lost():
    at = Partition(X, Y, X)
    at.send(at.a)
    at.assign(x="b")
    at.book.close_share(at.a_number, Cause.RELEASED)
    at.assign(x="b")
    assert not at.book.draining
    assert at.send(at.b) == [0, 1, 2]


def test_the_rest_of_a_lane_whose_time_is_over_is_asked_back():
    at = Partition(X, Y, X)
    at.send(at.a)
    at.a.begin([(0, 1)], 0, 1.0)
    taken = at.a.time_out(1.0, now=1.0, delay_s=lambda _: 0.0)
    assert (taken.messages, taken.asked) == (1, {X})


def test_what_keys_wait_for_is_stored_for_all_shares():
    at = Partition(X, Y)
    at.send(at.a)
    at.send(at.b)
    nack(at.a, 0, delay_s=9)
    nack(at.b, 1, delay_s=7)
    assert at.book.parked == {X: 9, Y: 7}


def test_what_a_claim_found_acknowledged_comes_again_for_a_reset_though_nothing_was_sent_since():
    book = SharedBook(0, [(1, 2)])
    book.mark(3, Cause.BROKER_CHANGE)
    moved = book.moved_to(0)
    assert moved.sent_end == 3
    assert SharedBook(0, [(1, 2)]).moved_to(0).sent_end == 2
