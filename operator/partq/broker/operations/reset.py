"""Moving a group's cursor in a partition, back or forward, as an administrator wants it."""

import asyncio
import logging

from partq.broker.broker import Broker
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.model import Cause, PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    FencedError,
    PartqError,
    SupersededError,
    UnavailableError,
)
from partq.store.records.stored_partition import ResetOutcome
from partq.wire.calls.answers import ResetResult
from partq.wire.calls.bodies import MAX_NATURAL, ResetBody

SETTLE_TIMEOUT_S = 3.0
"""How long a reset waits until the acks that came before it are stored."""

_log = logging.getLogger(__name__)


def check(body: ResetBody, partition_count: int) -> None:
    """Refuse what does not say where to, or says it twice.

    Args:
        body: what was asked for.
        partition_count: how many partitions it is for.

    Raises:
        BadRequestError: it is not just one place.
    """
    places = {"to": body.to, "at_ms": body.at_ms, "offset": body.offset}
    given = [name for name, value in places.items() if value is not None]
    if len(given) != 1:
        got = ", ".join(given) or "none of them"
        raise BadRequestError(f"reset: got {got}; expected one of to, at_ms and offset")
    if body.offset is not None and partition_count != 1:
        raise BadRequestError(
            f"reset: an offset for {partition_count} partitions; offsets count per partition: "
            "name the one that is meant"
        )


async def reset(broker: Broker, partition: PartitionId, group: str, body: ResetBody) -> ResetResult:
    """Move the cursor of a group in a partition that is owned here, or say what would change.

    Raises:
        NotOwnerError, UnknownGroupError, FencedError: nothing was changed.
        ConflictError: a member is bound, and the call is not forced; or the epoch is not the one
            that the call names. Nothing was changed.
        StoreUnavailableError: it may have been moved; a repeat moves it again.
    """
    consumed = broker.find(partition).find(group)
    wanted = await _offset(broker, partition, body)
    record = await broker.partitions.read(partition)
    view = ResetResult(
        member=consumed.member or "",
        is_bound=consumed.flow is not None,
        cursor=consumed.book.cursor,
        to=max(record.trimmed, min(wanted, record.next)),
        wanted=wanted if body.to != "latest" else record.next,
        first=record.trimmed,
        end=record.next,
        epoch=consumed.epoch,
    )
    if not body.is_dry_run:
        view.to = await _carry_out(broker, consumed, wanted, body)
        view.epoch = consumed.epoch
    return view


async def _offset(broker: Broker, partition: PartitionId, body: ResetBody) -> int:
    if body.offset is not None:
        return body.offset
    if body.at_ms is not None:
        return await broker.log.find_time(partition, body.at_ms)
    return 0 if body.to == "earliest" else MAX_NATURAL


async def _carry_out(
    broker: Broker, consumed: ConsumedPartition, wanted: int, body: ResetBody
) -> int:
    """Move the cursor, and return where it is."""
    try:
        async with consumed.lock:
            # The script moves it under this epoch only: a broker that knows an older one cannot.
            _check_epoch(consumed, body)
            if consumed.flow is not None and not body.is_forced:
                raise ConflictError(
                    f"partition {consumed.partition}: member {consumed.member} of "
                    f"{consumed.group} is connected; stop the group's members, or force the "
                    "reset"
                )
            await _unbind(broker, consumed)
            began_at = consumed.book.cursor
            consumed.is_resetting = True
            try:
                cursor = await _move(broker, consumed, wanted)
            finally:
                consumed.is_resetting = False
                if consumed.is_dirty and not consumed.is_dropped:
                    broker.cursor_writer.notice(consumed)
    finally:
        owned = broker.owned.get(consumed.partition)
        if owned is not None:
            broker.flow_registry.bind_later(owned)
    _log.info(
        "%s of %s reset from %d to %d",
        consumed.partition,
        consumed.group,
        began_at,
        cursor,
    )
    return cursor


def _check_epoch(consumed: ConsumedPartition, body: ResetBody) -> None:
    """Refuse a call that speaks of an epoch that is over: it may be late, or a repeat.

    Raises:
        ConflictError: it does.
    """
    seen = (body.epochs or {}).get(str(consumed.partition), consumed.epoch)
    if seen != consumed.epoch:
        raise ConflictError(
            f"partition {consumed.partition}: got epoch {seen} of group {consumed.group}, "
            f"expected {consumed.epoch}, as a member was bound, or the cursor moved, since it "
            "was shown; nothing was moved by this call: look again (is_dry_run), then repeat it"
        )


async def _unbind(broker: Broker, consumed: ConsumedPartition) -> None:
    """Take the partition from its member, and have the acks stored that were accepted before.

    A flush under way would undo the reset. Without a flow there is no delivery and no ack; from the
    last flush to the answer nothing expires, no message is moved to the outbox, and nothing is
    flushed.
    """
    done = "nothing was moved"
    try:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            if consumed.flow is not None and not consumed.is_dropped:
                # While the store takes no writes, the member keeps what it has.
                consumed.is_awaited = True
                refusal = await broker.cursor_writer.store(consumed, has_changed=True)
                if refusal is not None:
                    raise refusal
                await consumed.settle_audit()
                done += ", but what its member had in flight is delivered again"
            consumed.end_pause()
            broker.flow_registry.unbind(consumed, Cause.RESET)
            await broker.cursor_writer.settle(consumed)
            await consumed.settle_audit()
    except TimeoutError:
        raise UnavailableError(
            f"partition {consumed.partition}: the store does not answer; {done}: repeat the reset",
            retry_after_s=1.0,
        ) from None
    finally:
        consumed.is_awaited = False
    if consumed.is_dropped:
        raise FencedError(
            f"partition {consumed.partition}: not served here any more; repeat the reset"
        )


async def _store(broker: Broker, consumed: ConsumedPartition, wanted: int) -> ResetOutcome:
    while True:
        try:
            return await broker.partitions.reset(
                consumed.partition,
                consumed.group,
                **consumed.next_write(),
                epoch=consumed.epoch,
                offset=wanted,
            )
        except SupersededError:
            pass  # a dead letter was taken out meanwhile: nothing was moved


async def _move(broker: Broker, consumed: ConsumedPartition, wanted: int) -> int:
    """Move the cursor as it is stored, and begin again from there; return where it is."""
    try:
        moved = await _store(broker, consumed, wanted)
    except BaseException as error:
        # Moved or not, this memory may be wrong: the record is read again, by a new claim.
        reason = (
            error
            if isinstance(error, PartqError)
            else ConflictError("a reset was cut short; repeat it")
        )
        broker.ownership.lose_group(consumed, reason)
        raise
    # If it was dropped meanwhile, nobody uses this book: a broker that claims reads the stored one.
    consumed.book = consumed.book.moved_to(moved.cursor)
    consumed.outbox.scheduled.clear()
    consumed.missing = ""
    consumed.outbox.aside.clear()
    consumed.outbox.read(moved.outbox)
    if moved.outbox:
        # They count as done, as after a claim; the stored book is to say so, too.
        consumed.book.discard(sorted((each.offset, each.offset + 1) for each in moved.outbox))
        consumed.is_dirty = True
    consumed.epoch = moved.epoch
    return moved.cursor
