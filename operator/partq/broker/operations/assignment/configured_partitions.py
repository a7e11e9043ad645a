"""All partitions of a queue, as members of a group see them that choose their partitions."""

import asyncio

from partq.broker.broker import Broker
from partq.broker.operations.status import read_rows
from partq.core.group.group_type import OPEN_TYPES
from partq.core.group.records import MemberSnapshot
from partq.core.model import BrokerId, MemberId, PartitionId
from partq.store.records.layout.marks import Marks, name_of
from partq.store.records.members import Members
from partq.store.records.stored_partition import StoredPartition
from partq.wire.calls.answers import UNSET
from partq.wire.calls.registration import ConfiguredPartition, ConfiguredPartitions, Node
from partq.wire.calls.status import GroupPartition


async def read_configured(broker: Broker, group: str) -> ConfiguredPartitions:
    """Read every partition of the layout, with or without an owner and a holder.

    The set changes with the layout alone, so that a share that members compute from it moves no
    partition when a broker is gone for a while.

    Raises:
        StoreUnavailableError: Redis does not answer.
    """
    partitions = broker.config.layout.partitions()
    records = await broker.partitions.read_many(partitions, only_reachable=True)
    marks, listed, rows = await asyncio.gather(
        Marks(broker.store, broker.keys).read(),
        Members(broker.store, broker.keys).read(group),
        read_rows(broker, group, records),
    )
    is_client_assigned = group in broker.config.client_assigned
    served = broker.claims.served()
    type_ = broker.config.types.get(group, "")

    def reason_of(partition: PartitionId) -> str:
        record = records.get(partition)
        if not is_client_assigned:
            if type_ in OPEN_TYPES:
                return f"nobody holds partitions of this group: its type is {type_}"
            return "the coordinator assigns the partitions of this group"
        if partition not in served or record is None:
            return "no broker serves it at the moment"
        if str(partition) not in rows:
            return "the group has no cursor in it yet"
        owner = record.owner or BrokerId("")
        return marks.get(name_of(partition)) or marks.get(name_of(owner)) or ""

    return ConfiguredPartitions(
        assignment="Client" if is_client_assigned else "Server",
        partitions={
            str(partition): _row(
                f"{broker.settings.queue}:{partition}",
                reason_of(partition),
                records.get(partition),
                rows.get(str(partition)),
                listed,
            )
            for partition in partitions
        },
        nodes={
            member: Node(*node)
            for member, node in sorted(listed.nodes.items())
            if member in listed.members
        },
        type=type_,
    )


def _row(
    key: str,
    reason: str,
    record: StoredPartition | None,
    row: GroupPartition | None,
    listed: MemberSnapshot,
) -> ConfiguredPartition:
    found = ConfiguredPartition(key=key, is_subscribable=not reason, reason=reason)
    if record is not None:
        found.broker, found.end = record.owner or "", record.next
    if row is not None:
        node = listed.nodes.get(MemberId(row.member))
        found.member, found.epoch, found.state = row.member, row.epoch, row.state
        found.node_id = UNSET if node is None else node.node_id
        found.cursor, found.lag, found.lag_ms = row.cursor, row.lag, row.lag_ms
    return found
