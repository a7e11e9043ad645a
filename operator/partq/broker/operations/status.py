"""Layout and status of a queue, from the records of all brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from partq.broker.broker import Broker
from partq.core.clock_watch import ahead_ms
from partq.core.cursor.lag import lag_of
from partq.core.group.records import MemberRecord
from partq.core.model import MemberId, Offset, PartitionId
from partq.store.records.assignments import Assignments
from partq.store.records.handoffs import Handoffs
from partq.store.records.members import Members
from partq.store.records.partition_records import StoredPartition
from partq.store.records.rebalances import Rebalances
from partq.wire.calls.answers import UNSET, BrokerUrl, LayoutAnswer, LayoutGeneration, Limits
from partq.wire.calls.state import BrokerAnswer
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    HandoffStatus,
    MemberStatus,
    PartitionStatus,
    QueueTotals,
    StatusAnswer,
    WaitingMoveStatus,
)


def read_layout(broker: Broker) -> LayoutAnswer:
    """Return partitions, brokers and owners, as far as this broker knows them now.

    Raises:
        UnavailableError: it has not read its queue's config yet.
        UnknownQueueError: the queue is being deleted.
    """
    config = broker.config
    living = broker.claims.observer.living(broker.clock())
    owners = {p: b for p, b in broker.claims.owners.items() if b in living and b != broker.id}
    owners |= dict.fromkeys(broker.owned, broker.id)
    urls = {b: lease.url for b, lease in broker.claims.observer.leases.items() if b in living}
    urls[broker.id] = broker.url
    return LayoutAnswer(
        queue=broker.settings.queue,
        namespace=broker.settings.namespace,
        uid=broker.settings.queue_uid,
        generations=[
            LayoutGeneration(g.number, g.partition_count) for g in config.layout.generations
        ],
        brokers=[BrokerUrl(b, url) for b, url in sorted(urls.items())],
        owners={str(partition): owners[partition] for partition in sorted(owners)},
        limits=Limits(config.max_message_bytes, config.max_unacked_per_flow),
        keyless_policy=config.keyless_policy,
        groups=sorted(config.groups),
    )


Ask = Callable[[], Awaitable[Mapping[str, BrokerAnswer]]]
"""Returns the state of every broker by its name, or why it is not known."""


async def read_status(broker: Broker, ask: Ask) -> StatusAnswer:
    """Read every partition's record and every group's cursors, members and handoffs.

    The queue as a whole is `Limited` while some of its partitions have no living broker. The other
    brokers are asked only where messages or dead letters of theirs wait: why, nobody else knows.
    """
    partitions = broker.config.layout.partitions()
    # Of a Redis Cluster with a silent node its partitions are unavailable, and the rest is shown.
    records = await broker.partitions.read_many(partitions, only_reachable=True)
    clocks_ms = await broker.store.read_clocks()
    served = broker.claims.served()
    unavailable = [str(p) for p in partitions if p not in served or p not in records]
    groups = sorted(broker.config.groups)
    views = dict(
        zip(
            groups,
            await asyncio.gather(*(_group(broker, group, records) for group in groups)),
            strict=True,
        )
    )
    if any(
        (row.dead_letters or row.lag) and PartitionId.parse(name) not in broker.owned
        for view in views.values()
        for name, row in view.partitions.items()
    ):
        _add_reasons(views, await ask())
    return StatusAnswer(
        queue=broker.settings.queue,
        namespace=broker.settings.namespace,
        store=broker.quota.durability,
        availability=_availability(len(partitions), len(unavailable)),
        unavailable=unavailable,
        totals=QueueTotals(
            partitions=len(partitions),
            messages=sum(record.next - record.trimmed for record in records.values()),
            bytes=sum(record.bytes for record in records.values()),
            audit_bytes=sum(record.audit.stored_bytes for record in records.values()),
        ),
        partitions={
            str(partition): PartitionStatus(
                broker=record.owner or "",
                broker_epoch=record.broker_epoch,
                first=record.trimmed,
                end=record.next,
                bytes=record.bytes,
                clock_ahead_ms=ahead_ms(
                    record.at_ms,
                    # A node of a cluster that is silent has no clock here.
                    clocks_ms.get(broker.log.server_of(partition) or "", record.at_ms),
                ),
            )
            for partition, record in sorted(records.items())
        },
        groups=views,
    )


def _add_reasons(views: dict[str, GroupStatus], brokers: Mapping[str, BrokerAnswer]) -> None:
    """Add what the owners say of partitions where something stops the deliveries."""
    for answer in brokers.values():
        for name, partition in answer.state.partitions.items() if answer.state is not UNSET else ():
            for group, held in partition.groups.items():
                row = views[group].partitions.get(name) if group in views else None
                if row is not None:
                    row.blocked = held.blocked or row.blocked
                    row.parked = held.parked or row.parked


async def _group(
    broker: Broker, group: str, records: Mapping[PartitionId, StoredPartition]
) -> GroupStatus:
    assignments = Assignments(broker.store, broker.keys)
    members = Members(broker.store, broker.keys)
    handoffs = Handoffs(broker.store, broker.keys)
    rebalances = Rebalances(broker.store, broker.keys)
    spec, assigned, listed, under_way, waiting, cursors = await asyncio.gather(
        broker.configs.read_group(group),
        assignments.read(group),
        members.read(group),
        handoffs.read(group),
        rebalances.read_waiting(group),
        asyncio.gather(
            *(
                broker.partitions.read_cursor(partition, group)
                for partition, record in sorted(records.items())
                if group in record.groups
            )
        ),
    )
    having = [p for p, record in sorted(records.items()) if group in record.groups]
    ages = await asyncio.gather(
        *(
            _age_ms(broker, partition, cursor.cursor, records[partition])
            for partition, cursor in zip(having, cursors, strict=True)
        )
    )
    partitions: dict[str, GroupPartition] = {}
    held: dict[MemberId, int] = dict.fromkeys(listed.members, 0)
    for partition, cursor, age_ms in zip(having, cursors, ages, strict=True):
        known = assigned.get(partition)
        owned = broker.owned.get(partition)
        mine = owned.groups.get(group) if owned is not None else None
        if mine is not None:
            state = str(mine.state)
        else:
            state = known.state if known is not None else "Unassigned"
        partitions[str(partition)] = GroupPartition(
            member=cursor.member or "",
            epoch=cursor.epoch,
            state=state if cursor.member is not None else "Unassigned",
            cursor=cursor.cursor,
            lag=lag_of(records[partition].next, cursor.cursor, cursor.acked),
            lag_ms=age_ms,
            dead_letters=len(cursor.outbox),
            blocked=mine.blocked if mine is not None else "",
            parked=mine.outbox.parked if mine is not None else "",
        )
        if cursor.member is not None:
            held[cursor.member] = held.get(cursor.member, 0) + 1
    rows = partitions.values()
    return GroupStatus(
        type=str(spec.spec.get("type", "")) if spec is not None else "",
        lag=sum(row.lag for row in rows),
        lag_ms=max((row.lag_ms for row in rows), default=0),
        members=[
            MemberStatus(member, count, _member_state(listed.members.get(member), count))
            for member, count in sorted(held.items())
        ],
        partitions=partitions,
        handoffs=[
            HandoffStatus(
                partition=str(partition),
                source=record.source or "",
                target=record.target or "",
                attempt=record.attempt,
                phase=record.phase,
            )
            for partition, record in sorted(under_way.items())
        ],
        waiting_moves=[
            WaitingMoveStatus(str(partition), move.target, move.limit)
            for partition, move in sorted(waiting.items())
        ],
    )


async def _age_ms(
    broker: Broker, partition: PartitionId, cursor: Offset, record: StoredPartition
) -> int:
    """Return for how long the oldest message that is not acknowledged has been stored."""
    if cursor >= record.next:
        return 0
    now_ms, (at_ms,) = await broker.log.read_times(partition, [cursor])
    return 0 if at_ms is None else max(0, now_ms - at_ms)


def _availability(partitions: int, unavailable: int) -> str:
    if not unavailable:
        return "Available"
    return "Limited" if unavailable < partitions else "Unavailable"


def _member_state(listed: MemberRecord | None, partitions: int) -> str:
    if listed is None or listed.lost_at_ms is not None:
        # A member that holds nothing gave it back, or lost it: nobody waits for its return.
        return "Lost" if partitions else "Left"
    return "Active" if partitions else "Standby"
