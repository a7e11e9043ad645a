"""How long a group with lag was sent nothing, and until when an owner gave signs of life."""

import pytest

from partq.pipeline.audit.judge.outcome import DeliveryStall, Handoff
from tests.pipeline.audit.judge.small_record import (
    BEGIN,
    OWNER,
    ack,
    deliver,
    judged,
    lines_of,
    publish,
    read_lines,
)
from tests.pipeline.audit.report.faulty_run import KILLED, STALL_MS, faulty_run


def stalls_of(*told):
    outcome, _ = judged(lines_of(*told))
    return outcome.stalls


def stall(from_ms, until_ms, successor="a", acknowledged=0, *, member="a", is_open=False):
    return DeliveryStall(
        "1.0", "workers", from_ms, until_ms, member, successor, acknowledged, is_open
    )


@pytest.mark.parametrize(("told", "expected"), [
    pytest.param([publish(10, 0, 1), deliver(15, 0, 1), ack(16, 0, 1)],
                 stall(10, 15), id="from the publishing to the delivery"),
    pytest.param([publish(10, 0, 2), deliver(11, 0, 1), deliver(30, 1, 2), ack(31, 0, 2)],
                 stall(11, 30), id="between two deliveries"),
    pytest.param([publish(10, 0, 3), deliver(11, 0, 2), ack(12, 0, 2), deliver(30, 2, 3)],
                 stall(11, 30, acknowledged=2), id="acks go on meanwhile"),
    pytest.param([publish(10, 0, 1), deliver(11, 0, 1), ack(40, 0, 1), publish(999, 1, 2),
                  deliver(1000, 1, 2)],
                 stall(11, 40, "", 1), id="without lag nobody waits"),
    pytest.param([publish(10, 0, 2), deliver(11, 0, 2), ack(12, 1, 2), ("nack", 30, {"stop": 1})],
                 stall(11, 30, "", 1, is_open=True), id="a hole below acks is lag; at the end"),
    pytest.param([publish(10, 0, 1), deliver(11, 0, 1), ("expired", 20, {"stop": 1}),
                  publish(90, 1, 2)],
                 stall(11, 20, ""), id="what has expired is no lag"),
    pytest.param([publish(10, 0, 1), deliver(11, 0, 1), ("dead_letter", 20, {"stop": 1}),
                  publish(90, 1, 2)],
                 stall(11, 20, ""), id="nor a dead letter"),
    pytest.param([publish(10, 0, 1), deliver(11, 0, 1), ("trim", 20, {"stop": 1}),
                  publish(90, 1, 2)],
                 stall(11, 20, ""), id="nor what the log no longer holds"),
    pytest.param([publish(10, 0, 1), deliver(11, 0, 1), ack(12, 0, 1),
                  ("reset", 50, {"number": 1, "epoch": 2}), deliver(70, 0, 1, epoch=2)],
                 stall(50, 70), id="a reset makes lag again"),
    pytest.param([publish(10, 0, 1), deliver(90, 0, 1, member="ghost"), deliver(95, 0, 1)],
                 stall(10, 95), id="a delivery to another than the owner does not count"),
])  # fmt: skip
def test_the_longest_time_without_a_delivery(told, expected):
    assert stalls_of(*OWNER, *told) == [expected]


def test_a_group_that_no_member_consumes_has_none():
    told = [BEGIN, ("begin", 0, {"member": ""}), publish(10, 0, 5)]

    assert stalls_of(*told, ack(99, 0, 5, member="", flags="cursor")) == []


def test_the_wait_begins_with_the_first_member():
    told = [BEGIN, ("begin", 0, {"member": ""}), publish(10, 0, 5)]
    first = ("commit", 40, {"member": "", "target": "a"})

    assert stalls_of(*told, first, deliver(45, 0, 5)) == [stall(40, 45)]


def test_a_killed_consumer_shows_for_as_long_as_it_lasted():
    """Its bar ends with its last sign of life; its successor's begins when it takes over."""
    run = next(each for each in faulty_run() if each.name == KILLED)
    outcome, _ = judged(read_lines(run))
    (found,) = outcome.stalls
    spells = outcome.holders["workers"]
    dead, successor = spells[-2:]

    assert found.length_ms > STALL_MS
    assert (found.member, found.successor) == (dead.member, successor.member)
    assert found.acknowledged == 0
    assert dead.seen_ms <= found.from_ms
    assert successor.from_ms > found.from_ms + STALL_MS
    assert successor.seen_ms > successor.from_ms


@pytest.mark.parametrize(("source", "target", "outcome", "cause", "kind", "is_forced"), [
    ("a", "b", "commit", "", "commit", False),
    ("a", "b", "commit", "drain_timeout", "commit", True),
    ("a", "b", "commit", "source_lost", "commit", True),
    ("", "b", "commit", "unassigned", "assignment", False),
    ("a", "", "commit", "", "release", False),
    ("a", "", "commit", "source_lost", "release", True),
    ("a", None, "lapse", None, "lapse", False),
])  # fmt: skip
def test_what_is_a_forced_handoff(source, target, outcome, cause, kind, is_forced):
    handoff = Handoff("1.0", "workers", 1, source, target, outcome=outcome, cause=cause)

    assert (handoff.kind, handoff.is_forced) == (kind, is_forced)
