"""Dead letters that brokers of other queues send here, one by one."""

import asyncio
import base64
import binascii
from functools import partial

from aiohttp import web

from partq.aio import resolve
from partq.broker.api.endpoints import PEERS, Calls, EnteredCall
from partq.broker.api.errors import json_response
from partq.core.dead_letters import PRODUCER_PREFIX
from partq.core.model import PartitionId
from partq.core.producer_series import MAX_EXACT_INTEGER, MAX_PRODUCER_CHARS
from partq.errors import (
    BadBatchError,
    BadRequestError,
    BatchTooLargeError,
    MessageTooLargeError,
    NotOwnerError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    QuotaExceededError,
    StaleGenerationError,
    UnknownPartitionError,
    WrongPartitionError,
)
from partq.excerpts import excerpt
from partq.store.records.log import AppendResult
from partq.wire.batch import MAX_BATCH_BYTES, read_header, read_slots
from partq.wire.calls.answers import DeadLetterAnswer
from partq.wire.calls.bodies import DeadLetterBody

ANSWER_TIMEOUT_S = 5.0
"""Seconds that the store may take for a dead letter; below the time-out of the sender's call."""

calls = Calls("dead_letters")


@calls.add(
    "POST",
    "/v1/queues/{queue}/dead-letters",
    roles=PEERS,
    body=DeadLetterBody,
    max_body_bytes=2 * MAX_BATCH_BYTES,
    answers={200: DeadLetterAnswer, 201: DeadLetterAnswer},
    errors=(
        BadBatchError,
        BatchTooLargeError,
        MessageTooLargeError,
        NotOwnerError,
        NotStoredError,
        OutcomeUnknownError,
        QuotaExceededError,
        StaleGenerationError,
        UnknownPartitionError,
        WrongPartitionError,
    ),
)
async def accept(call: EnteredCall, body: DeadLetterBody) -> web.Response:
    """Store a dead letter of another queue; 200: it was stored before under this number.

    Numbers of a sender grow, with gaps. It has one message on its way at a time, so a number below
    the last one is a repeat.
    """
    partition, data, slot = _checked(body)
    carried = await call.broker.carry_over.find(partition, body.producer, slot)
    if carried is not None:
        known = carried.judge(body.number, 1, "")
        if known is not None:
            return json_response(DeadLetterAnswer(True, known.offset))
    answered: asyncio.Future[AppendResult | PartqError] = asyncio.get_running_loop().create_future()
    call.broker.publish(
        partition,
        data,
        producer=body.producer,
        first=body.number,
        reply=partial(resolve, answered),
    )
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            result = await answered
    except TimeoutError:
        raise OutcomeUnknownError(
            f"partition {partition}: no answer of the store within {ANSWER_TIMEOUT_S:g} s; send "
            "the dead letter again under its number"
        ) from None
    if isinstance(result, PartqError):
        raise result
    if result.status not in {"stored", "duplicate"}:
        raise call.broker.quota.refusal(partition)
    is_new = result.status == "stored"
    return json_response(DeadLetterAnswer(not is_new, result.offset), status=201 if is_new else 200)


def _checked(body: DeadLetterBody) -> tuple[PartitionId, bytes, int]:
    """Return the partition that a dead letter is for, its batch and its slot."""
    try:
        partition = PartitionId.parse(body.partition)
        data = base64.b64decode(body.batch_base64, validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadRequestError(f"dead letter: {error}") from error
    name = body.producer
    if not name.startswith(PRODUCER_PREFIX) or len(name) > MAX_PRODUCER_CHARS:
        raise BadRequestError(
            f"dead letter: producer {excerpt(name)!r}; expected a name that begins with "
            f"{PRODUCER_PREFIX}, of at most {MAX_PRODUCER_CHARS} characters"
        )
    if not 0 <= body.number <= MAX_EXACT_INTEGER:
        raise BadRequestError(
            f"dead letter: number {body.number}; expected 0 to {MAX_EXACT_INTEGER}"
        )
    header = read_header(data)
    if header.count != 1:
        raise BadRequestError(f"dead letter: a batch of {header.count} messages; expected one")
    return partition, data, read_slots(data, header)[0]
