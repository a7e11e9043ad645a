"""What needs nothing more of the application: what it acknowledged, and what it gave back."""

from partq.client.consume.assignment.finished_messages import FinishedMessages


def test_what_was_given_back_is_finished_and_not_acknowledged():
    finished = FinishedMessages(0)
    assert finished.ack(-1, [(0, 1)]) == 1
    assert finished.add(-1, [(1, 2)]) == 1  # became a dead letter
    assert (finished.are_acked([(0, 1)]), finished.are_acked([(1, 2)])) == (True, False)
    assert not finished.leaves_below(2)
