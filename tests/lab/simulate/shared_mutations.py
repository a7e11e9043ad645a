"""Mistakes that somebody could make where several members share a partition by its keys."""

from partq.broker.parts.bound_shares import BoundShares
from partq.broker.parts.partition_shares import PartitionShare
from partq.core.group.planner import GroupType
from partq.core.lanes.blocked_lanes import BlockedLanes, OwedLanes
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.lane_sender import LaneSender
from partq.core.lanes.shared_book import ShareBook, SharedBook
from partq.core.parts.hash_ranges import HashRange
from partq.lab.simulate.schedule import WIDE, Event
from tests.lab.simulate.mutation import Mutation, both, code, text

SHARED = {
    "nack_order": "Key", "nack_s": 0.05, "max_parked_keys": 1024, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "has_letters": False, "is_audited": False, "work_s": 0.1,
    "partition_count": 1, "broker_count": 1, "pod_count": 2, "delay_s": 0.0, "max_handoff_s": 1.0,
    "is_client_assigned": False, "group_type": GroupType.KEY_SHARED, "parts": 4,
    "hash_range": HashRange.BALANCED, "max_span": WIDE,
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


def _all_is_there_at_once(seed):
    publish = [Event(0.8 + n / 100, "publish", {"count": 11, "gap_s": 0.0}) for n in range(4)]
    at = round(0.9 + seed % 7 * 0.1, 3)
    # Nothing is published later, which would wake everybody.
    return (*publish, Event(at, "pod_start", {}), Event(8.0, "publish", {"count": 1, "gap_s": 0.0}))


def _acks_are_forged(seed):
    publish = [Event(0.8 + n / 100, "publish", {"count": 11, "gap_s": 0.0}) for n in range(4)]
    return (
        *publish,
        Event(round(0.85 + seed % 7 * 0.03, 3), "hostile", {"count": 5}),
        Event(1.5, "hostile", {"count": 5}),
        Event(2.0, "publish", {"count": 2, "gap_s": 0.0}),
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
            BoundShares,
            "_raise_round",
            ("whole.share_epochs.top = Epoch(max(self.round, whole.epoch) + 1)", "Epoch(1)"),
        ),
        frozenset({"S1", "error"}),
        _members_come_and_go,
        SHARED,
    ),
    Mutation(
        "a group that is created again gives its members epochs that others had",
        text(
            BoundShares,
            "__init__",
            ("max(whole.epoch, whole.share_epochs.top)", "whole.epoch"),
        ),
        frozenset({"S1", "S2", "G3"}),
        _the_group_is_created_again_as_the_clock_is_set_back,
        SHARED | {"pod_count": 3},
    ),
    Mutation(
        "an ack counts of what another member has",
        text(
            LaneBook,
            "ack",
            (
                "self._in_flight -= acked",
                "self._in_flight -= acked; [span.change(n, ACKED, low, stop) for n in range(9)]",
            ),
        ),
        frozenset({"G2", "S2"}),
        _acks_are_forged,
        SHARED,
    ),
    Mutation(
        "an ack counts under an epoch from before its member was bound",
        code(PartitionShare, "bound_from", property(lambda share: 0)),
        frozenset({"G2", "S2"}),
        _acks_are_forged,
        SHARED,
    ),
    Mutation(
        "the span above the lowest open message is not looked at",
        text(LaneSender, "take", ("stop > self.cursor + self.max_span", "False")),
        frozenset({"K6"}),
        _members_come,
        SHARED | {"max_span": 4},
    ),
    Mutation(
        "what one member has freed wakes no other",
        code(SharedBook, "pop_news", lambda self: False),
        frozenset({"K5", "G6", "G7"}),
        _all_is_there_at_once,
        SHARED | {"work_s": 0.8, "pod_count": 1},
    ),
    Mutation(
        "a member hears late that a delay is over",
        code(LaneSender, "next_due", property(lambda book: book._blocked.parked.next_due + 1.0)),
        frozenset({"K5", "G6"}),
        frozenset({"nack"}),
        SHARED | {"nack_s": 0.4, "work_s": 0.4},
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
