"""What is judged of a handoff: its steps, what was in flight, and how it ended."""

import pytest

from partq.pipeline.audit.judge.groups.handoffs import OPEN_MS
from tests.pipeline.audit.judge.small_record import OWNER, ack, deliver, found, publish

DELIVERED = [*OWNER, publish(10, 0, 4), deliver(11, 0, 4)]
PAUSE = ("pause", 20, {"attempt": 7})
COMMIT = ("commit", 30, {"attempt": 7, "target": "b", "epoch": 5})


def drained(first, stop):
    return ("drained", 25, {"attempt": 7, "first": first, "stop": stop})


@pytest.mark.parametrize("missing", ["pause", "drained"])
def test_a_record_that_begins_in_a_handoff_tells_nothing_of_its_steps(missing):
    before = [*DELIVERED, ack(12, 0, 4), PAUSE, *([drained(4, 4)] * (missing == "drained"))]
    after = [COMMIT] if missing == "drained" else [drained(4, 4), COMMIT]

    assert found(*before, *after, since=len(before)) == []


def test_what_goes_out_after_a_drain_was_not_in_flight_at_its_end():
    told = [
        ("nack", 12, {"first": 0, "stop": 1, "cause": "nack"}), ack(13, 1, 4), PAUSE,
        drained(0, 4), deliver(26, 0, 1, cause="nack"), COMMIT,
    ]  # fmt: skip

    assert found(*DELIVERED, *told) == ["delivered_while_paused"]


def test_what_an_earlier_flow_left_behind_was_not_in_flight():
    """It is lost, which is another finding."""
    told = [
        *OWNER, publish(10, 0, 4), deliver(11, 0, 2), ("bind", 12, {"epoch": 2}),
        deliver(13, 2, 4, epoch=2), ack(14, 2, 4, epoch=2),
        ("pause", 20, {"attempt": 7, "epoch": 2}), drained(0, 4), COMMIT,
    ]  # fmt: skip

    assert found(*told) == ["lost"]


@pytest.mark.parametrize(("later_ms", "expected"), [
    (OPEN_MS, "handoff_under_way"),
    (OPEN_MS + 1, "handoff_without_end"),
])  # fmt: skip
def test_a_handoff_may_be_under_way_for_a_while(later_ms, expected):
    told = [*DELIVERED, ack(12, 0, 4), PAUSE, publish(20 + later_ms, 4, 5)]

    assert found(*told) == [expected]
