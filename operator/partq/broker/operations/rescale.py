"""Changing the number of partitions, as an administrator wants it: what it would do, and doing it.

The wanted number goes into the queue's config. Its coordinator carries the change out, and goes on
with it after a failure: so a repeat of the call is harmless, and an answer that is lost, too.
"""

import json
import logging
from collections.abc import Iterator, Mapping

from partq.broker.broker import Broker
from partq.broker.operations.rescale_status import read_rescale
from partq.broker.operations.status import retained_bytes
from partq.coordinator.group_snapshot import GroupSnapshot
from partq.coordinator.reports.rescale_forecast import forecast_members
from partq.coordinator.rules import wanted_partition_count
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.records import ConfigRecord
from partq.core.slot_table import MAX_PARTITIONS, SlotChange
from partq.core.views.rescale_status import BEGINNING, percent
from partq.errors import ConflictError, UnknownQueueError
from partq.excerpts import counted
from partq.store.records.layout.seals import Seals
from partq.wire.calls.answers import UNSET
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.state import BrokerAnswer, PartitionDetail
from partq.wire.calls.status import (
    MemberCounts,
    RatesAnswer,
    RescaledGroup,
    RescalePlan,
)

PARTITION_BYTES = 1000
GROUP_BYTES = 500
"""About what Redis needs for an empty partition, and for each group in it."""
FEW_PREDECESSORS = 4
"""With more, a new partition waits for many: then a better number is suggested."""
MAX_BLOCKED = 100
"""Blocked slots of a group in a partition that a plan names."""

BlockedSlots = dict[str, dict[str, list[int]]]
"""Group → partition → slots."""

_log = logging.getLogger(__name__)


async def want_partitions(broker: Broker, body: RescaleBody) -> None:
    """Record how many partitions the queue is to have; a repeat changes nothing.

    Raises:
        ConflictError: on Kubernetes the resource says it; or the config was changed meanwhile.
        UnknownQueueError: nobody has created the queue.
        StoreUnavailableError: no answer; a repeat finds out.
    """
    config = await _read_config(broker)
    if config.spec.get("partitions") == body.partitions:
        return
    if (command := command_of(broker, config, body.partitions)) is not None:
        raise ConflictError(
            f"queue {broker.settings.queue}: it belongs to a PartitionedQueue on Kubernetes, and "
            f"the operator would set the number back; change the resource: {command}"
        )
    spec = {**config.spec, "partitions": body.partitions}
    number = config.resource_generation + 1
    if not await broker.configs.write_queue(spec, resource_generation=number):
        raise ConflictError(
            f"queue {broker.settings.queue}: its config was changed meanwhile; repeat the call"
        )
    _log.info("queue %s is to have %d partitions", broker.settings.queue, body.partitions)
    await broker.refresh()


def command_of(broker: Broker, config: ConfigRecord, count: int) -> str | None:
    """Return what changes the number on Kubernetes; None: the queue has no resource there."""
    if config.spec.get("uid") is None:
        return None
    settings, patch = broker.settings, json.dumps({"spec": {"partitions": count}})
    return (
        f"kubectl -n {settings.namespace} patch partitionedqueue {settings.queue} --type merge "
        f"-p '{patch}'"
    )


async def read_plan(broker: Broker, count: int) -> RescalePlan:
    """Return what a change to `count` partitions does, but for its groups.

    Raises:
        UnknownQueueError: nobody has created the queue.
        StoreUnavailableError: no answer.
    """
    layout = (await broker.layouts.read()).layout
    config = await _read_config(broker)
    change, generation = change_to(layout, count)
    command = command_of(broker, config, count)
    wanted = wanted_partition_count(config.spec)
    status = await read_rescale(broker, layout, wanted)
    planned = status if wanted == count else await read_rescale(broker, layout, count)
    is_about_it = planned is not None and planned.to_count == count
    waits = planned.waits_for if planned is not None and is_about_it else []
    notes = [*remarks(layout, change, count, wanted), *await _retention_remarks(broker, change)]
    return RescalePlan(
        queue=broker.settings.queue,
        namespace=broker.settings.namespace,
        from_count=layout.partition_count,
        to_count=count,
        generation=generation,
        moved_percent=percent(change.moved_count),
        created=[str(partition) for partition in sorted(change.lineage)],
        retired=[str(partition) for partition, left in change.sealed.items() if not left],
        most_predecessors=max(map(len, change.lineage.values()), default=0),
        groups={},
        store_bytes=len(change.lineage) * (PARTITION_BYTES + GROUP_BYTES * len(config.groups)),
        waits_for=[each for each in waits if each != BEGINNING],
        remarks=notes,
        is_wanted=wanted == count,
        command=UNSET if command is None else command,
        rescale=UNSET if status is None else status,
    )


async def _retention_remarks(broker: Broker, change: SlotChange) -> list[str]:
    """Return what a change takes of the messages that stay after their acknowledgement.

    Raises:
        StoreUnavailableError: no answer.
    """
    if not broker.config.retention_s or not change.sealed:
        return []
    records = await broker.partitions.read_many(tuple(change.sealed))
    size_bytes = retained_bytes(broker, records.values())
    lose = counted(len(change.sealed), "partition that loses", "partitions that lose")
    return [
        f"retentionSeconds keeps nothing across the change in the {lose} keys: messages that all "
        f"groups have acknowledged are removed there, {size_bytes:,} bytes so far, and `partq "
        "reset` does not bring them back; copy before what is still needed"
    ]


def change_to(layout: Layout, count: int) -> tuple[SlotChange, int]:
    """Return the change to another number of partitions, and its generation.

    It is the one that is being prepared, if it has this number. With the number in force nothing
    moves.
    """
    prepared = layout.next
    if prepared is not None and prepared.table.partition_count == count:
        return prepared, layout.last_generation
    if count == layout.partition_count:
        return SlotChange(layout.table, {}), layout.generation
    generation = layout.last_generation + 1
    return layout.table.resized(count, generation), generation


async def read_blocked(
    broker: Broker, plan: RescalePlan, layout: Layout, states: Mapping[str, BrokerAnswer]
) -> BlockedSlots:
    """Return the blocked slots of partitions that lose some, where brokers say that there are any.

    Raises:
        StoreUnavailableError: no answer.
    """
    change, _ = change_to(layout, plan.to_count)
    places = [
        (PartitionId.parse(partition), group)
        for partition, detail in _owned(states)
        for group, held in detail.groups.items()
        if held.blocked_keys and PartitionId.parse(partition) in change.sealed
    ]
    found: BlockedSlots = {}
    progresses = await Seals(broker.store, broker.keys).read_progress(places)
    for (partition, group), progress in progresses.items():
        if progress.blocked:
            slots = list(progress.blocked[:MAX_BLOCKED])
            found.setdefault(group, {})[str(partition)] = slots
    return found


def add_groups(
    plan: RescalePlan,
    layout: Layout,
    states: Mapping[str, BrokerAnswer],
    rates: RatesAnswer,
    snapshots: Mapping[str, GroupSnapshot],
    blocked: BlockedSlots,
) -> None:
    """Add what the change does to each group.

    Args:
        plan: of the change.
        layout: as the broker knows it.
        states: what each broker has said of itself; one that is silent becomes a remark.
        rates: the last ten minutes of the queue.
        snapshots: the groups whose members are forecast.
        blocked: what `read_blocked` has found.
    """
    change, _ = change_to(layout, plan.to_count)
    if not change.lineage:
        return
    losing = {str(partition) for partition in change.sealed}
    for name in sorted(name for name, each in states.items() if each.state is UNSET):
        plan.remarks.append(f"broker {name} does not answer: its partitions are not counted")
    counts = {group: [0, 0] for group in snapshots}
    for partition, detail in _owned(states):
        for group, held in detail.groups.items() if partition in losing else ():
            in_flight, lag = counts.get(group, (0, 0))
            counts[group] = [in_flight + held.in_flight, lag + held.lag]
    for group, (in_flight, lag) in counts.items():
        plan.groups[group] = RescaledGroup(
            in_flight=in_flight,
            lag=lag,
            hold_ms=None if group in blocked else hold_ms(lag, rates, group),
            moved=0,
            assigned=0,
            members={},
            blocked=blocked.get(group, UNSET),
        )
        if group in snapshots:
            _add_members(plan.groups[group], snapshots[group], layout, change)


def _owned(states: Mapping[str, BrokerAnswer]) -> Iterator[tuple[str, PartitionDetail]]:
    """Yield every partition that a broker has named."""
    for answer in states.values():
        if answer.state is not UNSET:
            yield from answer.state.partitions.items()


def hold_ms(lag: int, rates: RatesAnswer, group: str) -> int | None:
    """Return how long a group needs for a lag, as fast as it was; None: nothing was acknowledged.

    Deliveries do not say how fast it is: they are ahead of its work by its credit.
    """
    if not lag:
        return 0
    lags = rates.groups[group].lag if group in rates.groups else []
    acked = [
        accepted + before - after
        for accepted, before, after in zip(rates.accepted[1:], lags, lags[1:], strict=False)
        if accepted is not None and before is not None and after is not None
    ]
    # Steps without an ack are idle. Counts of accepted messages and of the lag are not of one
    # moment, so a step may have too many, and the next one less than none.
    busy_count = sum(count > 0 for count in acked)
    done = sum(acked)
    return round(lag * rates.step_ms * busy_count / done) if done > 0 else None


def _add_members(
    group: RescaledGroup, snapshot: GroupSnapshot, layout: Layout, change: SlotChange
) -> None:
    forecast = forecast_members(snapshot, layout.table, change.table)
    group.moved, group.assigned = forecast.moved, forecast.assigned
    group.members = {
        member: MemberCounts(forecast.before.get(member, 0), forecast.after.get(member, 0))
        for member in sorted({*forecast.before, *forecast.after})
    }


def remarks(
    layout: Layout, change: SlotChange, count: int, wanted: int | None = None
) -> Iterator[str]:
    """Yield what an administrator should know of a change.

    `wanted`: how many partitions the queue is to have so far; None: nobody has said.
    """
    before = layout.partition_count
    prepared = layout.next
    if prepared is None and wanted not in (None, before, count):
        yield f"the change to {wanted} partitions, which has not begun, is taken back"
    if prepared is not None and prepared.table.partition_count != count:
        name = f"change {layout.last_generation} to {prepared.table.partition_count} partitions"
        if layout.must_commit:
            yield f"{name}, which may have been in force and was lost, is completed first"
        else:
            yield f"{name}, which is being prepared, is taken back first"
    if not change.lineage:
        return
    if count < before:
        yield (
            f"all {len(change.lineage)} partitions that get keys of others are replaced: each "
            "delivers to a group once the group has acknowledged what its predecessors have"
        )
    most = max(map(len, change.lineage.values()))
    if most > FEW_PREDECESSORS and count > before:
        yield (
            f"a new partition has its keys from {most} others, and waits for the slowest"
            f"{_better(layout, count, most)}"
        )


def _better(layout: Layout, count: int, most: int) -> str:
    """Return the suggestion of the next multiple, if its partitions wait for fewer others."""
    before = layout.partition_count
    multiple = min(MAX_PARTITIONS, -(-count // before) * before)
    lineage = layout.table.resized(multiple, layout.last_generation + 1).lineage
    fewer = max(map(len, lineage.values()), default=most)
    if fewer >= most:
        return ""
    others = counted(fewer, "predecessor")
    return f"; a suggestion: {multiple} partitions would wait for {others} each, instead of {most}"


async def _read_config(broker: Broker) -> ConfigRecord:
    config = await broker.configs.read_queue()
    if config is None:
        raise UnknownQueueError(
            f"queue {broker.settings.queue}: it has no config in the store; create it"
        )
    return config
