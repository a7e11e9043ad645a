"""Mistakes that somebody could make in the protocol, each as a change of the running code."""

import asyncio
from dataclasses import replace

import pytest

from partq.broker.delivery import acks, flow, flow_registry, handoff_executor
from partq.broker.log import tail
from partq.broker.operations.pull import pulls as pull
from partq.broker.ownership import lease
from partq.broker.partition import consumed_partition
from partq.coordinator import coordinator
from partq.coordinator.group import group_worker
from partq.coordinator.group.queue_observation import QueueObservation
from partq.core.cursor.cursor import GroupCursor
from partq.core.group import membership, planner
from partq.core.group.assignors import ASSIGNORS, modulo
from partq.core.group.membership import OwnershipState
from partq.core.group.planner import GroupType
from partq.lab.simulate.schedule import Event
from tests.lab.simulate.mutation import DRAWN, FORGET, FROM_MEMORY, Mutation, both, code, lua

# ---- what is put in the place of the right code -------------------------------------------------


def _token_without_epoch(self, flow, frame):
    owned = self._owned.get(flow_registry.PartitionId(frame.generation, frame.partition))
    found = owned.groups.get(flow.group) if owned is not None else None
    if found is None or found.flow is not flow or found.broker_epoch != frame.broker_epoch:
        return None
    return found


def _token_without_broker_epoch(self, flow, frame):
    owned = self._owned.get(flow_registry.PartitionId(frame.generation, frame.partition))
    found = owned.groups.get(flow.group) if owned is not None else None
    if found is None or found.flow is not flow or found.epoch != frame.epoch:
        return None
    return found


def _ack_without_bound(self, upto, ranges, number):
    before = self.in_flight
    self.position = max([self.position, upto, *(stop for _, stop in ranges)])
    return before - self.in_flight + _REAL_ACK(self, upto, ranges, min(number, self.number))


_REAL_ACK = GroupCursor.ack


def _pause_in_force_for_ever(self, found, attempt):
    pause = found.pause
    if pause is None or pause.attempt != attempt:
        raise handoff_executor._refused(found, "no pause")
    return pause


def _never_lapse(self, found, pause):
    """Deliver again, as after a lapse, and keep the attempt open."""


def _pause_the_whole_flow(self, consumed, **fields):
    _REAL_PAUSE(self, consumed, **fields)
    flow = consumed.flow
    for other in flow.partitions if flow is not None else ():
        if other is not consumed:
            flow.send_paused(other)


_REAL_PAUSE = handoff_executor.HandoffExecutor.pause


def _deliver_nothing_beside_a_pause(self, now):
    if any(each.pause is not None for each in self.partitions):
        return None
    return _REAL_NEXT_DELIVERY(self, now)


_REAL_NEXT_DELIVERY = flow.Flow.next_delivery


async def _open_alone(self, **fields):
    for other in list(self.flows):
        if other.member != fields["member"]:
            self.lose(other)
    return await _REAL_OPEN(self, **fields)


_REAL_OPEN = flow_registry.FlowRegistry.open


def _give_all_to_the_last(partitions, members, previous, *, priorities):
    return dict.fromkeys(partitions, max(members)) if members else {}


def _take_the_first_one_for_leaving(self, ownership, members, departed):
    state = _REAL_OWNERSHIP_STATE(self, ownership, members, departed)
    is_taken = state is OwnershipState.SETTLED and ownership.partition.index == 0
    return OwnershipState.LEAVING if is_taken else state


_REAL_OWNERSHIP_STATE = membership._Assessor._ownership_state


async def _pull_on(self, **fields):
    state = self._states.get(self._broker.flow_registry.find(fields["group"], fields["member"]))
    named = {"last_answer": state.answer_number} if state is not None else {}
    return await _REAL_PULL(self, **{**fields, **named})


_REAL_PULL = pull.Pulls.pull


def _judge_without_deadline(self, found, attempt, forced):
    if found.flow is None:
        return False
    self._pause_in_force(found, attempt)
    return found.book.in_flight > 0


def _pong_at_once(self, callback):
    callback()


def _accept_gap(self, entry):
    # Every third one is lost on its way here, and nobody checks whether it is the next.
    if len(self._firsts) % 3 == 2:
        self._firsts.append(entry.first)
        self._entries.append(replace(entry, data=self._entries[-1].data))
    else:
        self._firsts.append(entry.first)
        self._entries.append(entry)
    self.end = entry.first + entry.count
    return True


def _cluster_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    real = QueueObservation

    def queue(*, is_complete, **seen):
        return real(is_complete=True, **seen)

    has_seen_all = property(lambda self: True, lambda self, value: None)
    monkeypatch.setattr(coordinator, "QueueObservation", queue)
    monkeypatch.setattr(coordinator.Coordinator, "_has_seen_all", has_seen_all, raising=False)


# ---- histories that one mistake needs, and chance seldom makes ----------------------------------

ONE_POD = {
    "pod_count": 1, "broker_count": 2, "partition_count": 4, "group_type": GroupType.PARTITIONED
}  # fmt: skip
BACKLOG = Event(0.9, "publish", {"count": 30, "gap_s": 0.0})
NEWCOMER = Event(1.0, "pod_start")
# The other pod goes: so what it works on at that moment is handed over as well.
DRAIN = (BACKLOG, NEWCOMER, Event(2.2, "pod_end", {"which": 0, "grace_s": 8.0}))


def _coordinator_sleeps_in_a_drain(seed):
    freeze = {"for_s": 3.6, "has_second": False}
    return *DRAIN, Event(2.3 + seed * 0.05, "coordinator_freeze", freeze)


def _messages_come_while_a_coordinator_sleeps_in_a_drain(seed):
    # The pod works on something of each partition as the newcomer's share is planned (at 1.62 s);
    # later it gets messages of other partitions, while one of its own is still paused.
    freeze = {"for_s": 3.6, "has_second": False}
    return (
        NEWCOMER,
        Event(1.3 + seed * 0.01, "publish", {"count": 12, "gap_s": 0.0}),
        Event(1.65, "coordinator_freeze", freeze),
        Event(2.0, "publish", {"count": 12, "gap_s": 0.2}),
    )


def _redis_clock_jumps_in_a_drain_and_another_coordinator_goes_on(seed):
    at = 2.5 + seed * 0.02
    jump, kill = {"by_s": 30.0}, {"for_s": 0.1}
    return *DRAIN, Event(at, "redis_clock", jump), Event(at + 0.01, "coordinator_kill", kill)


def _redis_clock_is_set_back_as_a_pod_that_pulls_has_vanished(seed):
    return (
        BACKLOG,
        Event(2.2, "pod_vanish", {"which": 0, "is_silent": False}),
        Event(2.7 + seed * 0.05, "redis_clock", {"by_s": -30.0}),
    )


def _redis_time_ms(self):
    return round(asyncio.get_running_loop().redis.time() * 1000)


def _broker_without_redis_and_member_without_the_other_broker(seed):
    # Places: redis, coordinator, broker-0, broker-1, pod-1, producer.
    store = {"from": 0, "to": 1, "for_s": 5.0, "is_both": True}
    flow = {"from": 4, "to": 4, "for_s": 5.0, "is_both": True}
    at = 1.1 + seed * 0.05
    return BACKLOG, Event(at, "cut", store), Event(at, "cut", flow)


def _broker_without_redis(seed):
    publish = Event(0.9, "publish", {"count": 40, "gap_s": 0.1})
    store = {"from": 0, "to": 1, "for_s": 1.8 + seed * 0.1, "is_both": True}
    return publish, Event(1.2, "cut", store)


def _answers_of_redis_are_lost(seed):
    weather = {"for_s": 2.0, "lost": 0.0, "repeated": 0.0, "reset": 0.3, "slow": 0.0}
    posts = [Event(1.05 + n * 0.05, "post", {"count": 2}) for n in range(20)]
    return Event(1.0, "storm", weather), *posts


def _new_coordinator_does_not_reach_a_broker(seed):
    road = {"from": 1, "to": 0, "for_s": 3.0, "is_both": True}
    at = 1.1 + seed * 0.01  # the newcomer is listed, and its share is not planned yet
    return (
        Event(0.95, "pod_start"),
        Event(at, "coordinator_kill", {"for_s": 0.1}),
        Event(at, "cut", road),
    )


MUTATIONS = (
    Mutation(
        "the epoch of an ack is not checked",
        code(acks.AckHandler, "_token_of", _token_without_epoch),
        frozenset({"G2"}),
        frozenset({"hostile"}),
        {},
    ),
    Mutation(
        "a token without its broker epoch",
        code(acks.AckHandler, "_token_of", _token_without_broker_epoch),
        frozenset({"G2"}),
        frozenset({"hostile"}),
        {},
    ),
    Mutation(
        "an append does not look at the broker epoch",
        lua("append_batches", ("record[1] ~= ARGV[1]", "false")),
        frozenset({"G8", "chain", "G1"}),
        _broker_without_redis,
        ONE_POD,
    ),
    Mutation(
        "a flush does not look at the broker epoch",
        lua("flush_cursor", ("meta[1] ~= broker_epoch", "false")),
        frozenset({"G8", "S2"}),
        _broker_without_redis,
        ONE_POD,
    ),
    Mutation(
        "a commit is accepted after its pause has lapsed",
        both(
            code(handoff_executor.HandoffExecutor, "_pause_in_force", _pause_in_force_for_ever),
            code(handoff_executor.HandoffExecutor, "_lapse", _never_lapse),
        ),
        frozenset({"E4", "attempts"}),
        _coordinator_sleeps_in_a_drain,
        ONE_POD | {"max_handoff_s": 2.0, "work_s": 1.0},
    ),
    Mutation(
        "an attempt is used again",
        lua("draw_attempt", (DRAWN, 'math.max(tonumber(last or "0"), 1)')),
        frozenset({"attempts", "E4"}),
        frozenset({"pod_start"}),
        {},
    ),
    Mutation(
        "broker epochs are counted from what is stored",
        lua("claim_partition", FROM_MEMORY),
        frozenset({"E3"}),
        frozenset({"redis_rollback"}),
        {},
    ),
    Mutation(
        "epochs are counted from what is stored",
        lua("bind_member", FROM_MEMORY),
        frozenset({"E3"}),
        lambda _: (Event(1.0, "pod_crash", {"which": 0, "for_s": 0.1}), *FORGET),
        {"pod_count": 1, "pull_share": 0.0},
    ),
    Mutation(
        "drained is answered before the acks are stored",
        code(
            consumed_partition.ConsumedPartition,
            "is_drained",
            property(lambda self: self.book.in_flight == 0),
        ),
        frozenset({"E4"}),
        frozenset({"pod_start", "pod_end"}),
        {"max_handoff_s": 2.0},
    ),
    Mutation(
        "the memory tail accepts a gap",
        code(tail.Tail, "accept", _accept_gap),
        frozenset({"G1", "S3"}),
        frozenset({"pod_start"}),
        {},
    ),
    Mutation(
        "appends are not chained",
        lua(
            "append_batches",
            ("if record[2] == ARGV[2] then", "if false then"),
            ("record[3] ~= ARGV[3] or tonumber(ARGV[2]) < tonumber(record[2])", "false"),
        ),
        frozenset({"chain", "G7"}),
        _answers_of_redis_are_lost,
        ONE_POD,
    ),
    Mutation(
        "pings are answered from an old lease",
        code(lease.LeaseKeeper, "after_renewal", _pong_at_once),
        frozenset({"S1"}),
        _broker_without_redis_and_member_without_the_other_broker,
        ONE_POD | {"work_s": 1.0, "delay_s": 0.0},
    ),
    Mutation(
        "acks count beyond what was delivered",
        code(GroupCursor, "ack", _ack_without_bound),
        frozenset({"G2", "S2", "G6"}),
        frozenset({"hostile"}),
        {"work_s": 0.4, "pod_count": 1},
    ),
    Mutation(
        "a forced commit passes before its deadline",
        code(handoff_executor.HandoffExecutor, "_judge", _judge_without_deadline),
        frozenset({"E4"}),
        _redis_clock_jumps_in_a_drain_and_another_coordinator_goes_on,
        ONE_POD | {"max_handoff_s": 2.0, "work_s": 4.0},
    ),
    Mutation(
        "a drain is waited for by Redis's clock",
        code(group_worker.GroupWorker, "_now_ms", _redis_time_ms),
        frozenset({"G7"}),
        _redis_clock_is_set_back_as_a_pod_that_pulls_has_vanished,
        ONE_POD | {"max_handoff_s": 2.0, "pull_share": 1.0, "is_aware": True, "pod_count": 2},
    ),
    Mutation(
        "a handoff pauses all that its member has",
        code(handoff_executor.HandoffExecutor, "pause", _pause_the_whole_flow),
        frozenset({"G6"}),
        frozenset({"pod_start"}),
        {},
    ),
    Mutation(
        "a paused partition holds up the others of its member",
        code(flow.Flow, "next_delivery", _deliver_nothing_beside_a_pause),
        frozenset({"G6"}),
        _messages_come_while_a_coordinator_sleeps_in_a_drain,
        ONE_POD | {"broker_count": 1, "max_handoff_s": 2.0, "work_s": 0.4},
    ),
    Mutation(
        "who binds ends the flows of others",
        code(flow_registry.FlowRegistry, "open", _open_alone),
        frozenset({"G6"}),
        frozenset({"pod_start"}),
        {},
    ),
    Mutation(
        "the assignor reshuffles",
        code(planner, "ASSIGNORS", {**ASSIGNORS, "sticky": modulo}),
        frozenset({"G5"}),
        frozenset({"pod_start", "pod_end"}),
        {"group_type": GroupType.PARTITIONED, "partition_count": 4},
    ),
    Mutation(
        "a partition of a member that stays is planned as if it left",
        code(membership._Assessor, "_ownership_state", _take_the_first_one_for_leaving),
        frozenset({"G5"}),
        frozenset({"pod_start"}),
        {"group_type": GroupType.PARTITIONED},
    ),
    Mutation(
        "an exclusive group gives everything to the last that has come",
        code(planner, "exclusive", _give_all_to_the_last),
        frozenset({"G5"}),
        frozenset({"pod_start"}),
        {"group_type": GroupType.EXCLUSIVE},
    ),
    Mutation(
        "an answer to a pull that was lost does not come again",
        code(pull.Pulls, "pull", _pull_on),
        frozenset({"G7"}),
        frozenset({"storm"}),
        {"pull_share": 1.0, "is_aware": True},
    ),
    Mutation(
        "plans are made before the lists are complete",
        _cluster_is_complete,
        frozenset({"lists"}),
        _new_coordinator_does_not_reach_a_broker,
        ONE_POD,
    ),
)
