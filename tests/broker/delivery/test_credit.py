"""What a flow may be sent: in messages, in bytes, and by what is not acknowledged."""

import pytest

from partq.broker.delivery.credit import MAX_ADDED_CREDIT, PARTIAL_WINDOW_WAIT_S, FlowCredit


@pytest.fixture
def credit():
    return FlowCredit(100, 1_000, max_unacked=lambda: 40, cuts_batches=True)


def test_the_limit_of_unacknowledged_messages_is_the_lower_of_two(credit):
    assert credit.left == 40
    credit.spend(40, 10, now=0.0)
    assert (credit.left, credit.messages, credit.is_at_limit) == (0, 60, True)
    credit.unacked -= 5
    assert (credit.left, credit.is_at_limit) == (5, False)


def test_of_those_that_share_the_room_each_has_a_part_of_half_of_it():
    credit = FlowCredit(100, 1_000, max_unacked=lambda: 200, cuts_batches=True)
    assert credit.left_for_one(0, 1) == 50
    credit.spend(50, 10, now=0.0)
    assert [credit.left_for_one(in_flight, 5) for in_flight in (50, 8, 0)] == [0, 2, 10]
    credit.add(20, 0)
    assert credit.left_for_one(50, 5) == 20
    credit.spend(0, 600, now=0.0)
    assert [credit.left_for_one(in_flight, 5) for in_flight in (50, 0)] == [0, 10]
    credit.messages = 1
    assert credit.left_for_one(0, 5) == 1


def test_the_only_message_that_there_is_room_for_is_anybodys():
    assert FlowCredit(1, 0, max_unacked=lambda: 9, cuts_batches=True).left_for_one(5, 2) == 1


def test_half_of_what_may_be_unacknowledged_is_shared_where_that_is_less(credit):
    assert credit.left_for_one(0, 4) == 20
    credit.spend(20, 10, now=0.0)
    credit.add(20, 10)
    assert [credit.left_for_one(in_flight, 4) for in_flight in (20, 0)] == [0, 5]


def test_what_the_limit_holds_up_is_looked_at_again_once_there_is_room(credit):
    credit.note_short("a")
    credit.spend(40, 10, now=0.0)
    for name in "bcb":
        credit.note_short(name)
    credit.forget("c")
    assert not credit.end_unacked(0)
    assert list(credit.end_unacked(1)) == ["b"]
    assert not credit.end_unacked(1)


def test_one_batch_fits_whatever_its_size(credit):
    assert credit.fits(5_000)
    credit.spend(1, 5_000, now=0.0)
    assert not credit.fits(1)
    credit.add(0, 4_500)
    assert credit.fits(500)
    assert not credit.fits(501)


def test_without_a_bound_in_bytes_everything_fits():
    credit = FlowCredit(1, 0, max_unacked=lambda: 1, cuts_batches=True)
    credit.spend(1, 10**9, now=0.0)
    assert credit.fits(10**9)


def test_a_small_rest_waits_to_become_more_only_for_a_moment(credit):
    assert credit.wait_for_more(1, 30, now=0.0) is None, "nothing is under way"
    credit.spend(39, 10, now=0.0)
    assert credit.wait_for_more(1, 30, now=0.0) == PARTIAL_WINDOW_WAIT_S
    assert credit.wait_for_more(1, 1, now=0.0) is None, "the batch is no larger"
    assert credit.wait_for_more(10, 30, now=0.0) is None, "a quarter is no small rest"
    assert credit.wait_for_more(1, 30, now=PARTIAL_WINDOW_WAIT_S) is None


def test_a_pull_waits_for_no_rest():
    credit = FlowCredit(100, 0, max_unacked=lambda: 40, cuts_batches=False)
    credit.spend(39, 10, now=0.0)
    assert credit.wait_for_more(1, 30, now=0.0) is None


def test_what_the_client_never_hears_of_is_given_back(credit):
    credit.spend(10, 300, now=0.0)
    credit.give_back(10, 300)
    assert (credit.messages, credit.out_bytes) == (100, 0)


def test_a_client_adds_no_huge_number(credit):
    credit.add(MAX_ADDED_CREDIT, 10)
    assert (credit.messages, credit.out_bytes) == (MAX_ADDED_CREDIT, 0)
