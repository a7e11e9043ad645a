"""A record whose beginning is missing, or whose lines contradict each other."""

import pytest

from tests.pipeline.audit.judge.small_record import (
    OWNER,
    ack,
    deliver,
    found,
    judged,
    lines_of,
    publish,
)

BEFORE = [*OWNER, publish(10, 0, 4), deliver(11, 0, 2)]
"""The part that is missing, up to its number of groups."""


@pytest.mark.parametrize(("told", "expected"), [
    pytest.param([deliver(12, 2, 4), ("nack", 13, {"first": 0, "stop": 2, "cause": "nack"}),
                  deliver(14, 0, 2, cause="nack"), ack(15, 0, 4)],
                 [], id="a redelivery, by its cause"),
    pytest.param([deliver(12, 3, 4), deliver(13, 2, 3), ack(14, 0, 4)],
                 ["out_of_order"], id="a first delivery, which has none"),
])  # fmt: skip
def test_what_was_delivered_before_the_record_begins_may_come_again(told, expected):
    assert found(*BEFORE, *told, since=len(BEFORE)) == expected


def test_a_log_that_ends_before_an_earlier_end_is_judged_from_there():
    """The store has lost messages, and no record of their publishing."""
    told = [("begin", 0, {"group": "", "stop": 4}), ("claim", 1, {"stop": 4}), publish(10, 2, 6)]
    outcome, _ = judged(lines_of(*told))

    assert outcome.log.areas == [(2, 6)]


def test_what_a_token_without_hold_did_is_counted_and_not_drawn():
    stale = ack(12, 0, 2, epoch=0)
    outcome, findings = judged(lines_of(*BEFORE, stale, ack(13, 0, 2)))

    assert [each.what for each in findings] == ["stale_ack"]
    assert outcome.totals.acknowledged == 4
    assert outcome.pace.counts["acknowledged", "workers"] == {13: 2}
