"""The audit record in simulated time: whole under every fault."""

from dataclasses import replace

import pytest

from partq.core.group.planner import GroupType
from partq.core.model import PartitionId
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GROUP
from partq.lab.simulate.processes.coordinators import KEYS
from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule
from partq.store.records.stored_partition import cursor_record, record_of
from partq.wire.audit import AuditGroup
from tests.audit_record import check_chain, check_record, decode_group

EVENTS = 30
FAULTS = {
    "pod_start", "pod_crash", "pod_end", "broker_kill", "broker_freeze", "coordinator_kill", "cut",
    "post", "redis_kill",
}  # fmt: skip
FEATURES = {"bad", "nack", "hang", "expire", "reset", "group_life", "late"}
PLAIN = {
    "partition_count": 2, "broker_count": 1, "pod_count": 1, "delay_s": 0.5, "max_handoff_s": 1.0,
    "is_aware": True, "work_s": 0.03, "group_type": GroupType.PARTITIONED, "pull_share": 0.0,
    "has_second": False, "nack_order": "Ordered", "ack_timeout_s": 0.0, "has_letters": True,
    "max_redeliveries": 0, "takes_expired": False, "on_exhausted": "Skip",
}  # fmt: skip
"""A setting in which nothing is drawn."""


def run(seed, event_count=EVENTS, *, events=None, **draw):
    """Run a schedule with an audit record; return the outcome and the keys at its end.

    `events`: what happens, instead of what is drawn.
    """
    found = []

    def make(now):
        found.append(MemoryRedis(now))
        return found[-1]

    schedule = draw_schedule(seed, event_count, is_audited=True, **draw)
    if events is not None:
        schedule = replace(schedule, events=events)
    outcome = run_schedule(schedule, make)
    assert outcome.violation is None, "\n".join(outcome.lines())
    return outcome, found[-1]


def groups_of(memory, key):
    return [
        AuditGroup(entry.fields[1].decode(), entry.fields[3].decode(), entry.fields[7])
        for entry in memory.stream(key.encode()).entries
    ]


def partitions_of(outcome):
    return [PartitionId(1, at) for at in range(outcome.schedule.setting.partition_count)]


def check(outcome, memory):
    """Check the record of each partition; return all that they tell of the group."""
    records = []
    for partition in partitions_of(outcome):
        cursor = cursor_record(memory.hash(KEYS.cursor(partition, GROUP).encode()))
        records += check_record(
            partition,
            groups_of(memory, KEYS.audit(partition)),
            group=GROUP,
            end=record_of(memory.hash(KEYS.meta(partition).encode())).next,
            cursor=cursor.cursor,
            acked=cursor.acked,
        )
    return records


def test_every_step_is_on_record():
    """A pod gets half of what another one has, a message is given back, a broker dies."""
    events = (
        Event(0.75, "publish", {"count": 10, "gap_s": 0.0}),
        Event(0.8, "bad", {"count": 1}),
        Event(0.9, "pod_start"),
        Event(2.0, "broker_kill", {"which": 0, "for_s": 0.1, "is_silent": False}),
        Event(4.0, "pod_crash", {"which": 0, "for_s": 0.1}),
        Event(5.0, "publish", {"count": 10, "gap_s": 0.0}),
    )
    kinds = {record.kind for record in check(*run(0, events=events, **PLAIN))}
    assert kinds >= {"begin", "claim", "commit", "bind", "publish", "deliver", "ack", "trim"}
    assert kinds >= {"pause", "drained", "nack", "dead_letter"}


@pytest.mark.parametrize("kinds", [FAULTS, FAULTS | FEATURES], ids=["faults", "features"])
def test_what_counts_is_on_record_once(kinds):
    for seed in range(8):
        check(*run(seed, only=kinds))


def test_a_dead_letter_is_done_without_an_ack():
    """The message that no application gets done is passed by the cursor all the same."""
    outcome, memory = run(0, events=(Event(0.8, "bad", {"count": 1}),), **PLAIN)
    records = check(outcome, memory)
    assert outcome.effects["dead letter"] == 1
    [letter] = [each for each in records if each.kind == "dead_letter" and not each.flags]
    assert not [each for each in records if each.kind == "ack"]
    cursor = cursor_record(memory.hash(KEYS.cursor(letter.partition, GROUP).encode())).cursor
    assert (letter.first, cursor) == (0, 1)


def test_a_store_that_forgets_goes_on_with_a_whole_chain():
    events = (
        Event(1.7, "publish", {"count": 10, "gap_s": 0.0}),
        Event(2.2, "redis_rollback", {"for_s": 0.1, "lost_s": 0.8}),
        Event(3.0, "publish", {"count": 10, "gap_s": 0.0}),
    )
    outcome, memory = run(0, events=events, **PLAIN)
    assert outcome.effects["forgotten message"] == 10
    for partition in partitions_of(outcome):
        groups = groups_of(memory, KEYS.audit(partition))
        check_chain(groups)
        epochs = [decode_group(partition, each)[0].broker_epoch for each in groups]
        assert epochs == sorted(epochs)
        assert len(set(epochs)) == 2  # before and after


def test_messages_expire_and_are_given_back_while_deliveries_wait_for_their_records():
    """Those that wait are sent all the same: the news that they are taken back follows them."""
    events = [
        Event(0.5, "expire", {"ttl_s": 0.05, "for_s": 2.5}),
        Event(
            0.7, "storm", {"for_s": 2.0, "lost": 0.2, "repeated": 0.0, "reset": 0.0, "slow": 0.2}
        ),
        *(Event(0.6 + at * 0.3, "publish", {"count": 6, "gap_s": 0.02}) for at in range(8)),
        *(Event(0.75 + at * 0.4, "nack", {"count": 2}) for at in range(4)),
    ]
    events.sort(key=lambda each: each.at)
    only = PLAIN | {"takes_expired": True, "partition_count": 1, "work_s": 0.05}
    outcome, _ = run(0, events=tuple(events), **only)
    assert outcome.effects["dead letter"]
    assert outcome.effects["expired letter"]
