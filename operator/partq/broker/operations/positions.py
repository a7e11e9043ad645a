"""Positions in a partition's log, and a group's cursor that is moved forward to one."""

import asyncio

from partq.broker.broker import Broker
from partq.broker.operations.entries import check_end, check_epoch, read_bounds
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    UnavailableError,
    UnknownGroupError,
)
from partq.wire.calls.answers import UNSET
from partq.wire.calls.positions import CursorPosition, CursorResult, PositionResult, PositionsBody

STORE_TIMEOUT_S = 3.0
"""How long a cursor that was moved may take to be stored; what is not is moved by a repeat."""


def check(body: PositionsBody) -> None:
    """Refuse what does not say which positions are asked for, or says it twice.

    Raises:
        BadRequestError: it is not just one place.
    """
    places = {"to": body.to, "at_ms": body.at_ms, "group": body.group, "offsets": body.offsets}
    given = [name for name, value in places.items() if value is not None]
    if len(given) != 1:
        got = ", ".join(given) or "none of them"
        raise BadRequestError(f"positions: got {got}; expected one of {', '.join(places)}")


async def find_position(
    broker: Broker, partition: PartitionId, body: PositionsBody
) -> PositionResult:
    """Return a position in a partition that is owned here, and what the log holds.

    Raises:
        NotOwnerError: another broker owns the partition, or none.
        UnknownGroupError: the partition has no cursor of the group.
        BadRequestError: offsets are asked for, and none for this partition.
        StoreUnavailableError: Redis does not answer.
    """
    owned = broker.find(partition)
    end = owned.tail.end
    if body.to == "earliest":
        offset: int = (await read_bounds(broker, owned, [])).first
    else:
        offset = await _offset(broker, partition, body, end)
    bounds = await read_bounds(broker, owned, [offset])
    return PositionResult(
        offset=offset,
        append_broker_epoch=bounds.epochs[0] if offset <= end else 0,
        first=bounds.first,
        end=end,
        seals={str(each): int(stop) for each, stop in owned.layout.seals.items()} or UNSET,
    )


async def _offset(broker: Broker, partition: PartitionId, body: PositionsBody, end: int) -> int:
    if body.to == "latest":
        return end
    if body.at_ms is not None:
        return min(await broker.log.find_time(partition, body.at_ms), end)
    if body.group is not None:
        return (await broker.partitions.read_cursor(partition, body.group)).cursor
    wanted = (body.offsets or {}).get(str(partition))
    if wanted is None:
        raise BadRequestError(f"positions: no offset for partition {partition}; give it one")
    return wanted


async def advance(
    broker: Broker, partition: PartitionId, group: str, position: CursorPosition
) -> CursorResult:
    """Have a group done with all below a position of a partition that is owned here.

    That is an acknowledgement of everything below, by a reader that is not a member: stored in the
    same way, by the same writer, so that nothing of it can be overtaken by an older state of the
    group's book. Where the group is that far already, nothing changes.

    Raises:
        NotOwnerError, UnknownGroupError, StoreUnavailableError: nothing was changed.
        ConflictError: a member is bound; nothing was changed.
        RolledBackError: the position is of messages that the store has lost; nothing was changed.
        FencedError, UnavailableError: it may be stored or not; a repeat finds out.
    """
    owned = broker.find(partition)
    consumed = owned.find(group)
    # A bind that is under way is waited for, and none begins until the book is changed.
    async with consumed.lock:
        _check_unbound(consumed)
        bounds = await read_bounds(broker, owned, [position.offset])
        check_end(partition, position.offset, owned.tail.end)
        check_epoch(partition, position.offset, position.append_broker_epoch, bounds.epochs[0])
        if consumed.is_dropped:
            raise UnknownGroupError(
                f"partition {partition}: group {group} was removed; create it again"
            )
        book, began_at = consumed.book, consumed.book.cursor
        if is_moved := began_at < position.offset:
            if consumed.audit_writer is not None:
                ranges = book.undone(began_at, position.offset)
                consumed.flush_records.acked(consumed, None, ranges, "cursor")
            book.discard([(began_at, position.offset)])
            consumed.missing = ""  # what was may lie below; what does not is missed again
        cursor = book.cursor
        stored = broker.cursor_writer.store(consumed, has_changed=is_moved)
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            error = await stored
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: the store does not answer; the cursor of {group} may have "
            "moved; repeat the call to find out",
            retry_after_s=1.0,
        ) from None
    if error is not None:
        raise error
    return CursorResult(cursor, is_moved)


def _check_unbound(consumed: ConsumedPartition) -> None:
    if consumed.is_bound:
        member = consumed.holders()[0].member
        raise ConflictError(
            f"partition {consumed.partition}: member {member} of "
            f"{consumed.group} is connected and moves the cursor itself; stop the group's "
            "members, or commit to a separate group"
        )
