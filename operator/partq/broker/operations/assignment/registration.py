"""A member of a client-assigned group takes a partition, and gives it back."""

import asyncio
import logging
from typing import Literal

from partq.broker.broker import Broker
from partq.broker.delivery.handoff_executor import MAX_DRAIN_S
from partq.broker.operations.assignment.subscribable import refusal_of_mark
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.group.moves import Forced
from partq.core.model import Cause, Epoch, MemberId, PartitionId
from partq.errors import (
    AttemptRefusedError,
    BadRequestError,
    ConflictError,
    FencedError,
    NotOwnerError,
    PartqError,
    ServerAssignedError,
    SupersededError,
    UnavailableError,
)
from partq.excerpts import excerpt
from partq.store.records.events import Events
from partq.store.records.stored_partition import RegisterOutcome
from partq.store.refusals import in_use
from partq.wire.calls.registration import (
    RegisterBody,
    Registered,
    Unregistered,
    UnregisterQuery,
)

SETTLE_TIMEOUT_S = 3.0
"""How long a registration with an offset waits until earlier acks are stored."""
PAUSE_S = 5.0
"""How long nothing is delivered after a call that has found messages in flight."""
DRAIN_POLL_S = 0.05
"""Seconds after which a call that unregisters looks again whether something is in flight."""

_log = logging.getLogger(__name__)


def check_client_assigned(broker: Broker, group: str) -> None:
    """Refuse a call that is not for this kind of group.

    Raises:
        ServerAssignedError: the coordinator assigns the group's partitions.
    """
    if group not in broker.config.client_assigned:
        raise ServerAssignedError(
            f"group {group}: got a call of a member that chooses its partitions, expected none: "
            "the coordinator assigns them; set spec.assignment of the ConsumerGroup to Client, or "
            "consume without registering"
        )


async def register(
    broker: Broker, partition: PartitionId, group: str, member: MemberId, body: RegisterBody
) -> Registered:
    """Give a partition that is owned here to a member, if nobody else holds it.

    A member that has a flow here gets messages at once; another one once it binds.

    Raises:
        NotOwnerError, UnknownGroupError, ServerAssignedError, NotSubscribableError: nothing was
            changed, as with all below but the last.
        PartitionInUseError: another member holds it.
        FencedError: the epoch is over, or another process of the member is bound.
        ConflictError: the member holds it, is bound, and wants another offset; or it is just
            unregistering it.
        StoreUnavailableError: no answer; a repeat of the call finds out.
    """
    check_client_assigned(broker, group)
    check_incarnation(body.incarnation)
    consumed = broker.find(partition).find(group)
    refusal = await refusal_of_mark(broker, partition)
    async with consumed.lock:
        _check_process(broker, consumed, member, body.incarnation)
        if consumed.member is None:
            if refusal is not None:
                raise refusal
            outcome = await _take(broker, consumed, member, body)
        elif consumed.member == member:
            outcome = await _take_again(broker, consumed, member, body)
        else:
            raise in_use(partition, group, consumed.member)
    return Registered(
        member=member,
        epoch=outcome.epoch,
        cursor=outcome.cursor,
        is_clamped=0 <= body.offset != outcome.cursor,
        is_new=outcome.is_new,
    )


def check_incarnation(incarnation: str) -> None:
    """Refuse the name of a process that no bind can have.

    Raises:
        BadRequestError: it is empty, or not printable.
    """
    if not (incarnation and incarnation.isprintable()):
        raise BadRequestError(
            f"incarnation: got {excerpt(incarnation)!r}, expected printable characters: that of "
            "the member's binds"
        )


def _check_process(
    broker: Broker, consumed: ConsumedPartition, member: MemberId, incarnation: str
) -> None:
    """Refuse a call for a partition that left this broker, or while another process is bound.

    Raises:
        FencedError: it is one of these.
    """
    if consumed.is_dropped:
        raise FencedError(
            f"partition {consumed.partition}: not served here any more; nothing was changed: "
            "look again"
        )
    flow = broker.flow_registry.find(consumed.group, member)
    if flow is not None and flow.incarnation != incarnation:
        raise FencedError(
            f"member {member} of {consumed.group}: got incarnation {excerpt(incarnation)!r}, but "
            "another process of the member is connected; end one of them"
        )


async def _take(
    broker: Broker,
    consumed: ConsumedPartition,
    member: MemberId,
    body: RegisterBody,
    standing: Literal["", "renewed"] = "",
) -> RegisterOutcome:
    """Give the member what nobody holds, or what it holds under a new epoch."""
    if body.epoch != consumed.epoch:
        raise FencedError(
            f"partition {consumed.partition} of {consumed.group}: got epoch {body.epoch}, expected "
            f"{consumed.epoch}, as it was registered, unregistered or reset since it was shown; "
            "nothing was changed: look again"
        )
    if body.offset >= 0 or consumed.flow is not None:
        await _settle(broker, consumed)
        consumed.is_resetting = True
    try:
        broker.flow_registry.unbind(consumed, Cause.FLOW_LOST)  # of its older epoch
        outcome = await _store(broker, consumed, member, body, standing)
        if outcome.is_new and body.offset >= 0:
            consumed.begin_at(outcome.cursor, outcome.outbox)
        if not outcome.is_new:
            raise ConflictError(f"partition {consumed.partition}: its record says more; look again")
    except BaseException as error:
        # Stored or not, this memory may be wrong: the record is read again, by a new claim.
        reason = (
            error
            if isinstance(error, PartqError)
            else ConflictError("a registration was cut short; repeat it")
        )
        broker.ownership.lose_group(consumed, reason)
        raise
    finally:
        consumed.is_resetting = False
        if consumed.is_dirty and not consumed.is_dropped:
            broker.cursor_writer.notice(consumed)
    consumed.member, consumed.incarnation = member, body.incarnation
    consumed.epoch = consumed.registered = outcome.epoch
    consumed.is_given_up = False
    _log.info(
        "%s of %s registered by %s at %d, epoch %d",
        *(consumed.partition, consumed.group, member, outcome.cursor, outcome.epoch),
    )
    flow = broker.flow_registry.find(consumed.group, member)
    if flow is not None and flow.incarnation != body.incarnation:
        broker.flow_registry.bind_soon(consumed)  # another process came: the record names it first
    elif flow is not None and not consumed.is_dropped:
        flow.attach(consumed)
    await Events(broker.store, broker.keys).add("registered", group=consumed.group, member=member)
    return outcome


async def _take_again(
    broker: Broker, consumed: ConsumedPartition, member: MemberId, body: RegisterBody
) -> RegisterOutcome:
    """Answer a member that holds the partition: as before, or with another offset."""
    if consumed.pause is not None and consumed.pause.is_unregistering:
        raise ConflictError(
            f"partition {consumed.partition}: member {member} is unregistering it; wait until that "
            "is done, and register it then",
            retry_after_s=1.0,
        )
    if body.epoch == consumed.epoch and body.offset >= 0:
        if consumed.flow is not None:
            raise ConflictError(
                f"partition {consumed.partition}: member {member} holds it and is connected; "
                f"unregister it before it is registered at offset {body.offset}"
            )
        return await _take(broker, consumed, member, body)
    if consumed.is_given_up:
        # A late repeat of what has begun to unregister it must not take what is confirmed here.
        return await _take(broker, consumed, member, body, "renewed")
    try:
        outcome = await _store(broker, consumed, member, body, "held")
    except NotOwnerError as error:
        broker.ownership.lose_group(consumed, error)
        raise
    if outcome.epoch > consumed.epoch:
        # The answer of a bind was lost: the record is read again, by a new claim.
        broker.ownership.lose_group(
            consumed, ConflictError(f"epoch {outcome.epoch} is recorded, not {consumed.epoch}")
        )
    return outcome


async def _settle(broker: Broker, consumed: ConsumedPartition) -> None:
    """Have the acks stored that were accepted before: a flush under way would undo the offset."""
    try:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            await broker.cursor_writer.settle(consumed)
            await consumed.settle_audit()
    except TimeoutError:
        raise UnavailableError(
            f"partition {consumed.partition}: the store does not answer; nothing was changed: "
            "repeat the call",
            retry_after_s=1.0,
        ) from None
    if consumed.is_dropped:
        raise FencedError(f"partition {consumed.partition}: not served here any more; look again")


async def _store(
    broker: Broker,
    consumed: ConsumedPartition,
    member: MemberId,
    body: RegisterBody,
    standing: Literal["", "held", "renewed"],
) -> RegisterOutcome:
    while True:
        try:
            return await broker.partitions.register(
                consumed.partition,
                consumed.group,
                member=member,
                incarnation=body.incarnation,
                epoch=Epoch(body.epoch),
                offset=None if body.offset < 0 else body.offset,
                standing=standing,
                **consumed.next_write(),
            )
        except SupersededError:
            continue  # a flush was faster: nothing was written


async def unregister(
    broker: Broker, partition: PartitionId, group: str, member: MemberId, query: UnregisterQuery
) -> Unregistered:
    """Give a partition that is owned here back, once nothing of it is in flight.

    From the call on nothing is delivered; a repeat continues with that. Five seconds after the last
    call the partition continues at its member.

    Raises:
        NotOwnerError, UnknownGroupError, ServerAssignedError: nothing was changed.
        FencedError: the epoch is of an earlier registration, or another process of the member, or
            another member has the partition; nothing was changed.
        ConflictError: the coordinator is handing the partition over.
        UnavailableError: the member bound meanwhile; repeat the call.
    """
    check_client_assigned(broker, group)
    consumed = broker.find(partition).find(group)
    async with consumed.lock:  # a bind that is under way has its epoch first
        if consumed.member is None:
            return Unregistered(is_free=True, in_flight=0, epoch=consumed.epoch)
        _check_process(broker, consumed, member, query.incarnation)
        _check_registration(consumed, member, query.epoch)
        if consumed.pause is not None and not consumed.pause.is_unregistering:
            raise ConflictError(
                f"partition {partition}: a handoff is under way; repeat the call", retry_after_s=1.0
            )
        _pause(broker, consumed, is_forced=query.is_forced)
    is_drained = await _drain(broker, consumed, member, query)
    if consumed.member != member or consumed.is_dropped:
        raise UnavailableError(
            f"partition {partition}: it has passed to another owner meanwhile; repeat the call",
            retry_after_s=0.1,
        )
    if not (is_drained or query.is_forced):
        return Unregistered(is_free=False, in_flight=consumed.book.in_flight, epoch=consumed.epoch)
    return await _give_back(broker, consumed, member)


def _check_registration(consumed: ConsumedPartition, member: MemberId, epoch: int) -> None:
    first = consumed.registered or consumed.epoch
    if consumed.member != member or not first <= epoch <= consumed.epoch:
        raise FencedError(
            f"partition {consumed.partition} of {consumed.group}: got member {member} and epoch "
            f"{epoch}, but {consumed.member} has held it since epoch {first}; nothing was changed: "
            "look again"
        )


def _pause(broker: Broker, consumed: ConsumedPartition, *, is_forced: bool) -> None:
    """Pause the partition, or renew that."""
    consumed.is_given_up = True
    pause = consumed.pause
    if pause is not None and pause.epoch == consumed.epoch and not is_forced:
        attempt = pause.attempt
    else:
        attempt = max(consumed.closed_attempt, pause.attempt if pause is not None else 0) + 1
    broker.handoffs.pause(
        consumed,
        broker_epoch=consumed.broker_epoch,
        epoch=consumed.epoch,
        attempt=attempt,
        lease_s=PAUSE_S,
        drain_s=0.0 if is_forced else MAX_DRAIN_S,
        is_unregistering=True,
    )


async def _drain(
    broker: Broker, consumed: ConsumedPartition, member: MemberId, query: UnregisterQuery
) -> bool:
    """Wait until nothing is in flight, for the time of the call; return whether that is so."""
    until = broker.clock() + query.wait_ms / 1000
    while (
        consumed.member == member
        and not (query.is_forced or consumed.is_dropped or consumed.is_drained)
        and (left := until - broker.clock()) > 0
    ):
        await broker.drain_signal.wait_at_most(min(left, DRAIN_POLL_S))
    return consumed.is_drained


async def _give_back(broker: Broker, consumed: ConsumedPartition, member: MemberId) -> Unregistered:
    again = UnavailableError(
        f"partition {consumed.partition}: member {member} has bound meanwhile; repeat the call",
        retry_after_s=0.1,
    )
    pause = consumed.pause
    if pause is None or not pause.is_unregistering or pause.epoch != consumed.epoch:
        raise again
    broker_epoch, epoch, attempt = consumed.broker_epoch, consumed.epoch, pause.attempt
    try:
        broker.handoffs.record_drain_end(
            consumed, broker_epoch=broker_epoch, epoch=epoch, attempt=attempt
        )
        closed = await broker.handoffs.commit(
            consumed,
            broker_epoch=broker_epoch,
            epoch=epoch,
            attempt=attempt,
            source=member,
            target=None,
            forced=Forced.DRAIN_TIMEOUT if consumed.book.in_flight else "",
        )
    except AttemptRefusedError as error:
        raise again from error  # the commit waited for that bind
    return Unregistered(is_free=True, in_flight=0, epoch=closed.epoch)
