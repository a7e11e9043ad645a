"""Which publish times the messages of a batch can have, by the times of its record."""

import pytest

from partq.pipeline.audit.content.times import OLD_CLOCK_MS, PublishTimes
from partq.pipeline.audit.judge.outcome import RecordedBatch

EARLY, NOW, LATE = 50_000_000, 100_000_000, 300_000_000
"""Times in ms."""


def batch(first, at_ms, *, content_crc=0):
    return RecordedBatch(first, first + 2, 1, first, at_ms, content_crc, b"")


def accepted(*told):
    """Return which publish times are right, of batches in the order of offsets."""
    times, answers = PublishTimes([each for each, _ in told]), []
    for each, time_ms in told:
        is_right = times.may_be(each, time_ms * 1000)
        answers.append(is_right)
        if is_right:
            times.note(each, time_ms * 1000)
    return answers


@pytest.mark.parametrize(("told", "expected"), [
    pytest.param([(batch(0, NOW), NOW), (batch(2, NOW + 1), NOW + 1)],
                 [True, True], id="the recorded times"),
    pytest.param([(batch(0, NOW), NOW + 1), (batch(2, NOW + 1), NOW)],
                 [False, False], id="no others"),
    pytest.param([(batch(0, NOW), NOW), (batch(2, EARLY), NOW), (batch(4, LATE), LATE)],
                 [True, True, True], id="the clock went back: the time before counts on"),
    pytest.param([(batch(0, NOW), NOW), (batch(2, EARLY), EARLY)],
                 [True, False], id="the clock went back: times do not"),
    pytest.param([(batch(0, NOW), NOW), (batch(8, EARLY), LATE), (batch(10, EARLY), LATE),
                  (batch(12, LATE + 1), LATE + 1)],
                 [True, True, True, True], id="record off and on, and the clock went back"),
    pytest.param([(batch(0, NOW), NOW), (batch(8, EARLY), LATE), (batch(10, EARLY), LATE + 1)],
                 [True, True, False], id="record off and on: what follows it is known again"),
    pytest.param([(batch(0, NOW), NOW), (batch(8, EARLY), NOW - 1)],
                 [True, False], id="record off and on: times before it hold"),
    pytest.param([(batch(8, EARLY), LATE), (batch(10, EARLY), LATE), (batch(12, NOW), NOW)],
                 [True, True, False], id="a record that begins late"),
    pytest.param([(batch(0, NOW, content_crc=-1), NOW + OLD_CLOCK_MS)],
                 [True], id="an older record: about that time"),
])  # fmt: skip
def test_times_that_messages_can_have(told, expected):
    assert accepted(*told) == expected
