"""Acks, nacks and signs of progress of plain HTTP: one partition's part of a call."""

import asyncio
from functools import partial
from itertools import groupby

from partq.aio import resolve
from partq.broker.broker import Broker
from partq.broker.delivery.flow import Flow
from partq.core.model import PartitionId
from partq.errors import BadRequestError, OutcomeUnknownError, PartqError, UnavailableError
from partq.wire import frames
from partq.wire.calls.answers import ItemResult, NackResult
from partq.wire.calls.bodies import AckItem, NackItem
from partq.wire.calls.replies import error_detail
from partq.wire.key_states import decode_state
from partq.wire.receipt import PulledReceipt

ANSWER_TIMEOUT_S = 10.0
"""Seconds until the store has to have an ack or a nack; after that its outcome is unknown."""


def partition_of(item: AckItem | NackItem) -> PartitionId:
    """Return the partition that an entry names.

    Raises:
        BadRequestError: it is no partition.
    """
    try:
        return PartitionId.parse(item.partition)
    except ValueError as error:
        raise BadRequestError(str(error)) from error


def ack_outcome(error: PartqError | None) -> ItemResult:
    """Return what one ack of a call came to."""
    return ItemResult() if error is None else ItemResult(error_detail(error))


async def ack_one(broker: Broker, flow: Flow, item: AckItem) -> PartqError | None:
    """Count the acks of one partition; return once they are stored, or why they do not count."""
    try:
        partition = partition_of(item)
        state = decode_state(item.state) if isinstance(item.state, str) else None
    except BadRequestError as error:
        return error
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await broker.ack_handler.states.wait_for_room()
    except TimeoutError:
        return UnavailableError(
            f"partition {partition}: so many states of keys wait to be stored that there was no "
            f"room within {ANSWER_TIMEOUT_S:g} s; nothing was acknowledged: ack again",
            retry_after_s=1.0,
        )
    answered = _future()
    broker.ack_handler.ack(
        flow,
        frames.Ack(
            0,
            *partition,
            item.broker_epoch,
            item.epoch,
            item.delivery,
            -1 if item.upto is None else item.upto,
            _ranges(item.offsets),
            item.key if isinstance(item.key, str) else None,
            state,
        ),
        partial(resolve, answered),
    )
    return await _stored("ack", partition, answered)


async def nack_one(broker: Broker, flow: Flow, item: NackItem) -> NackResult:
    """Take back messages of one partition; return once their counts are stored."""
    try:
        partition = partition_of(item)
    except BadRequestError as error:
        return NackResult(error_detail(error))
    answered = _future()
    frame = frames.Nack(
        0,
        *partition,
        item.broker_epoch,
        item.epoch,
        item.delivery,
        _ranges(item.offsets),
        -1 if item.delay_ms is None else item.delay_ms,
        item.reason,
        makes_dead_letters=item.makes_dead_letters,
        description=item.description,
    )
    # What was found says from where on all is redelivered, so it is looked for before.
    is_unread = item.reason == frames.UNDECODABLE
    found = await broker.ack_handler.find_unreadable(flow, frame) if is_unread else None
    rewound_from = broker.ack_handler.nack(flow, frame, partial(resolve, answered), found)
    refusal = await _stored("nack", partition, answered)
    result = NackResult() if refusal is None else NackResult(error_detail(refusal))
    if rewound_from is not None:
        result.rewound_from = rewound_from
    return result


async def extend_one(
    broker: Broker, flow: Flow, receipt: PulledReceipt, offsets: list[int]
) -> PartqError | None:
    """Let the time for the acks of a delivery start again; return why it does not, or None."""
    answered = _future()
    frame = frames.InProgress(
        0,
        *receipt.partition,
        receipt.broker_epoch,
        receipt.epoch,
        receipt.delivery,
        _ranges(offsets),
    )
    broker.ack_handler.extend(flow, frame, partial(resolve, answered))
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await answered
    except TimeoutError:
        return OutcomeUnknownError(
            f"partition {receipt.partition}: its state was not stored within "
            f"{ANSWER_TIMEOUT_S:g} s, so nobody knows whether the messages count as in progress; "
            "say so again"
        )


def _future() -> asyncio.Future[PartqError | None]:
    return asyncio.get_running_loop().create_future()


async def _stored(
    what: str, partition: PartitionId, answered: asyncio.Future[PartqError | None]
) -> PartqError | None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await answered
    except TimeoutError:
        return OutcomeUnknownError(
            f"partition {partition}: the {what} is counted but not stored yet; {what} again"
        )


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    """Join offsets to half-open ranges."""
    ranges: list[tuple[int, int]] = []
    for _, run in groupby(enumerate(sorted(set(offsets))), key=lambda pair: pair[1] - pair[0]):
        members = [offset for _, offset in run]
        ranges.append((members[0], members[-1] + 1))
    return ranges
