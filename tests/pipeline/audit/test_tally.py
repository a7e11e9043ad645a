"""What a verdict and its page keep of many partitions."""

from partq.pipeline.audit.engines.port import JudgedPartition
from partq.pipeline.audit.judge.outcome import DeliveryStall, Handoff, PartitionOutcome
from partq.pipeline.audit.tally import MAX_GROUPS, AuditTally


def tally_of(**told):
    tally = AuditTally()
    tally.add(JudgedPartition(PartitionOutcome("1.0", **told)))
    return tally


def test_the_longest_stalls_are_kept():
    lengths = range(1, MAX_GROUPS + 2)
    stalls = [DeliveryStall("1.0", f"g-{ms}", 0, ms, "a", "a", 0, False) for ms in lengths]
    kept = tally_of(stalls=stalls).verdict().stalls

    assert [each.length_ms for each in kept] == [*reversed(lengths)][:MAX_GROUPS]


def test_the_page_shows_the_pauses_of_what_was_handed_over():
    """A pause that ended without a commit is counted, and is no handoff that was slow."""
    ends = ("commit", "lapse", "cancel")
    handoffs = [
        Handoff("1.0", "workers", at, "a", "b", paused_ms=0, ended_ms=9 + at, outcome=end)
        for at, end in enumerate(ends)
    ]
    tally = tally_of(handoffs=handoffs)
    shown = tally.figures()

    assert [each.length_ms for each in shown.pauses] == [9]
    assert shown.slowest == handoffs[:1]
    counted = {each.outcome: each.paused for each in tally.verdict().handoffs}
    assert counted == dict.fromkeys(ends, 1)
