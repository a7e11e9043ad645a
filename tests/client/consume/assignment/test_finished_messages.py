"""What an application has acknowledged is remembered, within a bound."""

from partq.client.consume.assignment.finished_messages import MAX_ACKED_RANGES, FinishedMessages


def test_what_is_never_acknowledged_makes_no_ranges_without_end():
    finished = FinishedMessages(0)
    for at in range(0, 6 * MAX_ACKED_RANGES, 2):
        finished.ack(-1, [(at, at + 1)])
        finished.add(-1, [(at + 1, at + 2)])  # became a dead letter
        assert finished.are_acked([(at, at + 1)])
        assert len(finished._acked) <= MAX_ACKED_RANGES
    assert finished.are_acked([(at - 200, at - 199)])
    assert not finished.are_acked([(0, 1)]), "the oldest are forgotten"
    assert not finished.are_acked([(at + 1, at + 2)])
