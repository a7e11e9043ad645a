"""A group whose messages do not decode and find no dead-letter queue says so in its conditions."""

import pytest

from partq.coordinator.view import Parked
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status import event_diff
from partq.kube.status.group_conditions import group_findings
from tests.kube.facts import PARTITIONS, group_facts, group_view

WHY = "queue shop/orders-workers-dlq: not found in the Redis of orders"
PARKED = {PARTITIONS[2]: Parked(2, WHY), PARTITIONS[1]: Parked(3, WHY)}
TEXT = (
    "5 dead letters wait in partitions 1-2, whose deliveries continue: "
    "queue shop/orders-workers-dlq: not found in the Redis of orders"
)
BLOCKED = {PARTITIONS[0]: "its share of the quota is used up"}


def found(**view):
    findings = group_findings(group_facts(view=group_view(**view)))
    return findings, {each.type: each for each in findings}


def test_what_does_not_decode_and_waits_is_a_condition_and_nobody_is_less_ready():
    calm, _ = found()
    findings, by_type = found(parked=PARKED)
    stored = by_type[ConditionType.DEAD_LETTERS_STORED]
    assert (stored.is_true, stored.reason) == (False, ConditionReason.DEAD_LETTERS_PARKED)
    assert stored.message == TEXT
    assert by_type[ConditionType.READY].is_true is True
    assert by_type[ConditionType.STALLED].is_true is False
    assert event_diff.of_conditions(calm, findings) == [("DeadLettersParked", TEXT, True)]
    (note,) = event_diff.of_conditions(findings, calm)
    assert note.reason == "Recovered"


@pytest.mark.parametrize("parked", [{}, PARKED])
def test_what_stops_deliveries_comes_first(parked):
    _, by_type = found(blocked=BLOCKED, parked=parked)
    stored = by_type[ConditionType.DEAD_LETTERS_STORED]
    assert stored.reason is ConditionReason.DEAD_LETTERS_BLOCKED
    assert by_type[ConditionType.READY].reason is ConditionReason.DEAD_LETTERS_BLOCKED
    told = "deliveries of partition 0 wait: its share of the quota is used up"
    assert stored.message == (f"{told}; besides, {TEXT}" if parked else told)
