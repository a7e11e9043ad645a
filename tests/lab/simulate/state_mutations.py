"""Mistakes that somebody could make with states of keys."""

from itertools import count

from partq.broker.delivery.acks import AckHandler
from partq.broker.partition.unstored_states import UnstoredStates
from partq.broker.rescale.state_mover import StateMover
from partq.core.group.planner import GroupType
from partq.core.model import PartitionId
from partq.errors import StoreUnavailableError
from partq.lab.simulate.schedule import Event
from partq.store.records.partitions import Partitions
from tests.lab.simulate.mutation import Mutation, both, code

STATES = {
    "has_states": True, "nack_order": "Ordered", "has_letters": False, "pull_share": 0.0,
    "ack_timeout_s": 0.0, "is_audited": False,
}  # fmt: skip
_REAL_ACK = AckHandler.ack


def _put_before_the_judgement(self, flow, frame, answer):
    owned = self._owned.get(PartitionId(frame.generation, frame.partition))
    consumed = owned.groups.get(flow.group) if owned is not None else None
    if frame.state_key is not None and consumed is not None:
        consumed.states.put(frame.state_key, frame.state)
    _REAL_ACK(self, flow, frame, answer)


def _take_once(self):
    self._written, self._new = self._new, {}
    return self._written


def _refuse_flushes(monkeypatch):
    """The store refuses every fifth flush: kills seldom meet one between its look and its call."""
    flush, calls = Partitions.flush, count(1)

    async def flush_at_times(self, *args, **details):
        if next(calls) % 5 == 0:
            raise StoreUnavailableError("the store refuses it", is_outcome_known=True)
        return await flush(self, *args, **details)

    monkeypatch.setattr(Partitions, "flush", flush_at_times)


async def _carry_nothing(self, consumed, givers):
    return {}


def _count_changes(seed):
    return (
        Event(0.8, "publish", {"count": 12, "gap_s": 0.0}),
        Event(1.2, "rescale", {"to": 3 + seed % 4}),
        Event(2.5, "publish", {"count": 12, "gap_s": 0.02}),
    )


STATE_MUTATIONS = (
    Mutation(
        "the state of a refused ack is stored",
        code(AckHandler, "ack", _put_before_the_judgement),
        frozenset({"D8"}),
        frozenset({"hostile"}),
        STATES,
    ),
    Mutation(
        "a read of a state overtakes acks",
        code(UnstoredStates, "find", lambda self, key: ...),
        frozenset({"D8"}),
        frozenset({"redis_stall"}),
        STATES,
    ),
    Mutation(
        "states of keys that move are left behind",
        code(StateMover, "carry", _carry_nothing),
        frozenset({"D8"}),
        _count_changes,
        STATES | {"partition_count": 2},
    ),
    Mutation(
        "a flush that fails loses its states",
        both(_refuse_flushes, code(UnstoredStates, "to_store", _take_once)),
        frozenset({"D8"}),
        frozenset({"redis_stall"}),
        STATES | {"group_type": GroupType.PARTITIONED},
    ),
)
