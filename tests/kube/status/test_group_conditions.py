"""The conditions of a group: dead letters that wait, and how partitions are written."""

import pytest

from partq.core.parts.part_id import number_ranges
from partq.kube.names import ConditionType
from partq.kube.status.group_conditions import group_findings
from tests.kube.facts import CALM, PARTITIONS, group_facts, group_view, summary

GONE = "queue shop/dead: not found in the Redis of orders"
BLOCKED = {PARTITIONS[0]: GONE, PARTITIONS[1]: "did not answer", PARTITIONS[3]: GONE}


@pytest.mark.req("PUL-59")
@pytest.mark.parametrize(
    ("view", "status", "ready"),
    [
        pytest.param(None, None, (None, "Pending"), id="nobody has looked"),
        pytest.param(group_view(), True, (True, "Stable"), id="nothing waits"),
        pytest.param(
            group_view(blocked=BLOCKED), False, (False, "DeadLettersBlocked"), id="deliveries stop"
        ),
        pytest.param(
            group_view("----", members={}, blocked=BLOCKED),
            False,
            (False, "DeadLettersBlocked"),
            id="and nobody is there",
        ),
        pytest.param(
            group_view("RR--", blocked=BLOCKED),
            False,
            (False, "PartitionsUnassigned"),
            id="what nobody has is the greater trouble",
        ),
    ],
)
def test_dead_letters(view, status, ready):
    findings = group_findings(group_facts(view=view))
    assert summary(findings)[0] == ready
    assert summary(findings)[2] == CALM, "the target may be on its way"
    (found,) = [each for each in findings if each.type is ConditionType.DEAD_LETTERS_STORED]
    assert found.is_true is status
    if status is False:
        assert found.message == f"deliveries of partitions 0-1,3 wait: {GONE}"


def test_partitions_that_no_member_has_chosen():
    """Members may choose so: the group is Ready, and the condition names them."""
    findings = group_findings(group_facts(view=group_view("R-R-", is_client_assigned=True)))
    assert summary(findings)[0] == (True, "PartitionsUnregistered")
    (found,) = [each for each in findings if each.type is ConditionType.PARTITIONS_ASSIGNED]
    assert found.is_true is False
    assert found.message == "no member has registered partitions 1,3: in this group members choose"


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ([], ""),
        ([0], "0"),
        ([7, 0, 1, 2, 3], "0-3,7"),
        ([1, 3, 5], "1,3,5"),
        ([4, 5], "4-5"),
    ],
)
def test_ranges(indexes, text):
    assert number_ranges(indexes) == text
