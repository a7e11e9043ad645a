"""Moving a group's cursor in a partition, for an administrator or the member that has it."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal

from partq.broker.broker import Broker
from partq.broker.delivery.flow import Flow
from partq.broker.operations.entries import check_end, check_epoch, read_bounds
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.clocks.units import check_at_ms
from partq.core.group.planner import GroupType
from partq.core.model import Cause, PartitionId
from partq.core.sessions.session_book import SessionBook
from partq.errors import (
    BadRequestError,
    ConflictError,
    FencedError,
    KeptStatesError,
    PartqError,
    StaleGenerationError,
    StoreUnavailableError,
    SupersededError,
    UnavailableError,
    UnknownGroupError,
)
from partq.excerpts import excerpt
from partq.store.records.layout.seals import Seals
from partq.store.records.stored_partition import CLOSED_GATE, ResetOutcome
from partq.wire import frames
from partq.wire.calls.answers import ResetResult
from partq.wire.calls.bodies import MAX_NATURAL, ResetBody

SETTLE_TIMEOUT_S = 3.0
"""How long a reset or a seek waits until the acks that came before it are stored."""
MAX_AHEAD_MS = 60_000
"""How far in the future the time of a seek may lie, as clocks differ."""

_log = logging.getLogger(__name__)


def check(body: ResetBody, partition_count: int, *, call: str = "reset") -> None:
    """Refuse what does not say where to, or says it twice.

    Args:
        body: what was asked for.
        partition_count: how many partitions it is for.
        call: what it was asked by.

    Raises:
        BadRequestError: it is not just one place, or a time in another unit.
    """
    places = {"to": body.to, "at_ms": body.at_ms, "offset": body.offset}
    given = [name for name, value in places.items() if value is not None]
    if len(given) != 1:
        got = ", ".join(given) or "none of them"
        raise BadRequestError(f"{call}: got {got}; expected one of to, at_ms and offset")
    if body.at_ms is not None:
        check_at_ms(f"{call}: at_ms", body.at_ms, "the oldest message")
    if body.offset is not None and partition_count != 1:
        raise BadRequestError(
            f"reset: an offset for {partition_count} partitions; offsets count per partition: "
            "name the one that is meant"
        )


async def reset(broker: Broker, partition: PartitionId, group: str, body: ResetBody) -> ResetResult:
    """Move the cursor of a group in a partition that is owned here, or say what would change.

    Raises:
        NotOwnerError, UnknownGroupError, FencedError: nothing was changed.
            Also if the group was created again since the reset of all partitions began.
        ConflictError: a member is bound, and the call is not forced; or the epoch is not the one
            that the call names. Nothing was changed.
        StoreUnavailableError: it may have been moved; a repeat moves it again.
    """
    consumed = broker.find(partition).find(group)

    def judge() -> None:
        _check_birth(consumed, body)
        _check_shown_epoch(consumed, body)
        if consumed.is_bound and not body.is_forced:
            raise ConflictError(
                f"partition {partition}: member {consumed.holders()[0].member} of {group} is "
                "connected; stop the group's members, or force the reset"
            )

    wanted = await _offset(broker, partition, body)
    record = await broker.partitions.read(partition)
    view = ResetResult(
        member=consumed.member or "",
        is_bound=consumed.is_bound,
        cursor=consumed.book.cursor,
        to=max(record.trimmed, min(wanted, record.next)),
        wanted=wanted if body.to != "latest" else record.next,
        first=record.trimmed,
        end=record.next,
        epoch=consumed.epoch,
    )
    if consumed.shares is not None:
        view.members = sorted({held.member or "" for held in consumed.holders()})
    if not body.is_dry_run:
        view.to = await _carry_out(
            broker,
            consumed,
            wanted,
            judge,
            body.reset or "",
            clears_states=body.clears_states,
        )
        view.epoch = consumed.epoch
    return view


async def seek(broker: Broker, flow: Flow, frame: frames.Seek) -> int:
    """Move the cursor of a group in a partition that a flow has, and return where it is.

    The flow gets the partition under a new token before that, or soon if the store does not answer.

    Raises:
        NotOwnerError, UnknownPartitionError, UnknownGroupError: nothing was moved, as with all
            below but the last.
        BadRequestError: it names no place, or two, or a time in the future.
        RolledBackError: the log ends below the offset, or has another message below it.
        FencedError: the flow does not have the partition under this token.
        UnavailableError: a handoff is under way, or the store did not answer: the text says whether
            the cursor may have moved. A repeat moves it again.
    """
    partition = PartitionId(frame.generation, frame.partition)
    place = _place_of(frame, broker.wall_clock())
    owned = broker.find(partition)
    consumed = owned.find(flow.group)

    def judge() -> None:
        _check_holder(consumed, flow, frame)

    judge()
    if place.offset is not None:
        check_end(partition, place.offset, owned.tail.end)
        bounds = await read_bounds(broker, owned, [place.offset])
        check_epoch(partition, place.offset, frame.append_broker_epoch, bounds.epochs[0])
    wanted = await _offset(broker, partition, place)
    try:
        cursor = await _carry_out(broker, consumed, wanted, judge)
    except StoreUnavailableError as error:
        raise UnavailableError(
            f"partition {partition}: the store gave no answer to a seek, so the cursor of "
            f"{flow.group} may have moved; seek again: that moves it in any case ({error.message})",
            retry_after_s=1.0,
        ) from error
    _log.info("%s of %s: moved by a seek of member %s", partition, flow.group, flow.member)
    with suppress(StoreUnavailableError):  # then the bind is repeated
        await broker.flow_registry.bind_one(consumed, flow)
    return cursor


def _place_of(frame: frames.Seek, now: float) -> ResetBody:
    """Return where a seek goes; `now`: the time in seconds."""
    place = ResetBody()
    if frame.at_ms >= 0:
        place.at_ms = frame.at_ms
    if frame.offset >= 0:
        place.offset = frame.offset
    if frame.to == "earliest":
        place.to = "earliest"
    elif frame.to == "latest":
        place.to = "latest"
    elif frame.to:
        raise BadRequestError(f"seek: to {excerpt(frame.to)!r}; expected earliest or latest")
    latest_ms = int(now * 1000) + MAX_AHEAD_MS
    if frame.at_ms > latest_ms:
        raise BadRequestError(
            f"seek: at_ms {frame.at_ms} lies in the future; expected milliseconds since 1970, at "
            f"most {latest_ms}: for what is published from now on, seek to latest"
        )
    check(place, 1, call="seek")
    return place


def _check_holder(consumed: ConsumedPartition, flow: Flow, frame: frames.Seek) -> None:
    """Refuse a seek of a flow that does not have the partition, or is about to hand it over.

    Raises:
        FencedError, UnavailableError: nothing was moved.
    """
    if consumed.shares is not None:
        raise ConflictError(
            f"partition {consumed.partition}: got a seek in {consumed.group}, a group of type "
            f"{_shared_type(consumed)}, whose members share partitions; nothing was moved: use "
            "`partq reset`"
        )
    if (
        consumed.flow is not flow
        or consumed.broker_epoch != frame.broker_epoch
        or consumed.epoch != frame.epoch
    ):
        raise FencedError(
            f"partition {consumed.partition} of {consumed.group}: got a seek under epoch "
            f"{frame.epoch}, which is over for {flow.member}; nothing was moved: seek once the "
            "partition is assigned again"
        )
    if consumed.pause is not None:
        raise UnavailableError(
            f"partition {consumed.partition} of {consumed.group}: a handoff is under way; nothing "
            f"was moved: seek again, if {flow.member} still has it then",
            retry_after_s=1.0,
        )


async def _offset(broker: Broker, partition: PartitionId, body: ResetBody) -> int:
    if body.offset is not None:
        return body.offset
    if body.at_ms is not None:
        return await broker.log.find_time(partition, body.at_ms)
    return 0 if body.to == "earliest" else MAX_NATURAL


async def _carry_out(
    broker: Broker,
    consumed: ConsumedPartition,
    wanted: int,
    judge: Callable[[], None],
    reset_id: str = "",
    *,
    clears_states: bool = False,
) -> int:
    """Move the cursor unless `judge` raises, and return where it is.

    `reset_id`: of the reset of all partitions that this is a part of; empty: of none. A repeat of
    the part moves nothing, and leaves the partition to its member.
    `clears_states`: the states of keys are removed.
    """
    try:
        async with consumed.lock:
            if reset_id and await _is_carried_out(broker, consumed, reset_id):
                return consumed.book.cursor
            # The script moves it under this epoch only: a broker that knows an older one cannot.
            judge()
            if not reset_id and not clears_states:
                await _check_moved_states(broker, consumed, wanted)
                judge()
            if reset_id:
                await _end_replaced(broker, consumed, reset_id)
                judge()
            await _unbind(broker, consumed, judge)
            began_at = consumed.book.cursor
            consumed.is_resetting = True
            try:
                cursor = await _move(broker, consumed, wanted, reset_id, clears_states)
            finally:
                consumed.is_resetting = False
                if consumed.is_dirty and not consumed.is_dropped:
                    broker.cursor_writer.notice(consumed)
    finally:
        owned = broker.owned.get(consumed.partition)
        if owned is not None:
            broker.flow_registry.bind_later(owned)
        consumed.wake()  # sessions are read on without a flow that binds
    _log.info(
        "%s of %s reset from %d to %d",
        consumed.partition,
        consumed.group,
        began_at,
        cursor,
    )
    return cursor


async def find_kept(
    broker: Broker, group: str, partitions: Collection[PartitionId]
) -> list[PartitionId]:
    """Return those of some partitions in which a group has states of keys, rising.

    Raises:
        StoreUnavailableError: no answer.
    """
    seals = Seals(broker.store, broker.keys)
    found = await seals.read_progress((partition, group) for partition in partitions)
    return sorted(partition for (partition, _), each in found.items() if each.has_states)


async def _check_moved_states(broker: Broker, consumed: ConsumedPartition, wanted: int) -> None:
    """Refuse to repeat messages of keys whose states have moved to a partition that follows.

    Raises:
        KeptStatesError: some of them have; nothing was moved.
        StoreUnavailableError: no answer; nothing was moved.
    """
    layout = broker.config.layout
    followers = [p for p in layout.partitions() if consumed.partition in layout.predecessors(p)]
    if wanted >= consumed.book.cursor or not followers:
        return
    kept = await find_kept(broker, consumed.group, followers)
    if kept:
        raise KeptStatesError(
            f"partition {consumed.partition}, group {consumed.group}: a change of the partition "
            f"count has moved keys to {kept[0]} with their states, and older messages of these "
            "keys would be processed here again without them; nothing was moved: reset all "
            "partitions and clear the states, or wait until the change is settled"
        )


async def _is_carried_out(broker: Broker, consumed: ConsumedPartition, reset_id: str) -> bool:
    """Whether a reset of all partitions has moved the cursor here, and this is a repeat.

    The repeat may come when the gates of successors are open again: to move the cursor back then
    would repeat messages after those of the successors. The lock is held, and other brokers are
    fenced, so what the record says holds until the cursor is moved.
    """
    record = await broker.partitions.read_cursor(consumed.partition, consumed.group)
    return record.reset == reset_id


async def _end_replaced(broker: Broker, consumed: ConsumedPartition, reset_id: str) -> None:
    """End the reset that holds the gate, if another one, `reset_id`, is about to hold it.

    A late step of it, once the gate is open again, would repeat messages of a predecessor after
    those of this partition.
    """
    replaced = consumed.gate
    if consumed.is_gated and replaced not in (CLOSED_GATE, reset_id):
        await broker.layout_follower.gatekeeper.end_reset(consumed, replaced)


async def find_births(
    broker: Broker, group: str, partitions: Collection[PartitionId]
) -> dict[PartitionId, int]:
    """Return when a group began in those of some partitions that have it, and can be asked.

    Raises:
        StoreUnavailableError: no answer.
    """
    wanted = ((partition, group) for partition in partitions)
    found = await broker.partitions.births(wanted, only_reachable=True)
    return {partition: born for (partition, _), born in found.items()}


def _shared_type(consumed: ConsumedPartition) -> str:
    if isinstance(consumed.book, SessionBook):
        return GroupType.SESSION.value
    return (GroupType.SHARED if consumed.keys is None else GroupType.KEY_SHARED).value


def _check_birth(consumed: ConsumedPartition, body: ResetBody) -> None:
    """Refuse a step of a reset that began when another group had the name.

    Raises:
        UnknownGroupError: the group was removed and created again since.
    """
    if (body.births or {}).get(str(consumed.partition), consumed.born) != consumed.born:
        raise UnknownGroupError(
            f"partition {consumed.partition}: group {consumed.group} was removed and created again "
            "since the reset began; nothing of the new one was moved: reset it, if that is meant"
        )


def _check_shown_epoch(consumed: ConsumedPartition, body: ResetBody) -> None:
    """Refuse a call that names an epoch which has ended: it may be late, or a repeat.

    Raises:
        ConflictError: the epoch has ended.
    """
    seen = (body.epochs or {}).get(str(consumed.partition), consumed.epoch)
    if seen != consumed.epoch:
        raise ConflictError(
            f"partition {consumed.partition}: got epoch {seen} of group {consumed.group}, "
            f"expected {consumed.epoch}, as a member was bound, or the cursor moved, since it "
            "was shown; nothing was moved by this call: look again (is_dry_run), then repeat it"
        )


async def _unbind(broker: Broker, consumed: ConsumedPartition, judge: Callable[[], None]) -> None:
    """Take the partition from its member, and have the acks stored that were accepted before.

    Meanwhile a handoff may have begun, or the flow ended: `judge` is asked again.

    A flush under way would undo the reset. Without a flow there is no delivery and no ack; from the
    last flush to the answer nothing expires, no message is moved to the outbox, and nothing is
    flushed.
    """
    done = "nothing was moved"
    try:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            if consumed.is_bound and not consumed.is_dropped:
                # While the store takes no writes, the member keeps what it has.
                consumed.is_awaited = True
                refusal = await broker.cursor_writer.store(consumed, has_changed=True)
                if refusal is not None:
                    raise refusal
                await consumed.settle_audit()
                judge()
                done += ", but what its member had in flight is delivered again"
            consumed.end_pause()
            broker.flow_registry.unbind(consumed, Cause.RESET)
            await broker.cursor_writer.settle(consumed)
            await consumed.settle_audit()
    except TimeoutError:
        raise UnavailableError(
            f"partition {consumed.partition}: the store does not answer; {done}: repeat the call",
            retry_after_s=1.0,
        ) from None
    finally:
        consumed.is_awaited = False
    if consumed.is_dropped:
        raise FencedError(
            f"partition {consumed.partition}: not served here any more; repeat the call"
        )


async def _store(
    broker: Broker,
    consumed: ConsumedPartition,
    wanted: int,
    reset_id: str,
    clears_states: bool,
) -> ResetOutcome:
    while True:
        try:
            return await broker.partitions.reset(
                consumed.partition,
                consumed.group,
                **consumed.next_write(),
                epoch=consumed.epoch,
                offset=wanted,
                hold=reset_id,
                states=_states_of(broker, consumed, reset_id, clears_states),
            )
        except SupersededError:
            pass  # a dead letter was taken out meanwhile: nothing was moved


def _states_of(
    broker: Broker, consumed: ConsumedPartition, reset_id: str, clears: bool
) -> Literal["keep", "clear", "none"]:
    """Return what becomes of states of keys.

    A partition has states of keys whose older messages lie in its predecessors. These would be
    processed again without them, and what they leave then would replace them.
    """
    if clears:
        return "clear"
    is_later = reset_id and broker.config.layout.predecessors(consumed.partition)
    return "none" if is_later else "keep"


async def _move(
    broker: Broker,
    consumed: ConsumedPartition,
    wanted: int,
    reset_id: str,
    clears_states: bool,
) -> int:
    """Move the cursor as it is stored, and begin again from there; return where it is."""
    try:
        moved = await _store(broker, consumed, wanted, reset_id, clears_states)
    except (StaleGenerationError, KeptStatesError):
        raise  # nothing was moved
    except BaseException as error:
        # Moved or not, this memory may be wrong: the record is read again, by a new claim.
        reason = (
            error
            if isinstance(error, PartqError)
            else ConflictError("the cursor was being moved; repeat the call")
        )
        broker.ownership.lose_group(consumed, reason)
        raise
    # If it was dropped meanwhile, nobody uses this book: a broker that claims reads the stored one.
    consumed.begin_at(moved.cursor, moved.outbox)
    if clears_states:
        consumed.states.begin_at(0)
    consumed.epoch, consumed.gate = moved.epoch, moved.gate
    if consumed.is_gated:
        broker.layout_follower.gatekeeper.notice()
    return moved.cursor
