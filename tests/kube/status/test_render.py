"""From what a worker knows to status: truthful, small, and unchanged when nothing changes."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from partq.coordinator.view import GroupView, SessionTotals
from partq.core.group.membership import MemberState
from partq.core.group.records import AssignmentEntry, RebalanceRecord
from partq.core.model import Epoch, PartitionId
from partq.core.views.partition_advice import AdviceReason, PartitionAdvice
from partq.core.views.rescale_status import HeldGroup
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status import render
from partq.kube.status.conditions import Finding, bad
from partq.resources.status import ConsumerGroupStatus, PartitionedQueueStatus
from tests.kube.facts import (
    CALM,
    NOW,
    PARTITIONS,
    group_facts,
    group_view,
    queue_facts,
    queue_view,
    rescale_status,
    summary,
)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_url_says_how_brokers_are_called(scheme):
    status, _ = render.queue_status(queue_facts(scheme=scheme), {}, NOW)
    assert status["url"] == f"{scheme}://orders-partq.shop.svc:7411"


@pytest.mark.req("SOL-U10", "AZR-10")
@pytest.mark.parametrize(
    ("change", "target", "retiring", "summary"),
    [
        (None, 4, 0, "4"),
        (rescale_status(phase="Preparing", from_count=4, to_count=6), 6, 0, "4->6"),
        (rescale_status(phase="Opening", from_count=2, to_count=4), 4, 0, "2->4"),
        (rescale_status(phase="Draining", from_count=6, to_count=4, retiring=6), 4, 6, "6->4"),
        (rescale_status(phase="Settled", from_count=6, to_count=4), 4, 0, "4"),
        (rescale_status(phase="Aborted", from_count=4, to_count=6), 4, 0, "4"),
    ],
)
def test_the_number_of_partitions_and_what_becomes_of_it(change, target, retiring, summary):
    status, _ = render.queue_status(queue_facts(rescale=change), {}, NOW)
    assert status["partitions"] == {
        "configured": 4, "ready": 4, "target": target, "retiring": retiring, "summary": summary,
    }  # fmt: skip
    assert PartitionedQueueStatus.model_validate(
        {name: value for name, value in status.items() if value is not None}
    )


def test_a_change_is_shown_with_the_groups_that_hold_it_up():
    held = [HeldGroup(f"group-{number:02}", 8, 120) for number in range(30)]
    change = rescale_status(phase="Draining", held=held)
    shown = render.queue_status(queue_facts(rescale=change), {}, NOW)[0]["rescale"]
    assert shown.pop("held")[:1] == [{"group": "group-00", "partitions": 8, "messages": 120}]
    assert shown == {
        "generation": 2, "from": 16, "to": 24, "phase": "Draining", "movedPercent": 33.3,
        "sealed": 16, "opened": 8, "startedAt": "2025-11-24T16:00:00Z",
    }  # fmt: skip


@pytest.mark.req("SOL-U09")
@pytest.mark.parametrize(
    ("facts", "phase", "ready", "reconciling", "stalled"),
    [
        pytest.param(group_facts(), "Stable", (True, "Stable"), CALM, CALM, id="stable"),
        pytest.param(
            group_facts(view=group_view("----", members={})),
            "Empty",
            (True, "NoMember"),
            CALM,
            CALM,
            id="nobody is there",
        ),
        pytest.param(
            group_facts(view=group_view("RRRP", moving=1)),
            "Rebalancing",
            (True, "Rebalancing"),
            (True, "Rebalancing"),
            CALM,
            id="a handoff",
        ),
        pytest.param(
            group_facts(view=group_view("RRUU", waiting=True)),
            "Waiting",
            (False, "WaitingForMember"),
            (True, "WaitingForMember"),
            CALM,
            id="a member is lost",
        ),
        pytest.param(
            group_facts(view=group_view(held=3)),
            "Rebalancing",
            (True, "WaitingForBudget"),
            (True, "WaitingForBudget"),
            CALM,
            id="moves wait for the budget",
        ),
        pytest.param(
            group_facts(view=group_view("RR--")),
            "Rebalancing",
            (False, "PartitionsUnassigned"),
            CALM,
            CALM,
            id="nobody has a partition",
        ),
        pytest.param(
            group_facts(queue_ready=None, view=None),
            "Degraded",
            (False, "QueueNotFound"),
            (False, "QueueNotFound"),
            (True, "QueueNotFound"),
            id="no such queue",
        ),
        pytest.param(
            group_facts(
                queue_ready=Finding(ConditionType.READY, False, ConditionReason.STORE_UNREACHABLE)
            ),
            "Degraded",
            (False, "QueueNotReady"),
            (True, "QueueNotReady"),
            CALM,
            id="its queue is not ready",
        ),
        pytest.param(
            group_facts(view=group_view(unseen=1)),
            "Stable",
            (None, "Pending"),
            (True, "Pending"),
            CALM,
            id="a broker does not know it yet",
        ),
        pytest.param(
            group_facts(
                problem=bad(ConditionType.SPEC_VALID, ConditionReason.INVALID_SPEC, "strategy")
            ),
            "Stable",
            (True, "InvalidSpec"),
            (False, "InvalidSpec"),
            (True, "InvalidSpec"),
            id="a broken spec: what runs continues",
        ),
        pytest.param(group_facts(is_paused=True), "Paused", (True, "Stable"), CALM, CALM, id="all"),
    ],
)
def test_group(facts, phase, ready, reconciling, stalled):
    status, findings = render.group_status(facts, {}, NOW, str)
    found = summary(findings)
    assert status["phase"] == phase
    assert found[0] == ready
    assert found[1][0] is reconciling[0]
    assert found[2] == stalled


def test_time_of_change_stays_where_nothing_changes():
    first, _ = render.queue_status(queue_facts(), {}, NOW)
    later = NOW + timedelta(minutes=5)
    assert render.queue_status(queue_facts(), first, later)[0] == first

    changed, _ = render.queue_status(queue_facts(view=queue_view(3)), first, later)
    since = {each["type"]: each["lastTransitionTime"] for each in changed["conditions"]}
    assert since["Ready"] == "2026-11-20T12:05:00Z"
    assert since["SpecValid"] == "2026-11-20T12:00:00Z"
    assert all(each["message"] for each in changed["conditions"])
    assert {each["observedGeneration"] for each in changed["conditions"]} == {3}


def test_what_a_group_shows():
    view = GroupView(
        partitions={
            PARTITIONS[0]: AssignmentEntry("a/x", Epoch(1), "Ready"),
            PARTITIONS[1]: AssignmentEntry("a/y", Epoch(1), "Ready"),
            PARTITIONS[2]: AssignmentEntry("b", Epoch(1), "Unbound"),
            PARTITIONS[3]: AssignmentEntry(None, Epoch(1), "Unassigned"),
        },
        members={
            "a/x": MemberState.BOUND,
            "a/y": MemberState.LEAVING,
            "b": MemberState.WAITING,
            "c": MemberState.BOUND,
        },
        unseen_count=0,
        moving_count=0,
        is_waiting=True,
        rebalances=[RebalanceRecord("member_lost", 2, 1, 1_000, 1_250, 40)] * 7,
    )
    status, _ = render.group_status(group_facts(view=view, lag=9), {}, NOW, lambda m: m[0])
    assert status["members"] == {"active": 2, "standby": 1, "lost": 1, "refused": 0}
    assert status["partitions"] == {"ready": 2, "paused": 0, "unbound": 1, "unassigned": 1}
    assert status["assignments"] == [
        {"pod": "a", "partitions": "0-1"},
        {"pod": "b", "partitions": "2"},
    ]
    shared, _ = render.group_status(
        group_facts(view=replace(view, is_open=True), lag=9), {}, NOW, lambda m: m[0]
    )
    assert shared["members"] == {"active": 3, "standby": 0, "lost": 1, "refused": 0}
    assert shared["sessions"] is None
    shrunk = replace(view, retired={PARTITIONS[1], PARTITIONS[3]})
    after, _ = render.group_status(group_facts(view=shrunk, lag=9), {}, NOW, lambda m: m[0])
    assert after["members"] == status["members"], "who holds one without slots is no standby"
    assert after["partitions"] == {"ready": 1, "paused": 0, "unbound": 1, "unassigned": 0}
    assert after["assignments"] == [
        {"pod": "a", "partitions": "0"},
        {"pod": "b", "partitions": "2"},
    ]
    assert len(status["rebalances"]) == 5
    assert status["rebalances"][0] == {
        "id": 1000,
        "trigger": "member_lost",
        "startedAt": "1970-01-01T00:00:01Z",
        "moved": 2,
        "assigned": 1,
        "timedOut": 0,
        "durationMilliseconds": 250,
        "longestPauseMilliseconds": 40,
    }


def test_status_fits_the_schema():
    status, _ = render.queue_status(queue_facts(tokens_secret="orders-tokens"), {}, NOW)
    PartitionedQueueStatus.model_validate(status)
    rebalances = [RebalanceRecord("member_joined", 1, 1, 5, 6, 1)]
    facts = group_facts(view=group_view(rebalances=rebalances), lag=7, rebalance_now="1")
    status, _ = render.group_status(facts, {}, NOW, str)
    ConsumerGroupStatus.model_validate(status)


@pytest.mark.parametrize("pods", [1000, 4096])
def test_status_stays_small(pods):
    """4,096 partitions, dealt out so that no two of a pod are neighbours."""
    partitions = [PartitionId(1, index) for index in range(4096)]
    names = [f"{'workers-of-a-long-name-' * 2}5d7f9c{n:05}" for n in range(pods)]
    view = GroupView(
        partitions={
            p: AssignmentEntry(names[p.index % pods], Epoch(1), "Ready") for p in partitions
        },
        members=dict.fromkeys(names, MemberState.BOUND),
        unseen_count=0,
        moving_count=0,
        is_waiting=False,
        rebalances=[RebalanceRecord("member_joined", 4096, 4096, 10**12, 10**12 + 5, 10**6)] * 20,
    )
    status, _ = render.group_status(group_facts(view=view, lag=10**15), {}, NOW, str)
    assert len(status["assignments"]) == 1000
    assert len(json.dumps(status)) < 256 * 1024


def test_more_ranges_than_there_is_room_for_are_cut_between_numbers():
    """Two pods, and strategy `modulo`: every second partition of 4,096."""
    partitions = [PartitionId(1, index) for index in range(4096)]
    view = GroupView(
        partitions={p: AssignmentEntry("ab"[p.index % 2], Epoch(1), "Ready") for p in partitions},
        members=dict.fromkeys("ab", MemberState.BOUND),
        unseen_count=0,
        moving_count=0,
        is_waiting=False,
        rebalances=[],
    )
    status, _ = render.group_status(group_facts(view=view), {}, NOW, str)
    ConsumerGroupStatus.model_validate(status)
    *numbers, last = status["assignments"][0]["partitions"].split(",")
    assert last == "..."
    assert [int(number) for number in numbers] == [2 * place for place in range(len(numbers))]
    assert len(numbers) > 200


def test_an_advice_is_shown_with_its_reason_and_since_when():
    advice = PartitionAdvice(32, AdviceReason.LAG_GROWS, "x" * 2000)
    status, _ = render.queue_status(queue_facts(advice=advice, advised_since=NOW), {}, NOW)
    assert status["advice"] == {
        "partitions": 32, "reason": "LagGrows", "message": "x" * 1024,
        "since": "2026-11-20T12:00:00Z",
    }  # fmt: skip
    assert render.queue_status(queue_facts(), {}, NOW)[0]["advice"] is None


def test_sessions_are_those_of_the_last_look():
    facts = group_facts(view=group_view(), sessions=SessionTotals(5, 2, 3))
    status, _ = render.group_status(facts, {}, NOW, lambda member: "a")
    assert status["sessions"] == {"withMessages": 5, "locked": 2, "waiting": 3}
    ConsumerGroupStatus.model_validate(status)
