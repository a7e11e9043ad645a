"""The metrics of a broker, with its gauges as of now."""

from collections.abc import Mapping

from partq.broker.broker import Broker
from partq.broker.operations.coordinator_calls import session_counts
from partq.broker.partition.key_counts import count_keys
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.clocks.clock_watch import ahead_ms
from partq.core.cursor.lag import lag_of
from partq.wire.calls.state import SessionCounts


def render_metrics(broker: Broker) -> bytes:
    """Return all metrics in Prometheus's text format."""
    flows: dict[str, int] = {}
    for flow in broker.flow_registry.flows:
        flows[flow.group] = flows.get(flow.group, 0) + 1
    books = [
        ((str(owned.id), each.group), owned.tail.end, each)
        for owned in broker.owned.values()
        for each in owned.groups.values()
    ]
    broker.metrics.observe(
        ends={str(owned.id): owned.tail.end for owned in broker.owned.values()},
        lags={
            key: (lag_of(end, each.book.cursor, acked), each.book.in_flight, len(acked))
            for key, end, each in books
            for acked in [each.book.acked_pairs()]
        },
        outboxes={
            key: (len(box.letters), bool(box.blocked), bool(box.parked))
            for key, _, each in books
            for box in [each.outbox]
        },
        missing={key: bool(each.missing) for key, _, each in books},
        flows=flows,
    )
    broker.metrics.observe_gates(key for key, _, each in books if each.is_gated)
    broker.metrics.observe_parked_keys(
        {
            (str(owned.id), each.group): (
                *count_keys(owned.layout, each),
                bool(each.book.stands_still),
            )
            for owned in broker.owned.values()
            for each in owned.groups.values()
            if each.keys is not None
        }
    )
    sessions = {
        (str(owned.id), each.group): counts
        for owned in broker.owned.values()
        for each in owned.groups.values()
        if isinstance(counts := session_counts(broker, each), SessionCounts)
    }
    broker.metrics.observe_sessions(
        {key: (counts.with_messages, counts.locked) for key, counts in sessions.items()},
        waiting={group: counts.waiting for (_, group), counts in sessions.items()},
    )
    pending, tails, ahead = broker.buffers.pending, broker.buffers.tails, broker.log_fetcher.ahead
    broker.metrics.observe_buffers(
        {
            "pending": (pending.used_bytes, pending.max_bytes),
            "tail": (tails.used_bytes, tails.max_bytes),
            "read_ahead": (ahead.used_bytes, ahead.max_bytes),
        }
    )
    if (info := broker.quota.info) is not None:
        broker.metrics.observe_store(
            memory_bytes=info.used_memory_bytes,
            max_memory_bytes=info.maxmemory_bytes,
            aof_bytes=info.aof_bytes,
            ahead_ms={
                str(owned.id): ahead_by
                for owned in broker.owned.values()
                if (ahead_by := _ahead_ms(broker, owned, info.clocks_ms))
            },
        )
    return broker.metrics.render()


def _ahead_ms(broker: Broker, owned: OwnedPartition, clocks_ms: Mapping[str, int]) -> int:
    """Return by how much a partition is ahead of its server's clock; 0: not, or it is unknown."""
    now_ms = clocks_ms.get(broker.log.server_of(owned.id) or "", owned.stored_at_ms)
    return ahead_ms(owned.stored_at_ms, now_ms)
