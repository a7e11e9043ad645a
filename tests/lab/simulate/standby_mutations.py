"""Mistakes in who takes over, and when: standbys, ranks, masters that are re-dealt."""

from dataclasses import replace

from partq.core.group import planner
from partq.core.group.assignors import failover
from partq.core.group.membership import OwnershipState
from partq.core.group.planner import GroupType
from partq.core.group.standby import StandbyPolicy
from tests.lab.simulate.mutation import Mutation, code

AT_ONCE, AFTER_DELAY = StandbyPolicy.AT_ONCE, StandbyPolicy.AFTER_DELAY
LOST = frozenset({"pod_vanish", "pod_crash"})


def _whoever_is_not_there(observation, assessment, under_way, _bind_ms):
    sets = {}
    for partition, state in assessment.partitions.items():
        if state is OwnershipState.WAITING and partition not in under_way:
            sets.setdefault(observation.partitions[partition].member, []).append(partition)
    return sets


def _take_over_at_once(self):
    rules, self._rules = self._rules, replace(self._rules, standby=AT_ONCE)
    try:
        return _REAL_TAKE_OVER(self)
    finally:
        self._rules = rules


_REAL_TAKE_OVER = planner._PlanBuilder._take_over


def _from_behind(partitions, members, previous, *, priorities=planner.NO_PRIORITIES):
    right = failover(partitions, members, previous, priorities=priorities)
    return dict(zip(right, reversed(right.values()), strict=True))


def _never_mind_who_may_return(observation, assessment, rules):
    waiting = OwnershipState.WAITING in assessment.partitions.values()
    return observation.is_complete and not assessment.join_wait_ms and not waiting


STANDBY_MUTATIONS = (
    Mutation(
        "a standby takes over although a broker may have lost the flow with its process",
        code(planner, "lost_sets", _whoever_is_not_there),
        frozenset({"G5"}),
        frozenset({"broker_kill", "broker_end", "cut"}),
        {"group_type": GroupType.FAILOVER, "standby": AT_ONCE, "pod_count": 3, "delay_s": 2.0},
    ),
    Mutation(
        "a standby does not wait although the group says so",
        code(planner._PlanBuilder, "_take_over", _take_over_at_once),
        frozenset({"G5"}),
        LOST,
        {"group_type": GroupType.EXCLUSIVE, "standby": AFTER_DELAY, "pod_count": 3, "delay_s": 2.0},
    ),
    Mutation(
        "the index of a partition does not name its master",
        code(planner, "failover", _from_behind),
        frozenset({"G5"}),
        frozenset({"pod_start"}),
        {"group_type": GroupType.FAILOVER, "partition_count": 4, "pod_count": 2},
    ),
    Mutation(
        "healthy masters move before the lost one is late",
        code(planner, "may_be_balanced", _never_mind_who_may_return),
        frozenset({"G5"}),
        LOST,
        {
            "group_type": GroupType.FAILOVER, "standby": AT_ONCE, "partition_count": 4,
            "pod_count": 3, "delay_s": 2.0,
        },
    ),
)  # fmt: skip
