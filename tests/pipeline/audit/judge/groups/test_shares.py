"""What flows have of each slot, where several members share a partition."""

from tests.pipeline.audit.judge.small_record import judged, read_lines
from tests.pipeline.audit.planting import busy
from tests.pipeline.audit.shared_plants import A, B, SharedRun


def findings(run):
    return [each.what for each in judged(read_lines(run))[1]]


def test_an_ack_may_be_recorded_after_the_delivery_that_it_made_possible():
    run = busy("1.0")
    at = SharedRun(run)
    at.deliver(A, at.lower)
    at.deliver(B, at.later, *(each for each in at.rest if each > at.later))
    at.ack(A, at.lower)
    at.ack(B, at.later, *(each for each in at.rest if each > at.later))
    at.deliver(A, *(each for each in at.rest if each < at.later))
    at.ack(A, *(each for each in at.rest if each < at.later))
    assert "slot_shared" not in findings(run)


def test_a_delivery_of_what_became_a_dead_letter_was_not_sent():
    run = busy("1.0")
    at = SharedRun(run)
    at.write(A, "dead_letter", at.lower, at.lower + 1, cause="quarantined")
    at.write(A, "dead_letter", at.lower, at.lower + 1, flags="sent")
    at.deliver(A, at.lower)
    at.write(A, "unbind", cause="flow_lost", flags="shared")
    at.deliver(B, at.later, *at.rest)
    at.ack(B, at.later, *at.rest)
    assert findings(run) == []
