"""The conditions of a queue: the three that sum up, and what is told beside Ready."""

from dataclasses import replace

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status.conditions import bad
from partq.kube.status.facts import Durability
from partq.kube.status.queue_conditions import queue_findings
from partq.store.server import FULL_SHARE
from tests.kube.facts import CALM, SYNCED, queue_facts, queue_view, rescale_status, summary

ONE = replace(queue_view(0), partitions=[PartitionId(1, 0)])
REFUSED = {
    ConditionType.SPEC_VALID: bad(
        ConditionType.SPEC_VALID, ConditionReason.REDIS_IMMUTABLE, "fixed"
    )
}
AWAY = {
    ConditionType.STORE_REACHABLE: bad(
        ConditionType.STORE_REACHABLE, ConditionReason.STORE_UNREACHABLE, "no answer"
    )
}


@pytest.mark.parametrize(
    ("facts", "ready", "reconciling", "stalled"),
    [
        pytest.param(queue_facts(), (True, "AsSpecified"), CALM, CALM, id="as specified"),
        pytest.param(
            queue_facts(view=None, is_provisioned=False, is_applied=False),
            (None, "Pending"),
            (True, "Pending"),
            CALM,
            id="just made",
        ),
        pytest.param(
            queue_facts(view=queue_view(3)),
            (False, "PartitionsUnserved"),
            (True, "PartitionsUnserved"),
            CALM,
            id="a partition without a broker",
        ),
        pytest.param(
            queue_facts(view=queue_view(2, {"b-0": True, "b-1": False})),
            (False, "BrokerUnreachable"),
            (True, "BrokerUnreachable"),
            CALM,
            id="a broker does not answer",
        ),
        pytest.param(
            queue_facts(view=queue_view(0, {})),
            (False, "BrokersMissing"),
            (True, "BrokersMissing"),
            CALM,
            id="no broker",
        ),
        pytest.param(
            queue_facts(view=queue_view(4, {"b-0": True})),
            (True, "AsSpecified"),
            (True, "AsSpecified"),
            CALM,
            id="all is served by fewer brokers than specified",
        ),
        pytest.param(
            queue_facts(troubles=REFUSED),
            (True, "RedisImmutable"),
            (False, "RedisImmutable"),
            (True, "RedisImmutable"),
            id="an edit is refused, and the queue continues",
        ),
        pytest.param(
            queue_facts(troubles=REFUSED, is_applied=False),
            (True, "RedisImmutable"),
            (False, "RedisImmutable"),
            (True, "RedisImmutable"),
            id="so it is to an operator that has just begun",
        ),
        pytest.param(
            queue_facts(troubles=REFUSED, view=queue_view(3)),
            (False, "PartitionsUnserved"),
            (False, "PartitionsUnserved"),
            (True, "RedisImmutable"),
            id="an edit is refused, and there is other trouble",
        ),
        pytest.param(
            queue_facts(troubles=REFUSED, is_provisioned=False, is_applied=False, view=None),
            (False, "RedisImmutable"),
            (False, "RedisImmutable"),
            (True, "RedisImmutable"),
            id="refused from the start",
        ),
        pytest.param(
            queue_facts(view=queue_view(0, {}), ready_pods=0, is_starting=True, is_short=False),
            (None, "BrokersStarting"),
            (True, "BrokersStarting"),
            CALM,
            id="no broker yet",
        ),
        pytest.param(
            queue_facts(view=queue_view(3), is_starting=True),
            (None, "BrokersStarting"),
            (True, "BrokersStarting"),
            CALM,
            id="not all is claimed yet",
        ),
        pytest.param(
            queue_facts(troubles=AWAY),
            (False, "StoreUnreachable"),
            (True, "StoreUnreachable"),
            CALM,
            id="Redis is away",
        ),
    ],
)
def test_queue(facts, ready, reconciling, stalled):
    assert summary(queue_findings(facts)) == [ready, reconciling, stalled]


@pytest.mark.parametrize(
    ("phase", "hindrance", "reason"),
    [
        ("Preparing", "", "RescalePreparing"),
        ("Preparing", "Brokers", "RescaleWaitsForBrokers"),
        ("Preparing", "Generations", "TooManyGenerations"),
        ("Preparing", "Retired", "TooManyRetired"),
        ("Opening", "", "RescaleOpening"),
        ("Draining", "", "RescaleDraining"),
    ],
)
def test_a_change_of_the_number_of_partitions_is_reconciling_and_ready(phase, hindrance, reason):
    status = rescale_status(phase=phase, hindrance=hindrance)
    findings = queue_findings(queue_facts(rescale=status))
    assert summary(findings) == [(True, "AsSpecified"), (True, reason), CALM]
    reconciling = next(each for each in findings if each.type is ConditionType.RECONCILING)
    assert reconciling.message == "16 -> 24 partitions: waits for a broker"
    # What keeps the queue from being ready comes first.
    findings = queue_findings(queue_facts(rescale=status, view=queue_view(3)))
    assert summary(findings)[1] == (True, "PartitionsUnserved")


@pytest.mark.parametrize("phase", ["Settled", "Aborted"])
def test_a_change_that_is_over_is_not_reconciling(phase):
    findings = queue_findings(queue_facts(rescale=rescale_status(phase=phase)))
    assert summary(findings)[1] == CALM


def test_partitions_that_are_prepared_need_no_broker_and_retired_ones_do():
    layout = commit(prepare(Layout.first(4), 2, 1), 2)
    owners = dict.fromkeys(layout.partitions(), "b-0")
    view = replace(queue_view(), owners=owners, layout=prepare(layout, 8, 3))
    assert summary(queue_findings(queue_facts(view=view)))[0] == (True, "AsSpecified")
    del owners[PartitionId(1, 3)]
    findings = queue_findings(queue_facts(view=view))
    served = next(each for each in findings if each.type is ConditionType.PARTITIONS_SERVED)
    assert served.message == "no broker yet for 1 of 6 partitions"


@pytest.mark.parametrize(
    ("durability", "status", "reason"),
    [
        (None, None, "Pending"),
        (SYNCED, True, "SyncedAlways"),
        (Durability(is_appending=True, sync="everysec", is_nearly_full=False), False, "SyncedEve"),
        (Durability(is_appending=True, sync="no", is_nearly_full=False), False, "NotSynced"),
        (Durability(is_appending=True, sync="", is_nearly_full=False), None, "Pending"),
        (Durability(is_appending=False, sync="always", is_nearly_full=False), False, "NotSynced"),
        (Durability(is_appending=True, sync="always", is_nearly_full=True), False, "StoreNearly"),
    ],
)
def test_durability(durability, status, reason):
    findings = {f.type: f for f in queue_findings(queue_facts(durability=durability))}
    found = findings[ConditionType.STORE_DURABLE]
    assert found.is_true is status
    assert str(found.reason).startswith(reason)
    assert findings[ConditionType.READY].is_true is True, "it is told, and stops nothing"


def of_type(facts, type_):
    """Return status and reason of one condition of a queue."""
    (found,) = [each for each in queue_findings(facts) if each.type is type_]
    return found.is_true, str(found.reason)


def test_nobody_sees_how_a_redis_keeps_things_that_does_not_answer():
    assert of_type(queue_facts(troubles=AWAY), ConditionType.STORE_DURABLE) == (None, "Pending")


def test_what_lives_as_long_as_its_pod_is_not_durable():
    facts = queue_facts(is_store_ephemeral=True)
    assert of_type(facts, ConditionType.STORE_DURABLE) == (False, "NotPersistent")
    assert of_type(facts, ConditionType.READY)[0] is True


def test_brokers_that_are_away_for_a_moment_are_no_trouble():
    for is_short, expected in ((False, None), (True, False)):
        facts = queue_facts(ready_pods=1, is_short=is_short)
        status, reason = of_type(facts, ConditionType.BROKERS_READY)
        assert (status, reason) == (expected, "BrokersMissing" if is_short else "BrokersStarting")
        assert of_type(facts, ConditionType.READY) == (True, "AsSpecified")


@pytest.mark.parametrize(
    ("facts", "served", "brokers"),
    [
        pytest.param(
            queue_facts(view=queue_view(1), ready_pods=1, is_starting=True, is_short=False),
            "no broker yet for 3 of 4 partitions; brokers are starting",
            "1 of 2 brokers ready; 1 is starting",
            id="starting",
        ),
        pytest.param(
            queue_facts(view=ONE, partition_count=1, desired_brokers=1, ready_pods=0),
            "no broker yet for 1 of 1 partition",
            "0 of 1 broker ready",
            id="one of one",
        ),
        pytest.param(
            queue_facts(view=queue_view(3, {"b-0": True, "b-1": False})),
            "1 partition is not served; no answer from b-1",
            "1 of 2 brokers ready",
            id="a broker does not answer",
        ),
    ],
)
def test_counts_have_their_nouns(facts, served, brokers):
    messages = {each.type: each.message for each in queue_findings(facts)}
    assert messages[ConditionType.PARTITIONS_SERVED] == served
    assert messages[ConditionType.BROKERS_READY] == brokers


@pytest.mark.parametrize(
    ("view", "status", "reason"),
    [
        pytest.param(None, None, "Pending", id="nobody has looked"),
        pytest.param(queue_view(0, {"b-0": False}), None, "Pending", id="no broker answers"),
        pytest.param(queue_view(), True, "AsSpecified", id="there is room"),
        pytest.param(queue_view(is_quota_used_up=True), False, "QuotaUsedUp", id="there is none"),
    ],
)
def test_quota(view, status, reason):
    findings = {f.type: f for f in queue_findings(queue_facts(view=view))}
    found = findings[ConditionType.WITHIN_QUOTA]
    assert (found.is_true, str(found.reason)) == (status, reason)
    if view is not None and view.owners:
        assert findings[ConditionType.READY].is_true is True, "it is told, and stops no consumer"


def test_pauses_are_mirrored():
    findings = queue_findings(queue_facts(is_paused=True, is_rebalance_paused=True))
    assert {f.type: f.is_true for f in findings[-2:]} == {"Paused": True, "RebalancePaused": True}


def test_the_share_of_memory_in_the_text_is_the_one_at_which_publishing_stops():
    nearly_full = Durability(is_appending=True, sync="always", is_nearly_full=True)
    findings = {f.type: f for f in queue_findings(queue_facts(durability=nearly_full))}
    text = findings[ConditionType.STORE_DURABLE].message
    assert f"above {FULL_SHARE * 100:.0f} % of maxmemory" in text
