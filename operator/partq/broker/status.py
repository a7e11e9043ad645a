"""What `partq status` shows: the records of all partitions, whoever owns them."""

import asyncio
from typing import Any

from partq.broker.broker import Broker
from partq.core.model import MemberId
from partq.store.assignments import Assignments
from partq.store.handoffs import Handoffs
from partq.store.members import Members


async def read_status(broker: Broker) -> dict[str, Any]:
    """Read every partition's record and every group's cursors, members and handoffs."""
    records = await broker.partitions.read_many(broker.config.layout.partitions())
    groups = sorted(broker.config.groups)
    views = await asyncio.gather(*(_group(broker, group, records) for group in groups))
    return {
        "queue": broker.settings.queue,
        "namespace": broker.settings.namespace,
        "store": broker.durability,
        "partitions": {
            str(partition): {
                "broker": record.owner or "",
                "broker_epoch": record.broker_epoch,
                "end": record.next,
                "bytes": record.bytes,
            }
            for partition, record in sorted(records.items())
        },
        "groups": dict(zip(groups, views, strict=True)),
    }


async def _group(broker: Broker, group: str, records: Any) -> dict[str, Any]:
    assignments = Assignments(broker.store, broker.keys)
    members = Members(broker.store, broker.keys)
    handoffs = Handoffs(broker.store, broker.keys)
    assigned, listed, under_way, cursors = await asyncio.gather(
        assignments.read(group),
        members.read(group),
        handoffs.read(group),
        asyncio.gather(
            *(
                broker.partitions.read_cursor(partition, group)
                for partition, record in sorted(records.items())
                if group in record.groups
            )
        ),
    )
    having = [p for p, record in sorted(records.items()) if group in record.groups]
    partitions: dict[str, Any] = {}
    held: dict[MemberId, int] = dict.fromkeys(listed.members, 0)
    for partition, cursor in zip(having, cursors, strict=True):
        known = assigned.get(partition)
        owned = broker.owned.get(partition)
        mine = owned.groups.get(group) if owned is not None else None
        if mine is not None:
            state = str(mine.state)
        else:
            state = known.state if known is not None else "Unassigned"
        done = cursor.cursor + sum(stop - start for start, stop in cursor.acked)
        partitions[str(partition)] = {
            "member": cursor.member or "",
            "epoch": cursor.epoch,
            "state": state if cursor.member is not None else "Unassigned",
            "cursor": cursor.cursor,
            "lag": records[partition].next - done,
        }
        if cursor.member is not None:
            held[cursor.member] = held.get(cursor.member, 0) + 1
    return {
        "members": [
            {
                "member": member,
                "partitions": count,
                "state": _member_state(listed.members.get(member), count),
            }
            for member, count in sorted(held.items())
        ],
        "partitions": partitions,
        "handoffs": [
            {
                "partition": str(partition),
                "source": record.source or "",
                "target": record.target or "",
                "attempt": record.attempt,
                "phase": record.phase,
            }
            for partition, record in sorted(under_way.items())
        ],
    }


def _member_state(listed: Any, partitions: int) -> str:
    if listed is None or listed.lost_at_ms is not None:
        return "Lost"
    return "Active" if partitions else "Standby"
