"""What flows have of each slot, where several members share a partition."""

from tests.pipeline.audit.judge.small_record import (
    BEGIN,
    ack,
    deliver,
    found,
    judged,
    publish,
    read_lines,
)
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


def shared(kind, epoch, member="a", **fields):
    return (kind, 0, {"member": member, "epoch": epoch, "flags": "shared", **fields})


def passed(epoch, target, source=""):
    return ("commit_part", 0, {"member": source, "target": target, "epoch": epoch, "number": 0})


def test_a_broker_shares_out_a_group_that_was_created_again_unseen():
    """The epochs of its flows are of its memory, and may be above the birth of the new group."""
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 0, 2), passed(2, "a"),
        shared("bind", 3), ("end", 0, {"member": ""}), ("begin", 0, {"member": "", "epoch": 4}),
        shared("unbind", 3, cause="flow_lost"), shared("bind", 5),
        deliver(0, 0, 2, epoch=5, flags="shared"), shared("unbind", 5),
    ]  # fmt: skip
    new = [
        passed(6, "b"), shared("bind", 7, "b"),
        deliver(0, 0, 2, member="b", epoch=7, flags="shared"), ack(0, 0, 2, member="b", epoch=7),
    ]  # fmt: skip
    assert found(*told, *new) == []
    again = deliver(0, 0, 2, member="b", epoch=7, flags="shared")
    assert found(*told, *new[:-1], again) == ["duplicate_without_cause"]


def test_what_a_flow_has_again_may_be_redelivered_for_what_came_after_its_first_end():
    """Its end and a part that was taken by force: the later one counts."""
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 0, 2), passed(2, "a"),
        shared("bind", 3), shared("unbind", 3, cause="flow_lost"), shared("bind", 4),
        deliver(0, 0, 2, epoch=4, flags="shared"),
    ]  # fmt: skip
    again = [
        shared("bind", 6, "b"),
        deliver(0, 0, 2, member="b", epoch=6, flags="shared", cause="forced_commit"),
        ack(0, 0, 2, member="b", epoch=6),
    ]
    forced = ("nack", 0, {"epoch": 4, "first": 0, "stop": 2, "cause": "drain_timeout"})
    assert found(*told, forced, passed(5, "b", "a"), *again) == []
    assert found(*told, passed(5, "b", "a"), *again) == ["unfounded_cause"]


def test_a_dead_letter_may_be_recorded_before_the_nack_that_has_made_it_one():
    """What follows of its slot is delivered at once."""
    run = busy("1.0")
    at = SharedRun(run)
    at.deliver(A, at.lower, *at.rest)
    at.write(A, "dead_letter", at.lower, at.lower + 1, cause="maxRedeliveries")
    at.write(A, "nack", at.lower, at.lower + 1, cause="nack")
    at.deliver(A, at.later)
    at.ack(A, at.later, *at.rest)
    at.write(A, "dead_letter", at.lower, at.lower + 1, flags="sent")
    assert findings(run) == []
