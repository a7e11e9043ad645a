"""Metrics say how much waits until it is due, and how late the first of it is."""

import re

from partq.broker.operations.gauges import render_metrics
from partq.broker.schedule.backlog import GAP_S, ScheduledBacklog
from partq.store.schedule.scheduled_entries import ScheduledEntries
from tests.store.parked import park

FAR_MS = 4_000_000_000_000


def shown(running):
    text = render_metrics(running.broker).decode()
    found = re.findall(r"^partq_scheduled_(\w+){[^}]*} (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_they_say_how_much_waits_and_how_late_it_is(running, peers):
    await running.claim_all()
    broker = running.broker
    time = [100.0]
    now_ms = FAR_MS + 3000
    backlog = ScheduledBacklog(
        broker.owned,
        ScheduledEntries(broker.store, broker.keys),
        now_ms=lambda partition: now_ms,
        clock=lambda: time[0],
        metrics=broker.metrics,
    )
    for index, due_ms in ((0, FAR_MS + 9000), (1, FAR_MS)):
        data = b"x" * (10 + index)
        await park(broker.store, broker.keys, peers.partition_id(index), 5, due_ms, data)
    await backlog.measure()
    assert shown(running) == {"messages": 2, "bytes": 21, "late_seconds": 3}
    assert backlog.size_bytes == 21
    await broker.store.read("DEL", broker.keys.due(peers.partition_id(1)))
    await backlog.measure()
    assert shown(running)["messages"] == 2, "it looks now and then"
    time[0] += GAP_S
    await backlog.measure()
    assert shown(running) == {"messages": 1, "bytes": 10, "late_seconds": 0}


async def test_the_broker_looks(running, peers):
    await running.claim_all()
    await peers.eventually(lambda: shown(running).get("messages") == 0, "it has looked")
    broker = running.broker
    await park(broker.store, broker.keys, peers.partition_id(0), 5, FAR_MS, b"x" * 10)
    broker.scheduled_backlog._next_at = 0
    await peers.eventually(lambda: broker.scheduled_backlog.size_bytes == 10, "it has again")
    assert "scheduled messages hold 10 bytes" in broker.quota._holders.describe()
