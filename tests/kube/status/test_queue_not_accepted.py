"""A group whose queue is not accepted says so in one sentence, and keeps what it has."""

import pytest

from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status import event_diff, render
from partq.kube.status.conditions import Finding, bad
from partq.kube.status.group_conditions import group_findings
from partq.kube.status.queue_conditions import queue_findings
from tests.kube.facts import NOW, group_facts, queue_facts

PROBLEM = "spec.redis.url: got both or neither of url and secretRef, expected one"
INVALID = bad(ConditionType.SPEC_VALID, ConditionReason.INVALID_SPEC, PROBLEM)


def ready_of(**queue):
    findings = queue_findings(queue_facts(troubles={INVALID.type: INVALID}, **queue))
    return next(each for each in findings if each.type is ConditionType.READY)


def test_one_that_never_was_is_told_in_one_sentence():
    queue = ready_of(is_provisioned=False, is_applied=False, view=None, partition_count=None)
    findings = group_findings(group_facts(queue="orders", queue_ready=queue, view=None))
    told = f"queue orders is not accepted: {PROBLEM}"
    by_type = {each.type: each for each in findings}
    wanted = (False, ConditionReason.QUEUE_NOT_READY, told)
    for type_ in (ConditionType.QUEUE_READY, ConditionType.READY):
        assert (by_type[type_].is_true, by_type[type_].reason, by_type[type_].message) == wanted
    notes = event_diff.of_conditions([], findings)
    assert notes == [("QueueNotReady", told, True)]


def test_one_that_was_served_changes_nothing():
    facts = group_facts(queue="orders", queue_ready=ready_of())
    status, findings = render.group_status(facts, {}, NOW, str)
    assert status["phase"] == "Stable"
    assert [each for each in findings if each.is_true is not True and each.message] == []
    assert event_diff.of_conditions([], findings) == []


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        (None, "there is no queue orders in the namespace"),
        (
            Finding(
                ConditionType.READY,
                False,
                ConditionReason.STORE_UNREACHABLE,
                "Redis at r:1: silent",
            ),
            "queue orders: StoreUnreachable: Redis at r:1: silent",
        ),
    ],
)
def test_the_queue_is_named(queue, told):
    findings = group_findings(group_facts(queue="orders", queue_ready=queue, view=None))
    ready = next(each for each in findings if each.type is ConditionType.READY)
    assert ready.message == told
