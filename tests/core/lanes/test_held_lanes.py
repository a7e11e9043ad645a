"""Lanes that wait until somebody releases them: blocked ones, and quarantined ones."""

from math import inf

import pytest

from partq.core.lanes.lane_book import LaneBook
from partq.core.model import Cause
from tests.core.lanes.lanes import A, B, C, batch, book_of, nack, store, taken

FAR = 1e12


def fail(book, *offsets, quarantines=False):
    """Have messages fail once too often, as the broker finds it: their counts are stored."""
    back = nack(book, *offsets)
    store(book)
    book.hold(offsets, quarantines=quarantines)
    return back


def test_a_blocked_lane_waits_whatever_the_time_until_it_is_released():
    book = book_of(A, B, A)
    back = fail(book, 0)
    book.returned([(2, 3)], back.notice)
    book.end_waits(FAR)
    assert (book.next_again, book.next_due, book.delayed, book.parked_count) == (None, inf, 0, 1)
    assert book.parked == {A: inf}
    assert taken(book.take(batch(A, B, first=3), 5, 9)) == [4], "other lanes go on"
    assert book.unpark(A)
    assert book.redeliveries == {}, "its messages may fail as often again"
    assert taken(book.take_again(5, 9)) == [0, 2, 3]
    assert not book.unpark(A)


@pytest.mark.parametrize("quarantines", [False, True])
def test_a_held_lane_outlives_a_nack_a_lost_flow_a_reset_and_the_end_of_its_message(quarantines):
    book = book_of(A, A, B)
    fail(book, 0, quarantines=quarantines)
    nack(book, 1, delay_s=3)
    book.discard([(0, 1)])
    book.rewind(Cause.FLOW_LOST)
    store(book)
    book.end_waits(FAR)
    assert taken(book.take(batch(A, A, B), 3, 9)) == [2]
    moved = book.moved_to(0)
    assert (moved.held_lanes, moved.quarantined_lanes) == ([A], {A} if quarantines else set())
    assert moved.holds_made == 1, "which is to be stored before anything of it goes on"


def test_a_lane_is_held_when_its_message_is_read_after_a_claim():
    book = LaneBook(0, redeliveries={1: 9})
    assert not book.hold([1], quarantines=False)
    assert taken(book.take(batch(A, B, B), 3, 9)) == [0]
    assert (book.held_lanes, book.may_exceed(1), book.may_exceed(0)) == ([B], False, True)


def test_a_lane_that_is_released_before_its_message_is_read_goes_on():
    book = LaneBook(0, redeliveries={1: 9}, parked={B: inf})
    book.hold([1], quarantines=False)
    assert not book.may_exceed(1), "nobody knows its lane"
    assert book.unpark(B)
    assert taken(book.take(batch(A, B, B), 3, 9)) == [0, 1, 2]
    assert (book.redeliveries, book.held_lanes) == ({}, [])


def test_messages_of_a_quarantined_lane_become_dead_letters_in_order():
    book = book_of(A, B, A, A)
    back = fail(book, 2, quarantines=True)
    assert book.next_quarantined(9) == [], "0 is in hand: what it leads to comes first"
    book.returned([(3, 4)], back.notice)
    book.take(batch(A, B, A, first=4), 7, 9)
    book.ack(-1, [(0, 1)], 0)
    assert book.next_quarantined(3) == [2, 3, 4]
    book.discard([(2, 5)])
    assert (book.next_quarantined(0), book.next_quarantined(9)) == ([], [6])
    assert book.quarantined_lanes == {A}


def test_what_fails_in_hand_of_a_quarantined_lane_is_a_dead_letter_before_what_is_behind_it():
    book = book_of(A, A)
    fail(book, 0, quarantines=True)
    book.take(batch(A, first=2), 3, 9)
    assert book.next_quarantined(9) == [0]
    book.discard([(0, 1)])
    assert book.next_quarantined(9) == []
    nack(book, 1)
    assert book.next_quarantined(9) == [1, 2]


def test_a_released_lane_makes_no_dead_letters():
    book = book_of(A, B)
    fail(book, 0, quarantines=True)
    assert book.unpark(A)
    assert (book.next_quarantined(9), book.next_again) == ([], 0)


def test_after_a_claim_a_quarantined_lane_is_passed_again():
    book = LaneBook(0, parked={A: inf}, quarantined=[A])
    assert taken(book.take(batch(A, B, A), 3, 9)) == [1]
    assert book.next_quarantined(9) == [0, 2]
    book.rewind(Cause.BROKER_CHANGE)
    assert book.next_quarantined(9) == []
    book.take(batch(A, B, A), 3, 9)
    assert book.next_quarantined(9) == [0, 2]


def test_held_lanes_are_stored_one_by_one_and_those_with_a_time_as_there_is_room():
    book = book_of(A, B, C, max_parked=1)
    nack(book, 0, delay_s=5)
    fail(book, 1, 2)
    assert book.parked == {B: inf, C: inf, 65_536: 5}
    assert book.stands_still.startswith(
        "KeysParked: 3 keys wait for their redelivery, 2 of them until somebody releases them"
    )


def test_the_span_names_the_lane_that_holds_it():
    book = book_of(A, B, max_span=2)
    fail(book, 0)
    assert book.stands_still.endswith(f"`partq keys release --slot {A}`)")
