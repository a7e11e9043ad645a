"""A group that has stopped at a message which the log does not hold says so in its conditions."""

import pytest

from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status.group_conditions import group_findings
from tests.kube.facts import PARTITIONS, group_facts, group_view

WHY = "partition 1.0, group workers: message 3 is not in the log, which continues at 9"


@pytest.mark.parametrize(
    ("missing", "is_true"), [({}, True), ({PARTITIONS[0]: WHY, PARTITIONS[1]: "other"}, False)]
)
def test_messages_present(missing, is_true):
    found = {
        each.type: each for each in group_findings(group_facts(view=group_view(missing=missing)))
    }
    present, ready = found[ConditionType.MESSAGES_PRESENT], found[ConditionType.READY]
    assert (present.is_true, ready.is_true) == (is_true, is_true)
    if not is_true:
        assert present.message == f"deliveries of partitions 0-1 stopped: {WHY}"
        assert ready.reason is ConditionReason.MESSAGES_MISSING


def test_nobody_has_looked():
    findings = group_findings(group_facts(view=None))
    (found,) = [each for each in findings if each.type is ConditionType.MESSAGES_PRESENT]
    assert found.is_true is None
