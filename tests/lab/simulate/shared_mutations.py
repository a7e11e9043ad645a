"""Mistakes that somebody could make where several members share a partition by its keys."""

from partq.broker.parts.partition_shares import PartitionShares
from partq.core.group.planner import GroupType
from partq.core.lanes.blocked_lanes import BlockedLanes, OwedLanes
from partq.core.lanes.shared_book import ShareBook, SharedBook
from partq.core.parts.hash_ranges import HashRange
from partq.lab.simulate.schedule import Event
from tests.lab.simulate.mutation import Mutation, both, code, text

SHARED = {
    "nack_order": "Key", "nack_s": 0.05, "max_parked_keys": 1024, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "has_letters": False, "is_audited": False, "work_s": 0.1,
    "partition_count": 1, "broker_count": 1, "pod_count": 2, "delay_s": 0.0, "max_handoff_s": 1.0,
    "is_client_assigned": False, "group_type": GroupType.KEY_SHARED, "parts": 4,
    "hash_range": HashRange.BALANCED,
}  # fmt: skip
"""One partition, so that its keys have much to do with each other."""


def _members_come_and_go(seed):
    return (
        Event(0.8, "publish", {"count": 11, "gap_s": 0.0}),
        Event(0.82, "publish", {"count": 11, "gap_s": 0.0}),
        Event(round(0.85 + seed % 7 * 0.02, 3), "pod_start", {}),
        Event(1.2, "publish", {"count": 11, "gap_s": 0.01}),
        Event(round(1.6 + seed % 5 * 0.03, 3), "pod_end", {"which": seed % 3, "grace_s": 2.0}),
        Event(1.7, "publish", {"count": 11, "gap_s": 0.01}),
    )


def _members_come(seed):
    at = round(0.85 + seed % 7 * 0.03, 3)
    publish = [Event(0.8 + n / 100, "publish", {"count": 11, "gap_s": 0.0}) for n in range(4)]
    # Until the last event applications work slowly, so that something is in hand as keys move.
    return (*publish, Event(at, "pod_start", {}), Event(2.5, "publish", {"count": 2, "gap_s": 0.0}))


def _members_go(seed):
    at = round(1.0 + seed % 7 * 0.03, 3)
    publish = [Event(0.8 + n / 100, "publish", {"count": 11, "gap_s": 0.0}) for n in range(6)]
    return (*publish, Event(at, "pod_end", {"which": seed % 2, "grace_s": 2.0}))


def _the_group_is_created_again_as_the_clock_is_set_back(seed):
    at = round(1.3 + seed % 7 * 0.03, 3)
    return (
        Event(0.8, "publish", {"count": 11, "gap_s": 0.05}),
        Event(1.2, "redis_clock", {"by_s": -30.0}),
        Event(at, "group_life", {"which": 0, "for_s": 0.1, "is_one": False}),
        Event(1.5, "publish", {"count": 11, "gap_s": 0.05}),
    )


SHARED_MUTATIONS = (
    Mutation(
        "a key moves while its former member has messages of it",
        text(
            SharedBook,
            "assign",
            ("record.go_on(record.blocked.drain(holders))", "record.go_on([*holders])"),
        ),
        frozenset({"K1", "K2"}),
        _members_come_and_go,
        SHARED,
    ),
    Mutation(
        "a key that has moved is not looked for again",
        code(ShareBook, "go_back", lambda self: None),
        frozenset({"K2", "G7"}),
        _members_go,
        SHARED,
    ),
    Mutation(
        "a key stays blocked when its former member is done with it",
        code(BlockedLanes, "drained", lambda self, lanes: []),
        frozenset({"G7"}),
        _members_come,
        SHARED | {"work_s": 0.4, "pod_count": 1},
    ),
    Mutation(
        "members of a partition have tokens that know nothing of each other",
        text(
            PartitionShares,
            "bind",
            ("self.round = Epoch(max(self.round, whole.epoch) + 1)", "self.round = Epoch(1)"),
        ),
        frozenset({"S1", "error"}),
        _members_come_and_go,
        SHARED,
    ),
    Mutation(
        "a group that is created again gives its members epochs that others had",
        text(
            PartitionShares,
            "__init__",
            ("max(whole.epoch, whole.share_epochs.top)", "whole.epoch"),
        ),
        frozenset({"S1", "S2", "G3"}),
        _the_group_is_created_again_as_the_clock_is_set_back,
        SHARED | {"pod_count": 3},
    ),
    Mutation(
        "a member is sent keys of which it has not said yet what it drops",
        both(
            text(OwedLanes, "ask", ("self.notices.update", "dict")),
            text(OwedLanes, "join", ("self.notices.update", "dict")),
        ),
        frozenset({"K1", "K2"}),
        frozenset({"nack", "slow", "storm"}),
        SHARED | {"nack_s": 0.0},
    ),
)
