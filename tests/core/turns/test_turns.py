"""Whose turn it is, and how much one gets at once."""

import pytest

from partq.core.turns.turns import TurnOrder, Turns, largest_window


def turns_of(order, *members, priority=0):
    """Return the turns of a further partition, in which members wait."""
    turns = Turns(order)
    for member in members:
        order.join(member, priority)
        turns.ask(member)
    return turns


def first(turns, able):
    return turns.first(lambda member: member in able)


def take(order, turns):
    """Have the one whose turn it is take something, and wait again."""
    member, _ = first(turns, "abc")
    order.put_last(member, 0)
    return member


def test_they_take_turns_in_the_order_in_which_they_came():
    order = TurnOrder()
    turns = turns_of(order, *"abc")
    assert "".join(take(order, turns) for _ in range(7)) == "abcabca"


def test_who_was_sent_something_of_one_partition_comes_last_in_all():
    order = TurnOrder()
    some, others = turns_of(order, *"abc"), turns_of(order, *"abc")
    got = [take(order, turns) for turns in (some, others, others, some, others)]
    assert "".join(got) == "abcab"
    order.leave("a", 0)
    assert list(others) == ["c", "a", "b"], "it still takes part in one partition"
    order.leave("a", 0)
    order.join("a", 0)
    order.join("c", 0)
    assert list(others) == ["c", "b", "a"], "it comes again, and another one in a third partition"


def test_a_lower_number_comes_first_and_the_next_level_when_nobody_above_can_take_anything():
    order = TurnOrder()
    turns = turns_of(order, "low", priority=9)
    order.join("high", 0)
    turns.ask("high")
    assert first(turns, ["low", "high"]) == ("high", [])
    assert first(turns, ["low"]) == ("low", ["high"])
    turns.leave("high")
    assert first(turns, ["low", "high"]) == ("low", [])


def test_one_that_cannot_take_anything_is_passed_over_and_keeps_its_place():
    order = TurnOrder()
    turns = turns_of(order, *"abc")
    assert first(turns, "bc") == ("b", ["a"])
    turns.ask("a")
    assert first(turns, "abc") == ("a", [])
    assert first(turns, "") == (None, ["a", "b", "c"])
    assert (turns.leave("b"), turns.leave("b"), len(turns)) == (True, False, 2)
    assert list(turns) == ["a", "c"]


class Member:
    """A member that counts how often it is looked up."""

    looks = 0

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        Member.looks += 1
        return self.number


def test_few_that_wait_are_found_in_their_order_without_a_look_at_all_members():
    members = [Member(number) for number in range(500)]
    order = TurnOrder()
    turns = Turns(order)
    for member in members:
        order.join(member, member.number % 2)
    for number in (3, 100, 101, 200, 300):
        turns.ask(members[number])
    order.put_last(members[100], 0)
    Member.looks = 0
    found, passed = first(turns, [members[101]])
    assert (found.number, [each.number for each in passed]) == (101, [200, 300, 100, 3])
    assert Member.looks < 50


def test_one_large_batch_is_shared_out():
    assert largest_window(1000, 1000, 8) == 125
    assert largest_window(7, 7, 8) == 1
    assert largest_window(9, 9, 8) == 2
    assert (largest_window(1, 0, 8), largest_window(5, 5, 0)) == (1, 5)
    assert largest_window(1000, 125, 8) == 125, "the rest of it is cut as its beginning was"


@pytest.mark.parametrize(
    ("batches", "pieces"), [(1, 8), (2, 4), (3, 3), (4, 2), (7, 2), (8, 1), (100, 1)]
)
def test_batches_are_cut_into_as_few_pieces_as_give_each_member_some(batches, pieces):
    assert largest_window(1000, 1000 * batches, 8) == -(-1000 // pieces)
    assert batches * pieces >= 8


def test_a_batch_is_not_sent_whole_because_others_have_little():
    assert largest_window(1000, 1007, 8) == 125
