"""What a book of lanes does when a flow, a broker or a bound ends something."""

import pytest

from partq.core.lanes.codec import MAX_BITS, decode_bits, encode_bits
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.parked_lanes import ALL_LANES, ParkedLanes, restored
from partq.core.model import Cause
from partq.core.ranges import Ranges
from tests.core.lanes.lanes import A, B, C, batch, book_of, many, nack, store, taken

# ---- flows and brokers --------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [Cause.FLOW_LOST, Cause.FORCED_COMMIT])
def test_what_a_lost_flow_had_goes_out_again_and_the_lowest_counts(cause):
    book = book_of(A, B, A, B)
    book.ack(-1, [(0, 1)], 0)
    assert book.redeliveries_after_rewind() == {1: 1}
    book.rewind(cause)
    assert (book.redeliveries, book.in_flight, book.position) == ({1: 1}, 0, 1)
    window = book.take(batch(A, B, A, B), 4, 9)
    assert (taken(window), window.cause) == ([2], cause), "the count of the other is not stored"
    store(book)
    assert taken(book.take_again(4, 9)) == [1]
    book.ack(-1, [(1, 2)], 0)
    assert taken(book.take_again(4, 9)) == [3]


def test_what_no_client_has_does_not_count():
    book = book_of(A, B, A)
    unsent = Ranges([(0, 2)])
    assert book.redeliveries_after_rewind(unsent) == {2: 1}
    book.rewind(Cause.FLOW_LOST, unsent)
    assert book.redeliveries == {2: 1}


def test_a_broker_change_counts_for_nothing_and_a_notice_ends_with_its_flow():
    book = book_of(A, B, A)
    nack(book, 0)
    store(book)
    book.end_waits(0)
    book.ask_back()
    book.rewind(Cause.BROKER_CHANGE)
    assert book.redeliveries == {0: 1}
    assert taken(book.take(batch(A, B, A), 3, 9)) == [0, 1, 2]


def test_lanes_wait_on_under_the_next_token_and_at_the_next_broker():
    book = book_of(A, B, A)
    nack(book, 0, delay_s=30)
    store(book)
    book.rewind(Cause.FLOW_LOST)
    store(book)
    again = LaneBook(0, book.acked_pairs(), book.redeliveries, parked=book.parked)
    for each in (book, again):
        assert taken(each.take(batch(A, B, A), 3, 9)) == [1]
        assert each.next_due == 30
        each.end_waits(30)
        assert taken(each.take_again(3, 9)) == [0]
        each.ack(-1, [(0, 1)], 0)
        assert taken(each.take_again(3, 9)) == [2]


def test_the_next_broker_waits_for_the_rest_and_no_longer_than_the_rules_say():
    parked = {A: 70_000, B: 10_000, C: 10**15}
    clocks = {"written_ms": 30_000, "now": 5.0, "longest_s": 60}
    assert restored(parked, store_ms=40_000, **clocks) == {A: 35, B: 5, C: 65}
    set_back = restored(parked, store_ms=10_000, **clocks)
    assert set_back == {A: 45, B: 5, C: 65}, "as if no time had passed, and no longer"


def test_a_reset_forgets_what_waits():
    book = book_of(A, B, A, max_span=1234, max_parked=56)
    nack(book, 0, delay_s=30)
    moved = book.moved_to(1)
    assert (moved.cursor, moved.parked, moved.redeliveries) == (1, {}, {})
    assert (moved.max_span, moved.max_parked) == (1234, 56)
    assert moved.take(batch(A, B, A, C), 4, 9).causes == bytes([8, 8, 0])


# ---- bounds -------------------------------------------------------------------------------------


def test_beyond_the_span_nothing_new_is_sent():
    book = LaneBook(0, max_span=1000)
    assert book.take(many(3000), 3000, 10_000).messages == 1000
    book.ack(-1, [(1, 1000)], 0)
    assert book.take(many(3000), 3000, 10_000) is None
    assert book.stands_still == (
        "SpanFull: all that may be sent above the cursor is, 1000 offsets; offset 0 of slot 513 is "
        "in flight"
    )
    nack(book, 0)
    assert book.stands_still.endswith("offset 0 of slot 513 waits to be sent")
    store(book)
    book.end_waits(0)
    assert taken(book.take_again(3000, 9)) == [0], "what is due goes out again"
    book.ack(-1, [(0, 1)], 0)
    assert (book.cursor, book.stands_still) == (1000, "")
    assert book.take(many(3000), 3000, 10_000).messages == 1000


def test_with_too_many_lanes_that_wait_nothing_new_is_sent_and_none_is_lost():
    book = book_of(*range(6), max_parked=3)
    nack(book, 0, 1, 2, delay_s=10)
    assert book.stands_still == ""
    nack(book, 3, delay_s=20)
    nack(book, 4, delay_s=30)
    store(book)
    assert book.stands_still.startswith(
        "KeysParked: 5 keys wait for their redelivery, and at most 3"
    )
    assert book.take(batch(9, first=6), 7, 9) is None
    book.ack(-1, [(5, 6)], 0)
    book.end_waits(10)
    assert taken(book.take_again(6, 9)) == [0, 1, 2], "what is due goes out again"
    assert taken(book.take(batch(9, first=6), 7, 9)) == [6]
    assert book.parked == {3: 20, 4: 30}


def test_of_too_many_lanes_the_rest_is_stored_as_one_and_none_goes_out_too_early():
    book = book_of(*range(6), max_parked=3)
    for offset in range(6):
        nack(book, offset, delay_s=10 * offset)
    assert book.parked == {3: 30, 4: 40, 5: 50, ALL_LANES: 20}
    again = LaneBook(0, parked=book.parked, max_parked=3)
    assert again.stands_still == (
        "KeysParked: all keys wait, until a delay is over, as more than 3 waited when the broker "
        "claimed the partition; offset 0 waits to be sent"
    )
    assert (again.list_parked(), again.lowest_parked) == (
        [(3, 30, -1, False), (4, 40, -1, False), (5, 50, -1, False)],
        -1,
    )
    alone = LaneBook(0, parked={ALL_LANES: 20})
    assert (alone.list_parked(), alone.lowest_parked, alone.unpark(3)) == ([], -1, False)
    again.end_waits(19.9)
    assert (again.take(batch(*range(6)), 6, 9), again.next_due) == (None, 20)
    again.end_waits(20)
    assert taken(again.take(batch(*range(6)), 6, 9)) == [0, 1, 2]


def test_lanes_that_wait_as_one_are_told_apart_once_they_are_known():
    book = LaneBook(0, parked={A: 30, ALL_LANES: 20}, max_parked=1)
    assert book.are_all_parked
    book.park_by_name({A, B, 9})
    assert (book.are_all_parked, book.parked_count) == (False, 3)
    assert [each[:2] for each in book.list_parked()] == sorted([(A, 30), (B, 20), (9, 20)])
    assert book.parked == {A: 30, ALL_LANES: 20}, "it is stored as before"
    assert (book.unpark_all(), book.parked_count, book.unpark_all()) == (3, 0, 0)


def test_a_lane_can_be_let_go_before_its_time():
    book = book_of(A, B)
    nack(book, 0, delay_s=60)
    store(book)
    assert (book.list_parked(), book.lowest_parked) == ([(A, 60, 0, False)], 0)
    assert (book.unpark(B), book.unpark(A), book.unpark(A)) == (False, True, False)
    assert (book.next_again, book.list_parked(), book.lowest_parked) == (0, [], -1)


def test_the_table_of_waiting_lanes_counts_its_changes():
    parked = ParkedLanes(10)
    changes = [parked.changes]
    for step in (
        lambda: parked.park(A, 10),
        lambda: parked.park(A, 5),
        lambda: parked.park(B, 20),
        lambda: parked.end_waits(10),
        lambda: parked.remove(A),
        lambda: parked.remove(B),
    ):
        step()
        changes.append(parked.changes)
    assert changes == [0, 1, 1, 2, 3, 3, 4]


def test_a_sparse_book_is_small_as_it_is_stored():
    """At the default span, with every second message done: bits cost the same wherever they are."""
    book = LaneBook(0)
    book.take(many(20_000), 20_000, 20_000)
    book.ack(-1, [(at, at + 1) for at in range(1, 20_000, 2)], 0)
    assert len(book.stored_acks()) == 2501
    assert decode_bits(book.stored_acks(), 0) == book.acked_pairs()
    assert len(encode_bits(b"01" * (MAX_BITS // 2))) == 12_501


def test_memory_does_not_grow_with_what_is_done():
    book = LaneBook(0)
    for first in range(0, 200_000, 1000):
        book.take(many(1000, first=first), first + 1000, 1000)
        book.ack(-1, [(first, first + 1000)], 0)
    assert book.cursor == 200_000
    assert book._span.end - book._span._first <= 5096
    assert book.acked_pairs() == []


# ---- dead letters to be -------------------------------------------------------------------------


def test_a_dead_letter_to_be_holds_up_its_lane_alone():
    """Also one that the member has in hand, as an application asks for it."""
    book = book_of(A, B)
    book.doom([0])
    assert taken(book.take(batch(A, B, first=2), 4, 9)) == [3]
    assert book.next_again is None
    assert book.discard([(0, 1)]) == 1
    assert book.next_again is None, "it is not stored as one yet"
    book.spare(0)
    assert taken(book.take_again(4, 9)) == [2]


def test_a_lane_waits_for_each_of_its_dead_letters_to_be():
    book = book_of(A, A, A)
    nack(book, 0, 1, 2)
    store(book)
    book.doom([0, 1])
    book.end_waits(0)
    for offset in (0, 1):
        assert book.next_again is None
        book.discard([(offset, offset + 1)])
        book.spare(offset)
    assert book.next_again == 2


def test_the_lane_of_a_dead_letter_to_be_is_known_once_its_batch_is_read():
    """After a claim the record says what failed too often, and not of which key it is."""
    book = LaneBook(0, [(0, 1)], {2: 9})
    book.doom([2])
    assert taken(book.take(batch(A, B, A, B), 4, 9)) == [1, 3]
    book.spare(2)
    assert book.next_again == 2


def test_too_many_keys_that_wait_for_dead_letters_or_for_their_time_stop_what_is_new():
    book = book_of(A, B, C, max_parked=2)
    nack(book, 0, delay_s=9)
    book.doom([0, 1])
    assert (book.is_crowded, book.stands_still) == (False, ""), "a lane counts once"
    book.doom([2])
    assert book.is_crowded
    assert "3 keys wait" in book.stands_still
    assert book.take(batch(A + 1, first=3), 4, 9) is None
    book.spare(2)
    assert taken(book.take(batch(A + 1, first=3), 4, 9)) == [3]
