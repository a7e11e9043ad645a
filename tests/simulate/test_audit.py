"""The audit record in simulated time: whole under every fault."""

from dataclasses import replace

import pytest

from partq.core.model import PartitionId
from partq.simulate.coordinators import KEYS
from partq.simulate.facts import GROUP
from partq.simulate.memory_redis import MemoryRedis
from partq.simulate.schedule import draw_schedule
from partq.simulate.trial import run_schedule
from partq.store.partition_records import cursor_record, record_of
from partq.wire.audit import AuditGroup, decode_group
from tests.audit_record import check_chain, check_record

EVENTS = 30
ALL = {
    "pod_start", "pod_crash", "pod_end", "broker_kill", "broker_freeze", "coordinator_kill", "cut",
    "post", "redis_kill",
}  # fmt: skip


def run(seed, only=None):
    """Run a schedule with an audit record; return the outcome and the keys at its end."""
    found = []

    def make(now):
        found.append(MemoryRedis(now))
        return found[-1]

    schedule = draw_schedule(seed, EVENTS, only=only)
    schedule = replace(schedule, setting=replace(schedule.setting, is_audited=True))
    outcome = run_schedule(schedule, make)
    assert outcome.violation is None, "\n".join(outcome.lines())
    return schedule.setting.partition_count, found[-1]


def groups_of(memory, key):
    return [
        AuditGroup(entry.fields[1].decode(), entry.fields[3].decode(), entry.fields[7])
        for entry in memory.stream(key.encode()).entries
    ]


@pytest.mark.xfail(
    reason="one of the first 12 seeds has an ack in the record twice; not known yet why",
    strict=True,
)
def test_what_counts_is_on_record_once():
    kinds = set()
    for seed in range(12):
        partition_count, memory = run(seed, only=ALL)
        for partition in (PartitionId(1, index) for index in range(partition_count)):
            stored = record_of(memory.hash(KEYS.meta(partition).encode()))
            cursor = cursor_record(memory.hash(KEYS.cursor(partition, GROUP).encode()))
            groups = groups_of(memory, KEYS.audit(partition))
            records = check_record(
                partition, groups, group=GROUP, end=stored.next, cursor=cursor.cursor,
                acked=cursor.acked,
            )  # fmt: skip
            kinds.update(record.kind for record in records)
    assert kinds >= {"begin", "claim", "commit", "bind", "publish", "deliver", "ack", "trim"}
    assert kinds >= {"pause", "drained"}


@pytest.mark.xfail(
    reason="seed 0: a group made again while a dead letter of its earlier life waits: the mark is "
    "above that letter; not known yet whether the oracle or a script is wrong",
    strict=True,
)
def test_a_store_that_forgets_goes_on_with_a_whole_chain():
    for seed in range(3):
        partition_count, memory = run(seed)
        for partition in (PartitionId(1, index) for index in range(partition_count)):
            groups = groups_of(memory, KEYS.audit(partition))
            check_chain(groups)
            epochs = [decode_group(partition, each)[0].broker_epoch for each in groups]
            assert epochs == sorted(epochs)
