"""Since when what is in hand: reports come about once a second, in whatever order."""

from partq.core.cursor.processing_times import MAX_EXTENDED_S, ProcessingTimes


def test_what_was_sent_out_of_turn_hides_nothing_below_it():
    """One message of a window was given back, and came again, before anything was reported."""
    begun = ProcessingTimes()
    begun.resend(30, 31)
    begun.report(30, 31, 1.0)
    begun.report(0, 100, 1.0)
    assert begun.expire(1.0) == list(range(100))


def test_a_message_that_came_alone_and_again_is_watched_once():
    begun = ProcessingTimes()
    begun.resend(0, 1)
    begun.report(0, 1, 1.0)
    begun.report(1, 3, 2.0)
    assert begun.expire(1.0) == [0]
    assert begun.expire(2.0) == [1, 2]


def test_an_extension_lets_the_time_of_one_message_run_anew():
    begun = ProcessingTimes()
    begun.report(0, 3, 1.0)
    assert begun.extend([1], 5.0) == []
    assert begun.expire(4.0) == [0, 2]
    assert begun.expire(5.0) == [1]
    assert begun.expire(9.0) == [], "each is taken back once"


def test_a_message_that_was_extended_before_it_was_reported_keeps_its_time():
    """The word about one message overtakes the report of all, which comes once a second."""
    begun = ProcessingTimes()
    begun.extend([1], 5.0)
    begun.report(0, 3, 5.5)
    assert begun.expire(4.9) == []
    assert begun.expire(5.0) == [1]


def test_extensions_end_so_long_after_the_message_was_begun():
    begun = ProcessingTimes()
    begun.report(0, 1, 1.0)
    last = 1.0 + MAX_EXTENDED_S
    for now in (2.0, 1000.0, last):
        assert begun.extend([0], now) == []
    assert begun.extend([0], last + 0.001) == [0]
    assert begun.expire(last) == [0], "its time has run since the last one that counted"


def test_another_delivery_of_a_message_can_be_extended_as_long_again():
    begun = ProcessingTimes()
    begun.report(0, 1, 1.0)
    begun.extend([0], 2.0)
    begun.resend(0, 1)
    begun.report(0, 1, 1.0 + MAX_EXTENDED_S)
    assert begun.extend([0], 2.0 + MAX_EXTENDED_S) == []


def test_what_is_sent_again_or_done_is_not_extended_any_more():
    begun = ProcessingTimes()
    begun.report(0, 4, 1.0)
    begun.extend([0, 3], 2.0)
    begun.go_back(3)
    begun.drop_below(1)
    assert begun.expire(9.0) == [1, 2]
