"""Mistakes in changes of the partition count: those of the model, made in the code."""

from partq.broker import intake
from partq.broker.broker import Broker
from partq.broker.log.appender import LogAppender
from partq.broker.rescale import gatekeeper, partition_opener
from partq.client.produce.partition_sender import PartitionSender
from partq.coordinator.rescale import rescaler
from partq.coordinator.rescale.layout_restorer import LayoutRestorer
from partq.coordinator.rescale.rescaler import Rescaler
from partq.core.rescale import gates
from partq.lab.simulate.schedule import Event
from tests.lab.simulate.mutation import Mutation, both, code, lua, text

QUIET = {
    "partition_count": 2, "broker_count": 2, "pod_count": 2, "delay_s": 0.0, "is_aware": True,
    "has_letters": False, "pull_share": 0.0, "work_s": 0.03, "has_second": True,
    "nack_order": "Ordered", "ack_timeout_s": 0.0, "is_client_assigned": False,
    "is_audited": False,
}  # fmt: skip
BROKER_0 = 2
"""Its place among those that an event `slow` may name."""


def _changes(*counts, gap_s=1.0, meets=lambda seed, at: ()):
    """Return a history of changes, with messages before, during and after each of them.

    `meets`: the events that belong to a change, by the seed and its time.
    """

    def events(seed):
        made = [
            Event(round(0.8 + n * 0.05, 3), "publish", {"count": 6, "gap_s": 0.004})
            for n in range(20 * len(counts) + 10)
        ]
        for n, count in enumerate(counts):
            at = round(1.3 + n * gap_s + seed % 20 * 0.013, 3)
            made += [Event(at, "rescale", {"to": count}), *meets(seed, at)]
        return tuple(sorted(made, key=lambda event: event.at))

    return events


async def _finds_nothing(self, layout, others=()):
    return None


def _broker_is_slow(seed, at):
    return [Event(round(at - 0.1, 3), "slow", {"who": BROKER_0, "for_s": 0.7})]


def _slow_broker_is_killed(seed, at):
    """What it has stored has no answer yet, and its producer asks again after the change."""
    kill = {"which": 0, "for_s": 0.05, "is_silent": False}
    return [
        Event(round(at - 0.1, 3), "slow", {"who": BROKER_0, "for_s": 2.0}),
        Event(round(at + 0.3 + seed % 40 * 0.03, 3), "broker_kill", kill),
    ]


def _in_a_storm(seed):
    weather = {"for_s": 6.0, "lost": 0.0, "repeated": 0.2, "reset": 0.05, "slow": 0.0}
    return (Event(0.75, "storm", weather), *UP_AND_DOWN(seed))


def _changes_meet_a_backlog(seed):
    """The partitions of the first change are sealed empty by the second one, behind a backlog."""
    return (
        Event(0.85, "publish", {"count": 40, "gap_s": 0.002}),
        Event(1.3, "rescale", {"to": 4}),
        Event(2.0 + seed * 0.05, "rescale", {"to": 8}),
        Event(2.9 + seed * 0.05, "publish", {"count": 30, "gap_s": 0.01}),
    )


def _change_is_forgotten(seed):
    """It was committed, and nothing was sealed by it. The coordinator stands still meanwhile."""
    return (
        Event(0.8, "rescale", {"to": 3}),
        Event(1.43, "coordinator_freeze", {"for_s": 0.9, "has_second": False}),
        Event(1.45, "redis_rollback", {"for_s": 0.05, "lost_s": 0.1}),
        Event(1.46, "publish", {"count": 20, "gap_s": 0.02}),
    )


def _layout_is_set_back(seed):
    """It has the change as one that is prepared, and another count is wanted by now."""
    forgets = {"for_s": 0.05, "lost_s": 0.25, "is_of_layout": True}
    return (
        Event(0.8, "rescale", {"to": 3}),
        Event(0.85, "publish", {"count": 60, "gap_s": 0.02}),
        Event(1.6, "redis_rollback", forgets),
        Event(1.61, "rescale", {"to": 1}),
    )


ALONE = {"partition_count": 1, "broker_count": 1, "pod_count": 1, "has_second": False}
GROWING = _changes(3)
UP_AND_DOWN = _changes(4, 1, 3)
WITH_A_KILL = _changes(3, meets=_slow_broker_is_killed)
WITH_A_SLOW_BROKER = _changes(4, 1, 3, meets=_broker_is_slow)

RESCALE_MUTATIONS = (
    Mutation(
        "a group has a new partition's messages at once",
        lua("add_group", ('"gate", "0"', '"gate", "1"')),
        frozenset({"R4"}),
        GROWING,
        QUIET,
    ),
    Mutation(
        "a gate looks at the cursor alone",
        both(
            text(gates, "has_passed", ("and view.is_gate_open", "")),
            code(gatekeeper, "find_holds", gates.find_holds),
        ),
        frozenset({"R4"}),
        _changes_meet_a_backlog,
        QUIET | {"work_s": 0.4},
    ),
    Mutation(
        "a partition opens before its predecessors are sealed",
        code(
            partition_opener,
            "seals_to_open",
            lambda predecessors, sealed_at: {
                each: at for each in predecessors if (at := sealed_at.get(each)) is not None
            },
        ),
        frozenset({"R2"}),
        GROWING,
        QUIET,
    ),
    Mutation(
        "what waits for an append is not looked at again",
        code(LogAppender, "keep_slots", lambda self, slots: None),
        frozenset({"R2"}),
        WITH_A_SLOW_BROKER,
        QUIET,
    ),
    Mutation(
        "slots are judged before numbers",
        text(intake, "check_batch", ("if not is_numbered:", "if True:")),
        frozenset({"R1"}),
        WITH_A_KILL,
        QUIET,
    ),
    Mutation(
        "a producer does not wait for its answers before it moves",
        code(PartitionSender, "may_give_away", property(lambda self: True)),
        frozenset({"R1", "R3"}),
        _in_a_storm,
        QUIET,
    ),
    Mutation(
        "a partition settles before anybody has read it",
        both(
            text(Rescaler, "_settle", ("<= record.trimmed", ">= 0")),
            code(rescaler, "is_passed_by_all", lambda view, groups: view.sealed_at is not None),
        ),
        frozenset({"R5", "R4"}),
        UP_AND_DOWN,
        QUIET,
    ),
    Mutation(
        "a broker seals by the layout that it knew before the store came back",
        text(Broker, "_known_layout", ("and not self._refresher.is_void", "")),
        frozenset({"R8"}),
        _change_is_forgotten,
        QUIET | ALONE,
    ),
    Mutation(
        "a layout that was set back is followed",
        code(LayoutRestorer, "find_lost", _finds_nothing),
        frozenset({"R8"}),
        _layout_is_set_back,
        QUIET | ALONE,
    ),
)
