"""What an application has acknowledged is remembered, within a bound."""

from partq.client.consume.assignment.acked_messages import MAX_ACKED_RANGES, AckedMessages


def test_what_is_never_acknowledged_makes_no_ranges_without_end():
    acked = AckedMessages()
    for at in range(0, 6 * MAX_ACKED_RANGES, 2):
        acked.add([(at, at + 1)])
        assert acked.has_all([(at, at + 1)])
        assert len(acked._ranges) <= MAX_ACKED_RANGES
    assert acked.has_all([(at - 200, at - 199)])
    assert not acked.has_all([(0, 1)]), "the lowest are forgotten"
    assert not acked.has_all([(at - 200, at - 197)])


def test_what_is_redelivered_is_not_acknowledged_any_more():
    acked = AckedMessages()
    acked.add([(3, 9)])
    acked.remove(5, 6)
    assert (acked.has_all([(3, 5), (6, 9)]), acked.has_all([(4, 6)])) == (True, False)
