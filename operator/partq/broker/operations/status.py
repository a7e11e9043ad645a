"""Layout and status of a queue, from the records of all brokers."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from partq.broker.broker import Broker
from partq.broker.operations.coordinator_calls import flow_details, session_counts
from partq.broker.operations.publish.scheduled import add_scheduled_counts
from partq.broker.operations.rescale_status import read_rescale
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.key_counts import KeyCounts, count_keys
from partq.coordinator.view import state_rank
from partq.core.clocks.clock_watch import ahead_ms
from partq.core.cursor.lag import lag_of
from partq.core.cursor.redelivery_rules import NackOrder
from partq.core.group.group_type import OPEN_TYPES, GroupType
from partq.core.group.records import AssignmentEntry, MemberRecord, MemberSnapshot
from partq.core.model import MemberId, Offset, PartitionId
from partq.core.partition_problems import problems_of
from partq.core.parts.part_id import PartId
from partq.core.parts.part_owners import PartOwners
from partq.core.records import (
    ConfigRecord,
    lacking_lanes,
    lacking_parts,
    lacking_sessions,
    lacking_turns,
)
from partq.store.records.assignments import Assignments
from partq.store.records.handoffs import Handoffs
from partq.store.records.members import Members
from partq.store.records.rebalances import Rebalances
from partq.store.records.stored_partition import OPEN_GATE, CursorRecord, StoredPartition
from partq.wire.calls.answers import (
    UNSET,
    BrokerUrl,
    LayoutAnswer,
    LayoutGeneration,
    Limits,
    UnsetType,
)
from partq.wire.calls.state import BrokerAnswer, FlowDetail, SessionCounts
from partq.wire.calls.status import (
    GroupPartition,
    GroupStatus,
    HandoffStatus,
    MemberStatus,
    PartHolder,
    PartitionStatus,
    ProblemStatus,
    QueueTotals,
    StatusAnswer,
    WaitingMoveStatus,
    counts_of,
    holders_of,
)
from partq.wire.layout_record import lineage_form, ranges_form, times_form


def read_layout(broker: Broker) -> LayoutAnswer:
    """Return partitions, brokers and owners, as far as this broker knows them now.

    Raises:
        UnavailableError: it has not read its queue's config yet, or not for a while which brokers
            live: it would name itself alone, and clients would leave the others.
        UnknownQueueError: the queue is being deleted.
    """
    config, layout = broker.config, broker.config.layout
    is_first = layout.generation == 1
    living = broker.claims.living()
    owners = {p: b for p, b in broker.claims.owners.items() if b in living and b != broker.id}
    owners |= dict.fromkeys(broker.owned, broker.id)
    urls = {b: lease.url for b, lease in living.items()} | {broker.id: broker.url}
    return LayoutAnswer(
        queue=broker.settings.queue,
        namespace=broker.settings.namespace,
        uid=broker.settings.queue_uid,
        generations=[LayoutGeneration(1, layout.partition_count)] if is_first else [],
        brokers=[BrokerUrl(b, url) for b, url in sorted(urls.items())],
        owners={str(partition): owners[partition] for partition in sorted(owners)},
        limits=Limits(config.max_message_bytes, config.max_unacked_per_flow),
        keyless_policy=config.keyless_policy,
        groups=sorted(config.groups),
        client_assigned=sorted(config.client_assigned) or UNSET,
        generation=UNSET if is_first else layout.generation,
        table=UNSET if is_first else ranges_form(layout.table.slots),
        lineage=UNSET if is_first else lineage_form(layout.lineage),
        retired=UNSET if is_first else times_form(layout.retired),
        counts=UNSET if is_first else dict(layout.counts),
        knows_ids=True if config.id_window_ms else UNSET,
    )


Ask = Callable[[], Awaitable[Mapping[str, BrokerAnswer]]]
"""Returns the state of every broker by its name, or why it is not known."""


async def read_status(broker: Broker, ask: Ask) -> StatusAnswer:
    """Read every partition's record and every group's cursors, members and handoffs.

    The queue as a whole is `Limited` while some of its partitions have no living broker. The other
    brokers are asked only where messages or dead letters of theirs wait, or their gates are closed:
    why, nobody else knows.
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
    answers: Mapping[str, BrokerAnswer] = {}
    if any(
        (row.dead_letters or row.lag or row.gated_by or view.type == GroupType.SESSION)
        and PartitionId.parse(name) not in broker.owned
        for view in views.values()
        for name, row in view.partitions.items()
    ):
        answers = await ask()
        _add_reasons(views, answers)
    _add_flows(
        views,
        [
            *flow_details(broker),
            *(
                flow
                for name, answer in answers.items()
                if name != broker.id and answer.state is not UNSET
                for flow in answer.state.flows
            ),
        ],
    )
    unserved = set(unavailable)
    for view in views.values():
        for name, row in view.partitions.items():
            row.problems = _problems(row, is_served=name not in unserved)
    answer = StatusAnswer(
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
            retained_bytes=retained_bytes(broker, records.values()),
            known_ids=sum(each.known_ids for each in records.values()),
        ),
        partitions={
            str(partition): PartitionStatus(
                broker=record.owner or "",
                broker_epoch=record.broker_epoch,
                first=record.trimmed,
                end=record.next,
                bytes=record.bytes,
                is_retired=partition in broker.config.layout.retired or UNSET,
                clock_ahead_ms=ahead_ms(
                    record.at_ms,
                    # A node of a cluster that is silent has no clock here.
                    clocks_ms.get(broker.log.server_of(partition) or "", record.at_ms),
                ),
            )
            for partition, record in sorted(records.items())
        },
        groups=views,
        rescale=await read_rescale(broker) or UNSET,
    )
    await add_scheduled_counts(broker, records, answer)
    return answer


def retained_bytes(broker: Broker, records: Iterable[StoredPartition]) -> int:
    """Return how many bytes stay that are acknowledged, as of the last looks of their owners."""
    # An earlier version of partq trims and leaves the number, and so does the last group's end.
    found = (min(each.retained_bytes, each.bytes) for each in records if each.groups)
    return sum(found) if broker.config.retention_s else 0


def _problems(row: GroupPartition, *, is_served: bool) -> list[ProblemStatus]:
    found = problems_of(
        is_served=is_served,
        member=holders_of(row),
        state=row.state,
        blocked=row.blocked,
        is_withheld=row.is_withheld,
        gated_by=row.gated_by or "",
        stands_still=row.stands_still or "",
        blocked_keys=row.blocked_keys or 0,
        quarantined_keys=row.quarantined_keys or 0,
        parked=row.parked,
        dead_letters=row.dead_letters,
    )
    return [ProblemStatus(each.kind, each.text) for each in found]


def _add_reasons(views: dict[str, GroupStatus], brokers: Mapping[str, BrokerAnswer]) -> None:
    """Add what the owners alone know: what stops deliveries, and what they wait for."""
    for answer in brokers.values():
        for name, partition in answer.state.partitions.items() if answer.state is not UNSET else ():
            for group, held in partition.groups.items():
                row = views[group].partitions.get(name) if group in views else None
                if row is not None:
                    row.blocked = held.blocked or row.blocked
                    row.parked = held.parked or row.parked
                    row.is_withheld |= held.is_withheld
                    row.gated_by = held.gated_by or row.gated_by
                    row.delayed = held.delayed or row.delayed
                    row.parked_keys = held.parked_keys or row.parked_keys
                    row.blocked_keys = held.blocked_keys or row.blocked_keys
                    row.quarantined_keys = held.quarantined_keys or row.quarantined_keys
                    if held.lowest_parked is not UNSET:
                        row.lowest_parked = held.lowest_parked
                    row.stands_still = held.stands_still or row.stands_still
                    row.order_waits = held.order_waits or row.order_waits
                    row.next_redelivery_ms = held.next_redelivery_ms or row.next_redelivery_ms
                    if held.sessions is not UNSET:
                        row.sessions = held.sessions


def _add_flows(views: dict[str, GroupStatus], flows: Iterable[FlowDetail]) -> None:
    """Add what members have in groups whose partitions have no member, over all their flows.

    Of a member whose flows are all at brokers that have told nothing, nothing is known.
    """
    found: defaultdict[tuple[str, str], list[FlowDetail]] = defaultdict(list)
    for flow in flows:
        found[flow.group, flow.member].append(flow)
    for name, view in views.items():
        for member in view.members if view.type in OPEN_TYPES else ():
            mine = found[name, member.member]
            if not mine:
                continue
            member.unacked = sum(flow.unacked for flow in mine)
            if view.type == GroupType.SESSION:
                member.sessions = sum(flow.sessions or 0 for flow in mine)
            else:
                member.credit = sum(flow.credit or 0 for flow in mine)
                member.turns = sum(flow.turns or 0 for flow in mine)
                member.priority = max(flow.priority for flow in mine)


async def _group(
    broker: Broker, group: str, records: Mapping[PartitionId, StoredPartition]
) -> GroupStatus:
    spec, listed, under_way, waiting, partitions = await asyncio.gather(
        broker.configs.read_group(group),
        Members(broker.store, broker.keys).read(group),
        Handoffs(broker.store, broker.keys).read(group),
        Rebalances(broker.store, broker.keys).read_waiting(group),
        read_rows(broker, group, records),
    )
    rows = partitions.values()
    return GroupStatus(
        type=str(spec.spec.get("type", "")) if spec is not None else "",
        assignment=str(spec.spec.get("assignment", "Server")) if spec is not None else "",
        lag=sum(row.lag for row in rows),
        lag_ms=max((row.lag_ms for row in rows), default=0),
        members=_member_statuses(
            listed,
            partitions,
            set(map(str, broker.config.layout.retired)),
            is_shared=broker.config.types.get(group) in OPEN_TYPES,
        ),
        partitions=partitions,
        handoffs=[
            HandoffStatus(
                *(str(partition), record.source or "", record.target or ""),
                *(record.attempt, record.phase),
            )
            for partition, record in sorted(under_way.items())
        ],
        order_waits_for=_order_waits_for(broker, spec) or UNSET,
        waiting_moves=[
            WaitingMoveStatus(str(partition), move.target, move.limit)
            for partition, move in sorted(waiting.items())
        ],
    )


def _order_waits_for(broker: Broker, spec: ConfigRecord | None) -> list[str]:
    """Return the brokers for which a group of order Key, or a type of this version, waits.

    Until these go, it has the order Ordered, or nobody is sent anything.
    """
    leases = broker.claims.observer.leases
    type_ = spec.spec.get("type") if spec is not None else None
    if type_ == GroupType.KEY_SHARED:
        return [str(each) for each in lacking_parts(leases)]
    if type_ == GroupType.SHARED:
        return [str(each) for each in lacking_turns(leases)]
    if type_ == GroupType.SESSION:
        return [str(each) for each in lacking_sessions(leases)]
    nack = spec.spec.get("nack") if spec is not None else None
    if not isinstance(nack, dict) or nack.get("order") != NackOrder.KEY:
        return []
    return [str(each) for each in lacking_lanes(leases)]


async def read_rows(
    broker: Broker, group: str, records: Mapping[PartitionId, StoredPartition]
) -> dict[str, GroupPartition]:
    """Return each partition of a group by its name, where the group has a cursor.

    `records`: of the partitions that are asked for.
    """
    having = {p: record for p, record in sorted(records.items()) if group in record.groups}
    assigned, cursors = await asyncio.gather(
        Assignments(broker.store, broker.keys).read(group),
        asyncio.gather(*(broker.partitions.read_cursor(p, group) for p in having)),
    )
    ages = await asyncio.gather(
        *(
            _age_ms(broker, partition, cursor.cursor, record)
            for (partition, record), cursor in zip(having.items(), cursors, strict=True)
        )
    )
    seats: defaultdict[PartitionId, dict[int, AssignmentEntry]] = defaultdict(dict)
    for seat, entry in assigned.items():
        if isinstance(seat, PartId):
            seats[seat.partition][seat.part] = entry
    return {
        str(partition): _row(
            cursor,
            record.next,
            age_ms,
            assigned.get(partition),
            _holders(cursor.parts, seats.get(partition, {})),
            mine := _owned_group(broker, partition, group),
            count_keys(record.layout, mine) if mine is not None else KeyCounts(),
            _gated_by(broker, partition, group, cursor),
            broker.clock(),
            is_shared=broker.config.types.get(group) in OPEN_TYPES,
            sessions=session_counts(broker, mine) if mine is not None else UNSET,
        )
        for (partition, record), cursor, age_ms in zip(having.items(), cursors, ages, strict=True)
    }


def _owned_group(broker: Broker, partition: PartitionId, group: str) -> ConsumedPartition | None:
    """Return the group in a partition that this broker owns; None: another one does."""
    owned = broker.owned.get(partition)
    return owned.groups.get(group) if owned is not None else None


def _gated_by(broker: Broker, partition: PartitionId, group: str, cursor: CursorRecord) -> str:
    """Return which older messages come first; of those, the partition's broker knows more."""
    mine = _owned_group(broker, partition, group)
    if mine is not None:
        return mine.gated_by
    if cursor.gate == OPEN_GATE:
        return ""
    return ", ".join(map(str, broker.config.layout.predecessors(partition)))


def _row(
    cursor: CursorRecord,
    end: Offset,
    age_ms: int,
    known: AssignmentEntry | None,
    holders: list[PartHolder],
    mine: ConsumedPartition | None,
    keys: KeyCounts,
    gated_by: str,
    now: float,
    *,
    is_shared: bool,
    sessions: SessionCounts | UnsetType,
) -> GroupPartition:
    """Return one partition of a group.

    Args:
        cursor: the group's record in the partition.
        end: of the partition's log.
        age_ms: how long the oldest message has waited that is not acknowledged.
        known: what the coordinator has written of it.
        holders: the members that have its parts; empty: it is not cut into parts.
        mine: what this broker knows of it, where it owns the partition.
        keys: how many keys wait, as far as this broker knows.
        gated_by: which older messages of other partitions come first; empty: none.
        now: of the broker's clock.
        is_shared: the group has the type Shared or Session, where no partition has a member.
        sessions: how many there are, as far as this broker knows.
    """
    lanes = mine.keys if mine is not None else None
    lowest_parked = lanes.lowest_parked if lanes is not None else -1
    if holders:
        state = min((each.state for each in holders), key=state_rank)
    elif cursor.member is None and not is_shared:
        state = "Unassigned"
    elif mine is not None and sessions is UNSET:
        state = str(mine.state)
    else:
        # Of a group of the type Session the coordinator knows whether a member is connected.
        state = known.state if known is not None else "Unassigned"
    return GroupPartition(
        member=cursor.member or "",
        epoch=cursor.epoch,
        state=state,
        cursor=cursor.cursor,
        lag=lag_of(end, cursor.cursor, cursor.acked),
        lag_ms=age_ms,
        dead_letters=len(cursor.outbox),
        blocked=mine.blocked if mine is not None else "",
        parked=mine.parked if mine is not None else "",
        redeliveries=sum(cursor.redeliveries.values()),
        is_withheld=mine is not None and any(held.is_withheld for held in mine.holders()),
        gated_by=gated_by or UNSET,
        delayed=mine.book.delayed if mine is not None else 0,
        next_redelivery_ms=mine.next_redelivery_ms(now) if mine is not None else 0,
        parked_keys=keys.parked or UNSET,
        blocked_keys=keys.blocked or UNSET,
        quarantined_keys=keys.quarantined or UNSET,
        lowest_parked=lowest_parked if lowest_parked >= 0 else UNSET,
        stands_still=(mine is not None and mine.book.stands_still) or UNSET,
        order_waits=(mine is not None and mine.order_waits) or UNSET,
        sessions=sessions,
        parts=holders or UNSET,
    )


def _holders(parts: PartOwners | None, known: Mapping[int, AssignmentEntry]) -> list[PartHolder]:
    """Return the members that have the parts of a partition, as its record says.

    `known`: what the coordinator has written of each part.
    """
    if parts is None and known:
        parts = PartOwners.none(max(known) + 1)
    found: dict[tuple[str, str], list[int]] = {}
    for part in range(parts.count if parts is not None else 0):
        member = parts.owner(part) if parts is not None else None
        entry = known.get(part)
        is_told = entry is not None and entry.member == member
        state = "Unassigned" if member is None else "Ready"
        if entry is not None and is_told:
            state = entry.state
        found.setdefault((member or "", state), []).append(part)
    return [PartHolder(member, state, numbers) for (member, state), numbers in found.items()]


def _member_statuses(
    read: MemberSnapshot,
    rows: Mapping[str, GroupPartition],
    retired: Collection[str],
    *,
    is_shared: bool,
) -> list[MemberStatus]:
    """Return the listed members, and those that hold a partition, or parts.

    `retired`: the partitions without slots. `is_shared`: each member has every partition.
    """
    held: dict[MemberId, Counter[bool]] = {member: Counter() for member in read.members}
    for name, each in read.members.items() if is_shared else ():
        if each.lost_at_ms is None:
            held[name].update(row in retired for row in rows)
    for partition, row in rows.items():
        for member, count in counts_of(row):
            held.setdefault(MemberId(member), Counter())[partition in retired] += count
    return [
        MemberStatus(
            member,
            counts[False],
            _member_state(read.members.get(member), counts.total()),
            retired=counts[True] or UNSET,
            node_id=node.node_id if (node := read.nodes.get(member)) is not None else UNSET,
        )
        for member, counts in sorted(held.items())
    ]


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
