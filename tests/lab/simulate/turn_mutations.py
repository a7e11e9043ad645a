"""Mistakes that somebody could make where any member may have any message of a partition."""

from partq.broker.config_refresher import ConfigRefresher
from partq.broker.parts.turn_shares import TurnShares
from partq.core.group.planner import GroupType
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.lane_sender import LaneSender
from partq.core.turns.turn_book import TurnRecord
from partq.lab.simulate.schedule import WIDE, Event
from tests.lab.simulate.mutation import Mutation, code, text

TURNS = {
    "nack_order": "Free", "nack_s": 0.05, "max_parked_keys": 1024, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "has_letters": False, "is_audited": False, "work_s": 0.1,
    "partition_count": 1, "broker_count": 1, "pod_count": 2, "is_client_assigned": False,
    "has_states": False, "group_type": GroupType.SHARED, "max_span": WIDE,
}  # fmt: skip


def _much_with(*others):
    publish = [Event(0.8 + n / 100, "publish", {"count": 11, "gap_s": 0.0}) for n in range(4)]
    end = Event(3.0, "publish", {"count": 2, "gap_s": 0.0})
    events = tuple(sorted((*publish, *others, end), key=lambda event: event.at))
    return lambda seed: events


_CRASH = Event(1.0, "pod_crash", {"which": 0, "for_s": 1.0})
_NACK = Event(0.79, "nack", {"count": 4})
_HOSTILE = Event(0.79, "hostile", {"count": 8})
_LIFE = Event(1.5, "group_life", {"which": 0, "for_s": 0.1, "is_one": False})

TURN_MUTATIONS = (
    Mutation(
        "a lost flow of a Shared group keeps its messages",
        text(TurnShares, "close", ("self._book.close_share(share.number, cause, unsent)", "pass")),
        frozenset({"G7", "error"}),
        _much_with(_CRASH),
        TURNS,
    ),
    Mutation(
        "what is given back in a Shared group is not sent again",
        code(TurnRecord, "go_on", lambda record, lanes: None),
        frozenset({"G7"}),
        _much_with(_NACK),
        TURNS,
    ),
    Mutation(
        "an ack of a Shared group counts of what another member has",
        text(
            LaneBook,
            "ack",
            (
                "self._in_flight -= acked",
                "self._in_flight -= acked; [span.change(n, ACKED, low, stop) for n in range(9)]",
            ),
        ),
        frozenset({"G2", "S2"}),
        _much_with(_HOSTILE),
        TURNS,
    ),
    Mutation(
        "the span of a Shared group is not looked at",
        text(LaneSender, "take", ("stop > self.cursor + self.max_span", "False")),
        frozenset({"K6"}),
        _much_with(),
        TURNS | {"max_span": 4},
    ),
    Mutation(
        "members do not get a Shared group that is created again",
        text(ConfigRefresher, "_add_groups", ("self._flow_registry.bind_soon", "id")),
        frozenset({"G7"}),
        _much_with(_LIFE),
        TURNS,
    ),
)
