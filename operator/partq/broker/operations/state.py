"""What a coordinator asks of a broker: state, pause, drain, commit, cancel, claim, yield.

A call names many partitions and is answered for each on its own. How it came is not known here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from partq.broker.broker import Broker
from partq.broker.partition import mended
from partq.broker.partition.group_partition import ConsumedPartition
from partq.core.cursor.lag import lag_of
from partq.core.model import BrokerEpoch, Epoch, MemberId, PartitionId
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    ConflictError,
    FencedError,
    NotOwnerError,
    PartqError,
)
from partq.store.records.refusals import unknown_partition
from partq.wire.calls.bodies import (
    MAX_DRAIN_WAIT_MS,
    Cancels,
    CommitItem,
    Commits,
    DrainItem,
    Drains,
    PartitionName,
    PartitionNames,
    PauseItem,
    Pauses,
)
from partq.wire.calls.replies import error_detail

MAX_ITEMS = 65_536
DEADLINE_POLL_S = 0.05

Item = TypeVar("Item")
Body = dict[str, Any]
"""What is answered, as JSON has it."""


def state(broker: Broker) -> Body:
    """Show what the broker owns and who is bound."""
    now = broker.clock()
    flow_registry = broker.flow_registry
    return {
        "broker": broker.id,
        "incarnation": broker.incarnation,
        "partitions": {
            str(owned.id): {
                "broker_epoch": owned.broker_epoch,
                "held_s": now - owned.claimed_at,
                "end": owned.tail.end,
                "groups": {
                    s.group: {
                        **_subscription(s, owned.tail.end),
                        "mended": mended.told_of(owned, s.group),
                    }
                    for s in owned.groups.values()
                },
            }
            for owned in broker.owned.values()
            if not owned.is_yielding
        },
        "flows": [
            {
                "group": flow.group,
                "member": flow.member,
                "incarnation": flow.incarnation,
                "address": flow.address,
                "flow": flow.number,
                "is_leaving": flow.is_leaving,
                "kind": flow.kind,
                "bound_s": now - flow.bound_at,
            }
            for flow in flow_registry.flows
        ],
        "lost_flows": [
            {
                "group": lost.group,
                "member": lost.member,
                "incarnation": lost.incarnation,
                "lost_s": now - lost.lost_at,
                "is_leaving": lost.is_leaving,
            }
            for lost in flow_registry.lost
        ],
        "is_quota_used_up": broker.room.is_quota_used_up,
    }


async def pause(broker: Broker, group: str, body: Pauses) -> Body:
    """Pause partitions, or renew their pauses."""

    async def pause_one(item: PauseItem) -> dict[str, Any]:
        subscription = _find(broker, item.partition, group)
        broker.handoffs.pause(
            subscription,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
            lease_s=item.lease_ms / 1000,
            drain_s=item.drain_ms / 1000,
        )
        view = _drain_view(subscription)
        if view["is_drained"]:
            broker.handoffs.tell_drained(subscription, item.attempt)
        await _tell(subscription)
        return view

    return await _each(body.pauses, pause_one)


async def drain(broker: Broker, group: str, body: Drains) -> Body:
    """Wait until one of the pauses is drained or over.

    Raises:
        BadRequestError: the time to wait is out of range.
    """
    if not 0 <= body.wait_ms <= MAX_DRAIN_WAIT_MS:
        raise BadRequestError(f"wait_ms {body.wait_ms}; expected 0 to {MAX_DRAIN_WAIT_MS}")
    until = broker.clock() + body.wait_ms / 1000

    def is_over(item: DrainItem) -> bool:
        try:
            return broker.handoffs.watch(
                _find(broker, item.partition, group),
                broker_epoch=BrokerEpoch(item.broker_epoch),
                epoch=Epoch(item.epoch),
                attempt=item.attempt,
            )
        except PartqError:
            return True

    while (left := until - broker.clock()) > 0 and not any(map(is_over, body.drains)):
        # A drain also ends by time, which nobody announces.
        await broker.progress.wait(min(left, DEADLINE_POLL_S))

    async def look(item: DrainItem) -> dict[str, Any]:
        subscription = _find(broker, item.partition, group)
        has_ended = broker.handoffs.watch(
            subscription,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
        )
        view = _drain_view(subscription)
        if has_ended:
            broker.handoffs.tell_drained(subscription, item.attempt)
        await _tell(subscription)
        return view

    return await _each(body.drains, look)


async def commit(broker: Broker, group: str, body: Commits) -> Body:
    """Give partitions to their targets."""

    async def commit_one(item: CommitItem) -> dict[str, Any]:
        closed = await broker.handoffs.commit(
            _find(broker, item.partition, group),
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
            source=MemberId(item.source) if item.source else None,
            target=MemberId(item.target) if item.target else None,
            cause=item.cause,
        )
        return {"epoch": closed.epoch, "was_forced": closed.was_forced}

    return await _each(body.commits, commit_one)


async def cancel(broker: Broker, group: str, body: Cancels) -> Body:
    """Let the sources of handoffs go on."""

    async def cancel_one(item: DrainItem) -> dict[str, Any]:
        subscription = _find(broker, item.partition, group)
        broker.handoffs.cancel(
            subscription,
            broker_epoch=BrokerEpoch(item.broker_epoch),
            epoch=Epoch(item.epoch),
            attempt=item.attempt,
        )
        await _tell(subscription)
        return {}

    return await _each(body.cancels, cancel_one)


async def claim(broker: Broker, body: PartitionNames) -> Body:
    """Own partitions that nobody owns.

    Raises:
        BatchTooLargeError: there are too many of them.
    """
    _check_count(body.partitions)
    # The records before the leases: `OwnedPartitions.claim` says why.
    records = await broker.partitions.read_many(_parsable(body.partitions))
    await broker.claims.refresh()
    living = broker.claims.observer.living(broker.clock())

    async def claim_one(item: PartitionName) -> dict[str, Any]:
        partition = _parse(item.partition)
        if partition not in broker.owned:
            record = records.get(partition)
            if record is None:
                raise unknown_partition(partition)
            if record.owner in living and record.owner != broker.id:
                raise ConflictError(
                    f"partition {partition}: {record.owner} owns it and lives; let it yield first"
                )
            await broker.ownership.claim(partition, record)
        return {"broker_epoch": broker.find(partition).broker_epoch}

    return await _each([PartitionName(name) for name in body.partitions], claim_one)


async def yield_(broker: Broker, body: PartitionNames) -> Body:
    """Give partitions up."""

    async def yield_one(item: PartitionName) -> dict[str, Any]:
        await broker.ownership.give_up(_parse(item.partition))
        return {}

    return await _each([PartitionName(name) for name in body.partitions], yield_one)


async def _each(items: Sequence[Item], work: Callable[[Item], Awaitable[dict[str, Any]]]) -> Body:
    """Do the work for every item side by side; one that fails holds up nothing else.

    Raises:
        BatchTooLargeError: there are too many of them.
    """
    _check_count(items)

    async def one(item: Any) -> dict[str, Any]:
        try:
            return {"partition": item.partition, **await work(item)}
        except PartqError as error:
            return {"partition": item.partition, "error": error_detail(error)}
        except TimeoutError:
            late = NotOwnerError(f"partition {item.partition}: not done in time; look again")
            return {"partition": item.partition, "error": error_detail(late)}

    return {"results": await asyncio.gather(*map(one, items))}


def _check_count(items: Sequence[Any]) -> None:
    if len(items) > MAX_ITEMS:
        raise BatchTooLargeError(f"body: {len(items)} partitions; at most {MAX_ITEMS} in a call")


def _parsable(names: Iterable[str]) -> Iterator[PartitionId]:
    for name in names:
        with suppress(ValueError):
            yield PartitionId.parse(name)


def _parse(name: str) -> PartitionId:
    try:
        return PartitionId.parse(name)
    except ValueError as error:
        raise BadRequestError(str(error)) from error


def _find(broker: Broker, name: str, group: str) -> ConsumedPartition:
    return broker.find(_parse(name)).find(group)


async def _tell(subscription: ConsumedPartition) -> None:
    """Record what was done, before it is answered.

    Raises:
        FencedError: the partition was lost before that.
    """
    await subscription.settle_audit()
    if subscription.is_dropped:
        raise FencedError(
            f"partition {subscription.partition}: lost before it was on record; look again"
        )


def _subscription(subscription: ConsumedPartition, end: int) -> dict[str, Any]:
    book = subscription.book
    pause = subscription.pause
    return {
        "member": subscription.member or "",
        "incarnation": subscription.incarnation,
        "epoch": subscription.epoch,
        "attempt": subscription.closed_attempt,
        "cursor": book.cursor,
        "position": book.position,
        "in_flight": book.in_flight,
        "lag": lag_of(end, book.cursor, book.acked.pairs()),
        "state": subscription.state,
        "is_bound": subscription.flow is not None,
        "pause_attempt": pause.attempt if pause is not None else 0,
        "dead_letters": len(subscription.outbox.letters),
        "blocked": subscription.blocked,
        "missing": subscription.missing,
        "parked": subscription.outbox.parked,
    }


def _drain_view(subscription: ConsumedPartition) -> dict[str, Any]:
    return {
        "in_flight": subscription.book.in_flight,
        "is_drained": subscription.is_drained,
        "last_delivered": subscription.book.position - 1,
    }
