"""What a book of lanes does, one rule at a time."""

from array import array

import pytest

from partq.core.lanes.codec import MAX_BITS
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import Cause
from partq.errors import BadRequestError, ConflictError, NotDeliveredError, RewoundError
from tests.core.batches import Batch
from tests.core.lanes.lanes import A, B, C, batch, book_of, many, nack, store, taken

# ---- windows ------------------------------------------------------------------------------------


def test_a_window_of_all_has_no_mask():
    book = LaneBook(0)
    window = book.take(many(9), 9, 100)
    assert (window.start, window.stop, window.messages, window.mask) == (0, 9, 9, None)
    assert (window.skip, window.cause, window.causes, window.is_in_turn) == ([], 0, b"", True)
    assert (book.position, book.in_flight, book.number) == (9, 9, 0)


def test_a_mask_names_what_is_sent_the_least_significant_bit_first():
    book = book_of(A)
    nack(book, 0, delay_s=9)
    window = book.take(batch(B, A, B, B, A, B, B, B, B, A, B, first=1), 12, 100)
    assert (window.start, window.stop, window.messages) == (1, 12, 8)
    assert window.mask == bytes([0b11101101, 0b101])
    assert taken(window) == [1, 3, 4, 6, 7, 8, 9, 11]
    assert book.position == 12


def test_a_window_ends_with_its_credit_and_the_next_one_goes_on_there():
    book = LaneBook(0)
    windows = [book.take(many(9), 9, credit) for credit in (4, 0, 4, 4)]
    assert [taken(each) if each else None for each in windows] == [
        [0, 1, 2, 3], None, [4, 5, 6, 7], [8]
    ]  # fmt: skip


def test_a_window_starts_at_what_is_sent():
    book = LaneBook(0, [(0, 2), (4, 6)])
    window = book.take(many(9), 9, 100)
    assert (window.start, window.stop, taken(window)) == (2, 9, [2, 3, 6, 7, 8])
    assert book.take(many(3, first=9), 12, 100).start == 9


def test_the_book_asks_once_for_the_slots_of_a_batch():
    asked = []

    class Asked(Batch):
        @property
        def slots(self):
            asked.append(self.first)
            return array("H", [A]) * self.count

        @slots.setter
        def slots(self, slots):
            pass

    Asked.__init__ = lambda self, first, count: self.__dict__.update(first=first, count=count)
    book = LaneBook(0)
    for _ in range(3):
        book.take(Asked(0, 30), 30, 5)
    assert asked == [0]


def test_causes_are_told_one_by_one_where_they_differ():
    book = LaneBook(0)
    book.mark(3, Cause.BROKER_CHANGE)
    window = book.take(many(6), 6, 100)
    assert window.causes == bytes([3, 3, 3, 0, 0, 0])
    nack(book, 1)
    book.rewind(Cause.FLOW_LOST)
    store(book)
    book.end_waits(0)
    window = book.take(many(6), 6, 100)
    assert window.causes == bytes([1, 6, 1, 1, 1, 1])
    assert window.redeliveries == [(0, 1), (1, 1)]
    book.rewind(Cause.BROKER_CHANGE)
    assert (book.take(many(6), 6, 100).cause, book.take(many(6), 6, 9)) == (3, None)


def test_causes_beyond_what_was_read_are_kept_without_room_for_each():
    book = LaneBook(0)
    book.mark(10**9, Cause.BROKER_CHANGE)
    assert book.take(many(9), 9, 100).cause is Cause.BROKER_CHANGE
    book.mark(10**9, Cause.RESET, start=12)
    assert book.take(many(9, first=9), 18, 100).causes == bytes([3] * 3 + [8] * 6)


# ---- the rule: a message that failed holds up its lane alone ------------------------------------


def test_a_nack_takes_one_message_and_asks_for_the_rest_of_its_lane():
    book = book_of(A, B, A, C, A)
    back = nack(book, 0, delay_s=10)
    assert (back.counted, back.messages, back.offsets, back.rewound_from) == (1, 1, [0], None)
    assert (back.asked, back.notice) == (frozenset({A}), 1)
    assert (book.in_flight, book.redeliveries) == (4, {0: 1})
    assert book.delivered(0, 9) == [(1, 5)], "what has begun of it stays with the member"
    assert book.ack(-1, [(1, 4)], 0) == 3
    assert taken(book.take(batch(A, B, first=5), 7, 9)) == [6], "other lanes go on"


def test_what_comes_back_goes_out_in_order_after_the_delay():
    book = book_of(A, B, A, A)
    back = nack(book, 0, delay_s=10)
    store(book)
    assert book.returned([(2, 4)], back.notice) == 2
    assert (book.next_again, book.next_due, book.delayed) == (None, 10, 1)
    book.end_waits(9.9)
    assert book.next_again is None
    book.end_waits(10)
    assert book.next_again == 0
    window = book.take_again(4, 9)
    assert (taken(window), window.messages, window.is_in_turn) == ([0], 1, False)
    assert (window.cause, window.redeliveries) == (Cause.NACK, [(0, 1)])
    assert book.next_again is None, "it may fail again"
    assert book.ack(-1, [(0, 1)], 0) == 1
    window = book.take_again(4, 1)
    assert (taken(window), window.cause, window.redeliveries) == ([2], Cause.NONE, [])
    assert (book.next_again, book.take_again(4, 0)) == (3, None)
    assert taken(book.take_again(4, 9)) == [3]
    assert (book.next_again, book.in_flight) == (None, 3)


def test_a_message_that_fails_again_has_nothing_asked_back():
    """Nothing of its lane was sent behind it, whatever becomes of it."""
    book = book_of(A, B, A, A)
    book.returned([(2, 4)], nack(book, 0).notice)
    for _ in range(3):
        store(book)
        book.end_waits(0)
        assert taken(book.take_again(4, 9)) == [0]
        assert nack(book, 0).asked == frozenset()
    store(book)
    book.end_waits(0)
    assert taken(book.take_again(4, 9)) == [0]
    assert book.take(batch(A, B, first=4), 6, 9).start == 5
    assert book.discard([(0, 1)]) == 1, "it becomes a dead letter"
    assert taken(book.take_again(4, 9)) == [2, 3]


def test_what_is_returned_unread_goes_again_alone():
    book = book_of(A, A)
    book.returned([(1, 2)], nack(book, 0).notice)
    store(book)
    book.end_waits(0)
    assert taken(book.take_again(2, 9)) == [0]
    assert book.returned([(0, 1)], book.ask_back()) == 1
    assert taken(book.take_again(2, 9)) == [0]
    assert book.next_again is None


@pytest.mark.parametrize("first", ["answer", "count", "delay"])
def test_a_lane_goes_on_when_nothing_blocks_it_any_more(first):
    steps = {
        "answer": lambda book, back: book.returned([(2, 3)], back.notice),
        "count": lambda book, back: store(book),
        "delay": lambda book, back: book.end_waits(5),
    }
    book = book_of(A, B, A)
    back = nack(book, 0, delay_s=5)
    for step in (*(each for each in steps if each != first), first):
        assert book.next_again is None, f"before the {step}"
        assert book.take(batch(A, first=3), 4, 9) is None
        steps[step](book, back)
    assert book.next_again == 0


def test_nothing_is_asked_for_where_the_member_has_nothing_else():
    back = nack(book_of(A, B, C), 0, 2)
    assert (back.asked, back.notice) == (frozenset(), 0)


def test_one_notice_for_a_lane_is_open_at_a_time():
    book = book_of(A, A, A, B, B)
    first, second = nack(book, 0), nack(book, 1, 3)
    assert (first.asked, second.asked) == ({A}, {B})
    assert first.notice != second.notice
    store(book)
    book.end_waits(0)
    book.returned([(4, 5)], second.notice)
    assert taken(book.take_again(5, 9)) == [3], "of the other lane an answer is awaited"
    book.returned([(2, 3)], first.notice)
    assert taken(book.take_again(5, 9)) == [0]
    book.ack(-1, [(0, 1), (3, 4)], 0)
    assert taken(book.take_again(5, 9)) == [1, 4]


def test_an_answer_to_no_notice_ends_nothing():
    book = book_of(A, B, A)
    back = nack(book, 0)
    store(book)
    book.end_waits(0)
    assert book.returned([(2, 3), (1, 2)], back.notice + 1) == 2
    assert taken(book.take_again(3, 9)) == [1], "given back, and its lane is not blocked"
    assert book.next_again is None


def test_a_lane_waits_for_the_later_one_of_two_nacks():
    book = book_of(A, A)
    nack(book, 0, delay_s=60)
    nack(book, 1, delay_s=1)
    assert book.parked == {A: 60}
    nack(book, 0, 1, delay_s=99)
    assert book.parked == {A: 60}, "nobody had them"


def test_the_delay_is_that_of_the_count():
    book = book_of(A, B)
    for count in (1, 2, 3):
        book.nack([(0, 1)], 0, now=0, delay_s=lambda count: 10.0**count)
        assert book.next_due == 10**count
        store(book)
        book.end_waits(10**count)
        book.take_again(2, 9)
    assert book.exceeding(2) == [0]
    assert book.exceeding(3) == []


def test_a_nack_that_is_the_fault_of_another_message_does_not_count():
    book = book_of(A, B)
    book.nack([(0, 1)], 0, now=0, delay_s=lambda _: 0, counts=False)
    book.end_waits(0)
    assert (book.redeliveries, book.next_again) == ({}, 0)


def test_a_notice_for_all_stops_everything_until_its_answer():
    book = book_of(A, B, C)
    early = nack(book_of(A, A), 0).notice
    notice = book.ask_back()
    assert notice == early
    assert nack(book, 0).asked == frozenset(), "all is asked for already"
    store(book)
    book.end_waits(0)
    assert book.next_again is None
    assert book.take(many(3, first=3), 6, 9) is None
    assert book.returned([(1, 3)], notice) == 2
    assert taken(book.take_again(3, 9)) == [0, 1, 2]


def test_what_goes_again_waits_when_its_lane_fails_before_it_is_sent():
    book = book_of(A, B, A)
    book.release(1, 0)
    nack(book, 0, delay_s=10)
    assert taken(book.take_again(3, 9)) == [1]
    assert book.next_again is None
    store(book)
    book.end_waits(10)
    assert taken(book.take_again(3, 9)) == [0]
    book.ack(-1, [(0, 1)], 0)
    assert taken(book.take_again(3, 9)) == [2]


def test_nothing_new_is_sent_before_what_goes_again():
    book = book_of(A, B)
    book.release(0, 0)
    assert book.take(batch(A, first=2), 3, 9) is None
    assert taken(book.take_again(2, 1)) == [0]
    assert book.take(batch(A, first=2), 3, 9) is None
    assert taken(book.take_again(2, 9)) == [1]
    assert taken(book.take(batch(A, first=2), 3, 9)) == [2]


def test_a_slot_is_not_found_between_two_others():
    book = book_of(0x0201, 0x0201, 0x0102)
    nack(book, 0, 1)
    store(book)
    assert book.list_parked() == [(0x0201, 0, 0, False)]
    assert (book.unpark(0x0102), book.next_again) == (False, None)
    assert nack(book_of(0x0201, 0x0102, 0x0102), 0).asked == frozenset()


def test_what_a_member_releases_goes_out_again_without_a_cause():
    book = book_of(A, B, C)
    assert book.release(1, 0) == 2
    window = book.take_again(3, 9)
    assert (taken(window), window.cause, window.redeliveries) == ([1, 2], Cause.NONE, [])
    with pytest.raises(NotDeliveredError):
        book.release(4, 0)


# ---- acks ---------------------------------------------------------------------------------------


def test_an_ack_counts_for_what_the_member_has_and_says_how_many_it_has_not():
    book = book_of(A, B, A, B)
    nack(book, 0, 1)
    told = "ack: 2 of the messages are not delivered.*; the others are acknowledged"
    with pytest.raises(NotDeliveredError, match=told):
        book.ack(-1, [(0, 4)], 0)
    assert (book.cursor, book.acked_pairs(), book.in_flight) == (0, [(2, 4)], 0)
    assert book.ack(-1, [(2, 4)], 0) == 0, "a repeat"
    with pytest.raises(NotDeliveredError, match="ack: 3 of the messages"):
        book.ack(-1, [(3, 7)], 0)
    with pytest.raises(NotDeliveredError, match=r"ack: 2 .*; none is acknowledged by this"):
        book.ack(-1, [(0, 2)], 0)


def test_an_ack_moves_the_cursor_over_all_that_is_done():
    book = book_of(A, B, C, A, B)
    book.ack(-1, [(1, 3), (4, 5)], 0)
    assert (book.cursor, book.acked_pairs()) == (0, [(1, 3), (4, 5)])
    book.ack(-1, [(0, 1)], 0)
    assert (book.cursor, book.acked_pairs()) == (3, [(4, 5)])
    assert (book.is_done(3), book.is_done(4), book.is_done(9)) == (False, True, False)
    assert (book.undone(0, 9), book.undone(4, 5)) == ([(3, 4), (5, 9)], [])


def test_a_cumulative_ack_is_refused():
    book = book_of(A, B)
    with pytest.raises(BadRequestError, match="order Key"):
        book.ack(1, [], 0)
    assert book.in_flight == 2


@pytest.mark.parametrize("what", ["ack", "nack", "release", "extend", "not_done"])
def test_there_is_one_delivery_number(what):
    book, one = book_of(A, B), [(0, 1)]
    calls = {
        "ack": lambda: book.ack(-1, one, 1),
        "nack": lambda: book.nack(one, 1, now=0, delay_s=float),
        "release": lambda: book.release(0, 1),
        "extend": lambda: book.extend(one, 1, 0),
        "not_done": lambda: book.not_done(one, 1, most=1),
    }
    with pytest.raises(RewoundError):
        calls[what]()
    assert (book.in_flight, book.redeliveries) == (2, {})


@pytest.mark.parametrize("ranges", [[(0, 3)], [(-1, 1)], [(1, 1)], [(0, 2**60)]])
def test_a_nack_of_what_was_never_delivered_changes_nothing(ranges):
    book = book_of(A, B)
    with pytest.raises(NotDeliveredError):
        book.nack(ranges, 0, now=0, delay_s=float)
    assert book.in_flight == 2


# ---- time ---------------------------------------------------------------------------------------


def time_out(book, since, now):
    return book.time_out(since, now=now, delay_s=lambda _: 9.0)


def test_the_first_copy_of_what_has_timed_out_may_still_be_acknowledged():
    book = book_of(A, A, B)
    book.begin([(0, 1)], 0, 1.0)
    assert time_out(book, 0.9, 5).counted == 0
    back = time_out(book, 1.0, 5)
    assert (back.offsets, back.asked, book.parked) == ([0], {A}, {A: 14})
    assert book.newly_acked(-1, [(0, 1), (2, 3)]) == [(0, 1), (2, 3)]
    assert book.ack(-1, [(0, 1)], 0) == 0, "it is not in flight any more"
    assert (book.cursor, book.parked, book.redeliveries) == (1, {}, {}), "nothing is to wait for"
    store(book)
    book.returned([(1, 2)], back.notice)
    assert taken(book.take_again(3, 9)) == [1]


def test_what_was_sent_again_has_its_own_time():
    book = book_of(A, B)
    book.begin([(0, 2)], 0, 1.0)
    time_out(book, 1.0, 5)
    store(book)
    book.end_waits(14)
    assert taken(book.take_again(2, 9)) == [0, 1]
    assert time_out(book, 20.0, 20).counted == 0, "it has not begun again"
    book.begin([(0, 1)], 0, 21.0)
    assert time_out(book, 21.0, 30).offsets == [0]
    store(book)
    book.end_waits(39)
    book.take_again(2, 9)
    nack(book, 0)
    with pytest.raises(NotDeliveredError):
        book.ack(-1, [(0, 1)], 0)
    store(book)
    book.end_waits(39)
    book.take_again(2, 9)
    book.begin([(0, 1)], 0, 40.0)
    assert time_out(book, 40.0, 50).offsets == [0]
    book.rewind(Cause.BROKER_CHANGE)
    with pytest.raises(NotDeliveredError):
        book.ack(-1, [(0, 1)], 0)


def test_the_time_of_what_is_in_progress_starts_again():
    book = book_of(A, B)
    book.begin([(0, 2)], 0, 1.0)
    book.extend([(0, 1)], 0, 6.0)
    assert time_out(book, 1.0, 7).offsets == [1]
    with pytest.raises(RewoundError, match="offset 1 was taken back"):
        book.extend([(0, 2)], 0, 8.0)
    assert time_out(book, 7.9, 9).counted == 0, "the other one is extended"
    with pytest.raises(ConflictError, match="12 h"):
        book.extend([(0, 1)], 0, 50_000.0)


# ---- dead letters, what expires, what does not decode -------------------------------------------


def test_a_dead_letter_lets_its_lane_go_on():
    book = book_of(A, A, B)
    back = nack(book, 0, delay_s=60)
    store(book)
    book.returned([(1, 2)], back.notice)
    assert book.discard([(0, 1)]) == 0
    assert (book.parked, book.redeliveries, book.next_again) == ({}, {}, 1)


def test_a_lane_waits_on_while_another_message_of_it_has_failed():
    book = book_of(A, A, B)
    nack(book, 0, 1, delay_s=60)
    store(book)
    book.discard([(0, 1)])
    assert (book.parked, book.next_again) == ({A: 60}, None)


def test_only_what_the_member_has_becomes_a_dead_letter():
    book = book_of(A, B, C)
    book.ack(-1, [(1, 2)], 0)
    assert book.not_done([(0, 3)], 0, most=9) == [0, 2]
    assert book.not_done([(0, 3)], 0, most=1) == [0]
    nack(book, 0)
    with pytest.raises(NotDeliveredError, match="offset 0 is not delivered"):
        book.not_done([(0, 3)], 0, most=9)


def test_what_is_done_from_the_cursor_on_takes_no_room_however_much_it_is():
    book = book_of(A, B)
    assert book.discard([(0, 10**9)]) == 2
    assert (book.cursor, book.position, book.in_flight) == (10**9, 10**9, 0)
    assert book.stored_acks() == b""
    assert taken(book.take(many(3, first=10**9 - 1), 10**9 + 2, 9)) == [10**9, 10**9 + 1]


def test_what_is_done_above_something_else_is_bounded():
    book = book_of(A, B)
    book.discard([(2, 10**9)])
    assert book.acked_pairs() == [(2, MAX_BITS)]
    assert len(book.stored_acks()) <= 1 + MAX_BITS // 8
    assert book.undone(0, 10**9) == [(0, 2), (book.reach, 10**9)]


def test_no_window_is_sent_across_what_does_not_decode():
    book = LaneBook(0)
    assert book.pass_over(2, 4) == [(2, 4)]
    windows = [book.take(many(6), 6, 9) for _ in range(3)]
    assert [taken(each) if each else None for each in windows] == [[0, 1], [4, 5], None]
    assert book.position == 6
    book.release(0, 0)
    assert [taken(book.take_again(6, 9)) for _ in range(2)] == [[0, 1], [4, 5]]
    book.ack(-1, [(0, 2)], 0)
    book.discard([(2, 4)])
    assert book.cursor == 4


def test_what_does_not_decode_does_not_hold_its_lane():
    book = LaneBook(0)
    book.pass_over(0, 1)
    assert taken(book.take(batch(A, A, B), 3, 9)) == [1, 2]


def test_a_count_that_is_made_during_a_flush_waits_for_the_next_one():
    book = book_of(A, B)
    nack(book, 0)
    flushed = book.counts_made
    nack(book, 1)
    book.end_waits(0.0)
    book.counts_stored(flushed)
    assert book.next_again == 0
    assert book.take_again(2, 10).messages == 1, "the count of the other lane is not stored"
    book.counts_stored(book.counts_made)
    assert book.next_again == 1
