"""Since when what is in hand: reports come about once a second, in whatever order."""

from partq.core.cursor.processing_times import ProcessingTimes


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
