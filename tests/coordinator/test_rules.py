import pytest

from partq.coordinator.group.rebalance_history import RebalanceHistory
from partq.coordinator.rules import (
    broker_rules,
    check_key_shared,
    check_partition_count,
    group_rules,
    group_start,
)
from partq.core.group.disruption_budget import DisruptionBudget
from partq.core.group.moves import Trigger
from partq.core.group.planner import GroupType
from partq.core.parts.hash_ranges import HashRange
from partq.errors import SettingsError
from partq.resources.rebalance import RebalanceSpec

QUEUE = {
    "brokers": {"replicas": 3},
    "rebalance": {"delaySeconds": 5, "maxHandoffSeconds": 3},
}


@pytest.mark.req("SOL-42")
def test_a_group_overrides_its_queue():
    rules = group_rules(QUEUE, {"rebalance": {"delaySeconds": 0.5, "maxHandoffSeconds": None}})
    assert rules.membership.delay_ms == 500
    assert rules.drain_ms == 3_000
    assert (rules.type, rules.strategy) == (GroupType.PARTITIONED, "sticky")


def test_a_group_has_its_own_budget_or_that_of_its_queue():
    queue = {"rebalance": {"maxPausedPartitions": 4, "maxMovesPerMinute": 60}}
    own = {"rebalance": {"maxMovesPerMinute": 0, "minMoveIntervalSeconds": 1.5}}
    assert group_rules(queue, {}).budget == DisruptionBudget(max_paused=4, max_per_minute=60)
    assert group_rules(queue, own).budget == DisruptionBudget(max_paused=4, min_interval_ms=1_500)
    assert group_rules({}, {}).budget == DisruptionBudget()


@pytest.mark.req("SOL-U03", "SOL-U04")
def test_defaults_are_those_of_the_resources():
    rules = group_rules({}, {})
    assert rules == group_rules(
        {"rebalance": RebalanceSpec().model_dump(mode="json", by_alias=True)}, {}
    )
    assert (rules.membership.delay_ms, rules.drain_ms) == (5_000, 3_000)
    assert broker_rules({}).expected_count == 1
    assert broker_rules(QUEUE).expected_count == 3
    assert group_start({}) == "Earliest"
    assert group_start({"start": "Latest"}) == "Latest"
    assert group_start({"start": "Earliest", "startAtMs": 7}) == 7


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ({"type": "Common"}, "Common"),
        ({"strategy": "best"}, "best"),
        ({"rebalance": {"delaySeconds": -1}}, "delaySeconds"),
        ({"rebalance": {"maxHandoffSeconds": "3"}}, "maxHandoffSeconds"),
        ({"rebalance": {"delaySeconds": 3_601}}, "delaySeconds"),
        ({"rebalance": {"standby": "Never"}}, "expected AtOnce or AfterDelay"),
        ({"rebalance": {"maxPausedPartitions": 1.5}}, "maxPausedPartitions"),
        ({"rebalance": {"maxMovesPerMinute": True}}, "maxMovesPerMinute"),
        ({"rebalance": {"maxMovesPerMinute": -1}}, "maxMovesPerMinute"),
        ({"rebalance": {"minMoveIntervalSeconds": 86_401}}, "minMoveIntervalSeconds"),
        ({"rebalance": []}, None),
        ({"rebalance": 5}, "rebalance"),
    ],
)
def test_a_broken_spec_is_named(group, named):
    if named is None:
        assert group_rules(QUEUE, group)
        return
    with pytest.raises(SettingsError, match=named):
        group_rules(QUEUE, group)


SHARED = {"type": "KeyShared", "keyShared": {"parts": 16, "hashRange": "AutoSplit"}}


def test_a_key_shared_group_has_parts():
    rules = group_rules({**QUEUE, "partitions": 4096}, SHARED)
    assert (rules.type, rules.parts) == (GroupType.KEY_SHARED, 16)
    assert rules.hash_range is HashRange.AUTO_SPLIT
    assert group_rules(QUEUE, {"type": "Partitioned"}).parts == 0
    assert group_rules(QUEUE, {"type": "KeyShared"}).parts == 16


@pytest.mark.parametrize(
    ("queue", "shared", "named"),
    [
        ({}, {"parts": 3}, r"keyShared\.parts: got 3, expected one of 1, 2, 4"),
        ({}, {"parts": True}, "parts: got True"),
        ({}, {"hashRange": "Even"}, "hashRange: got 'Even', expected one of Balanced"),
        ({"partitions": 4096}, {"parts": 32}, "131,072 parts in all; expected at most 65,536"),
    ],
)
def test_broken_parts_are_named(queue, shared, named):
    with pytest.raises(SettingsError, match=named):
        group_rules(queue, {"type": "KeyShared", "keyShared": shared})


WIDE = {**SHARED, "keyShared": {"parts": 32}}


@pytest.mark.parametrize(
    ("queue", "group", "before", "named"),
    [
        ({}, SHARED, {"type": "Partitioned"}, "type: got KeyShared, expected Partitioned"),
        ({}, {"type": "Exclusive"}, SHARED, "type: got Exclusive, expected KeyShared"),
        ({}, SHARED, {**SHARED, "keyShared": {"parts": 8}}, "parts: got 16, expected 8"),
        ({}, {"type": "Session"}, SHARED, "type: got Session, expected KeyShared"),
        ({}, {"type": "Failover"}, {"type": "Session"}, "type: got Failover, expected Session"),
        ({"audit": True}, SHARED, None, None),
        ({"partitions": 4096}, {**SHARED, "keyShared": {"parts": 32}}, None, "parts in all"),
        ({"partitions": 4096}, WIDE, WIDE, None),
        ({}, SHARED, {**SHARED, "keyShared": {"parts": 16, "hashRange": "Balanced"}}, None),
        ({"audit": True}, {"type": "Failover"}, {"type": "Partitioned"}, None),
        ({}, SHARED, None, None),
    ],
)
def test_a_key_shared_group_stays_as_it_was_made(queue, group, before, named):
    if named is None:
        check_key_shared(queue, group, before)
        return
    with pytest.raises(SettingsError, match=named):
        check_key_shared(queue, group, before)


def test_a_partition_count_is_refused_with_which_a_group_has_too_many_parts():
    groups = {"a": {"type": "Partitioned"}, "b": SHARED, "broken": {**SHARED, "keyShared": 3}}
    check_partition_count({"partitions": 4096}, groups)
    check_partition_count({"partitions": 2048}, {**groups, "wide": WIDE})
    named = (
        "partitions: got 2049, of which group wide would have 32 parts.* 65,568 in all.* 2,048 p"
    )
    with pytest.raises(SettingsError, match=named):
        check_partition_count({"partitions": 2049}, {**groups, "wide": WIDE})


def test_other_broken_specs_are_named():
    with pytest.raises(SettingsError, match="start"):
        group_start({"start": "Middle"})
    for broken in (-1, True, "now"):
        with pytest.raises(SettingsError, match="startAtMs"):
            group_start({"startAtMs": broken})
    with pytest.raises(SettingsError, match="replicas"):
        broker_rules({"brokers": {"replicas": 0}})


def test_a_rebalance_is_over_when_nothing_of_it_ran_for_a_whole_look():
    history = RebalanceHistory()
    history.begin(Trigger.MEMBER_JOINED, 1_000)
    history.begin(Trigger.MEMBER_LOST, 1_100)
    assert history.close_ended({Trigger.MEMBER_JOINED}) == []
    history.commit(Trigger.MEMBER_JOINED, 1_200, had_source=True, pause_ms=40)
    history.commit(Trigger.MEMBER_JOINED, 1_250, had_source=False, pause_ms=10)
    assert history.close_ended(set()) == [], (
        "the lost member's had nothing to move, so it is no rebalance"
    )
    (rebalance,) = history.close_ended(set())
    assert (rebalance.trigger, rebalance.moved, rebalance.assigned) == ("member_joined", 1, 1)
    assert (rebalance.duration_ms, rebalance.longest_pause_ms) == (250, 40)
    assert history.last == [rebalance]


def test_only_the_last_rebalances_are_kept():
    history = RebalanceHistory()
    for number in range(25):
        history.commit(Trigger.MEMBER_LEFT, number, had_source=True, pause_ms=0)
        history.close_ended(set())
        history.close_ended(set())
    assert [rebalance.started_at_ms for rebalance in history.last] == list(range(5, 25))
