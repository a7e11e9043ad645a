"""Whose turn it is, and how much one gets at once."""

from partq.core.turns.turns import Turns, largest_window


def first(turns, able):
    return turns.first(lambda share: share in able)


def test_they_take_turns_in_the_order_in_which_they_began_to_wait():
    turns, got = Turns(), []
    for name in "abc":
        turns.ask(name, 0)
    for _ in range(7):
        share, _ = first(turns, "abc")
        got.append(share)
        turns.leave(share, 0)
        turns.ask(share, 0)
    assert "".join(got) == "abcabca"


def test_a_lower_number_comes_first_and_the_next_level_when_nobody_above_can_take_anything():
    turns = Turns()
    turns.ask("low", 9)
    turns.ask("high", 0)
    assert first(turns, ["low", "high"]) == ("high", [])
    assert first(turns, ["low"]) == ("low", ["high"])
    turns.leave("high", 0)
    assert first(turns, ["low", "high"]) == ("low", [])


def test_one_that_cannot_take_anything_is_passed_over_and_keeps_its_place():
    turns = Turns()
    for name in "abc":
        turns.ask(name, 0)
    assert first(turns, "bc") == ("b", ["a"])
    turns.ask("a", 0)
    assert first(turns, "abc") == ("a", [])
    assert first(turns, "") == (None, ["a", "b", "c"])
    assert (turns.leave("b", 0), turns.leave("b", 0), len(turns)) == (True, False, 2)


def test_one_large_batch_is_shared_out():
    assert largest_window(1000, 8) == 125
    assert largest_window(7, 8) == 1
    assert largest_window(9, 8) == 2
    assert (largest_window(0, 8), largest_window(5, 0)) == (1, 5)
