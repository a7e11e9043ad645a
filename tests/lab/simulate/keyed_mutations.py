"""Mistakes that somebody could make in deliveries of the order Key."""

from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.core.group.planner import GroupType
from partq.core.lanes.blocked_lanes import BlockedLanes, OwedLanes
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.lane_sender import LaneSender
from partq.core.lanes.parked_lanes import ParkedLanes
from partq.lab.simulate.schedule import WIDE, Event
from tests.lab.simulate.mutation import Mutation, both, code, text

KEYED = {
    "nack_order": "Key", "nack_s": 0.05, "max_parked_keys": 1024, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "has_letters": False, "is_audited": False, "work_s": 0.03,
    "partition_count": 1, "broker_count": 1, "group_type": GroupType.PARTITIONED,
    "max_span": WIDE,
}  # fmt: skip
"""One partition, so that its keys have much to do with each other."""


def _brokers_die_while_keys_wait(seed):
    at = 1.2 + seed % 10 * 0.05
    return (
        Event(0.8, "publish", {"count": 12, "gap_s": 0.0}),
        Event(0.9, "nack", {"count": 3}),
        Event(1.0, "publish", {"count": 12, "gap_s": 0.02}),
        Event(round(at, 3), "broker_kill", {"which": 0, "for_s": 0.05, "is_silent": False}),
    )


def _brokers_die_while_keys_are_held(seed):
    at = 1.2 + seed % 10 * 0.02
    return (
        Event(1.1, "nack", {"count": 3}),
        Event(1.11, "publish", {"count": 12, "gap_s": 0.0}),
        Event(round(at, 3), "broker_kill", {"which": 0, "for_s": 0.05, "is_silent": False}),
        Event(1.5, "publish", {"count": 12, "gap_s": 0.02}),
    )


HELD = KEYED | {"has_letters": True, "max_redeliveries": 0, "takes_expired": False, "nack_s": 0.05}
_REAL_FORGET = DeliveredWindow.forget_slots


def _return_and_keep(self, asked):
    names = "_offsets", "_causes", "_batch", "_end", "payload"
    before = {name: getattr(self, name) for name in names}
    returned = _REAL_FORGET(self, asked)
    for name, value in before.items():
        setattr(self, name, value)
    return returned


KEYED_MUTATIONS = (
    Mutation(
        "the rest of a nacked key is not asked back",
        text(
            LaneBook,
            "_take_back",
            ("held = span.of_lanes(waits, self._share, self.cursor, span.read_end)", "held = []"),
        ),
        frozenset({"K1", "K2"}),
        frozenset({"nack"}),
        KEYED,
    ),
    Mutation(
        "which keys wait is kept in memory alone",
        code(LaneSender, "parked", property(lambda self: {})),
        frozenset({"K4"}),
        _brokers_die_while_keys_wait,
        KEYED | {"nack_s": 2.0},
    ),
    Mutation(
        "a key goes on before its count is stored",
        code(BlockedLanes, "count", lambda self, lanes: None),
        frozenset({"counts"}),
        frozenset({"nack", "pod_crash", "redis_stall"}),
        KEYED,
    ),
    Mutation(
        "what came back of a key is not looked for again",
        text(LaneSender, "go_on", ("if mine:", "if False:")),
        frozenset({"K2", "G7"}),
        frozenset({"nack"}),
        KEYED,
    ),
    Mutation(
        "a key goes on before its member has said what it drops",
        both(
            text(OwedLanes, "ask", ("self.notices.update", "dict")),
            text(OwedLanes, "join", ("self.notices.update", "dict")),
        ),
        frozenset({"K1", "K2"}),
        frozenset({"nack", "slow", "storm"}),
        KEYED | {"nack_s": 0.0},
    ),
    Mutation(
        "an ack counts of what its member does not have",
        text(
            LaneBook,
            "ack",
            (
                "self._in_flight -= acked",
                "self._in_flight -= acked; span.change(OPEN, ACKED, low, stop)",
            ),
        ),
        frozenset({"G2", "S2", "G6", "K2"}),
        frozenset({"nack", "hostile"}),
        KEYED | {"nack_s": 0.4},
    ),
    Mutation(
        "a nack holds up every key",
        text(LaneSender, "take", ("or blocked.are_all_parked", "or blocked.lanes")),
        frozenset({"G6"}),
        frozenset({"nack"}),
        KEYED | {"nack_s": 2.0},
    ),
    Mutation(
        "a key whose message failed too often goes on after its delay",
        code(ParkedLanes, "hold", lambda self, slot, *, quarantines: False),
        frozenset({"K7"}),
        frozenset({"nack"}),
        HELD | {"on_exhausted": "Block"},
    ),
    Mutation(
        "which keys are in quarantine is kept in memory alone",
        code(LaneSender, "parked", property(lambda self: {})),
        frozenset({"K7"}),
        _brokers_die_while_keys_are_held,
        HELD | {"on_exhausted": "Quarantine"},
    ),
    Mutation(
        "a client hands out more of a key before its nack is answered",
        code(KeyedPartition, "hold_back", lambda self, window: None),
        frozenset({"K2"}),
        frozenset({"nack"}),
        KEYED | {"nack_s": 0.4, "work_s": 0.0},
    ),
    Mutation(
        "a client goes on with what it has returned",
        code(DeliveredWindow, "forget_slots", _return_and_keep),
        frozenset({"K2", "G1", "G4"}),
        frozenset({"nack"}),
        KEYED,
    ),
)
