"""A group of order Key that is sent nothing new of a partition says so in its conditions."""

import pytest

from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status.group_conditions import group_findings
from tests.kube.facts import PARTITIONS, group_facts, group_view

FULL = "KeysParked: 4 keys wait for their redelivery, and at most 4 may"
SPAN = "SpanFull: all that may be sent above the cursor is, 1000 offsets"


def found_with(stalled):
    findings = group_findings(group_facts(view=group_view(stalled=stalled)))
    return {each.type: each for each in findings}


@pytest.mark.parametrize(
    ("stalled", "reason", "told"),
    [
        ({PARTITIONS[0]: FULL, PARTITIONS[1]: SPAN}, ConditionReason.KEYS_PARKED,
         "nothing new of partitions 0-1 is sent: 4 keys wait for"),
        ({PARTITIONS[1]: SPAN}, ConditionReason.SPAN_FULL,
         "nothing new of partition 1 is sent: all that may be sent"),
    ],
)  # fmt: skip
def test_the_reason_and_the_way_out_are_told(stalled, reason, told):
    found = found_with(stalled)
    flowing = found[ConditionType.DELIVERIES_FLOWING]
    assert (flowing.is_true, flowing.reason) == (False, reason)
    assert flowing.message.startswith(told)
    assert "`partq keys release` ends a wait" in flowing.message
    assert found[ConditionType.READY].is_true


def test_otherwise_deliveries_flow():
    assert found_with({})[ConditionType.DELIVERIES_FLOWING].is_true is True
    findings = group_findings(group_facts(view=None))
    (unknown,) = [each for each in findings if each.type is ConditionType.DELIVERIES_FLOWING]
    assert unknown.is_true is None


@pytest.mark.parametrize(
    ("held", "reason", "told"),
    [
        ({PARTITIONS[0]: (1, 0), PARTITIONS[1]: (1, 3)}, ConditionReason.KEYS_BLOCKED,
         "partitions 0-1: 2 keys are blocked by a message that failed too often, and 3 keys are"),
        ({PARTITIONS[1]: (0, 1)}, ConditionReason.KEYS_QUARANTINED,
         "partition 1: 1 key is in quarantine (what follows becomes dead letters): "),
    ],
)  # fmt: skip
def test_keys_that_wait_until_they_are_released_are_told(held, reason, told):
    findings = group_findings(group_facts(view=group_view(held_keys=held)))
    (flowing,) = [each for each in findings if each.type is ConditionType.DELIVERIES_FLOWING]
    assert (flowing.is_true, flowing.reason) == (False, reason)
    assert flowing.message.startswith(told)
    assert flowing.message.endswith("`partq keys release` ends that")
