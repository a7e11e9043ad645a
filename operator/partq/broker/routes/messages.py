"""Publishing by plain HTTP: one message, or an array of them."""

import asyncio
import base64
import binascii
import random
from collections.abc import Sequence
from functools import partial

from aiohttp import ClientError, ClientTimeout, web

from partq.broker.auth import Role
from partq.broker.broker import Broker
from partq.broker.keys import PEERS
from partq.broker.middlewares import error_body, error_response, json_response
from partq.broker.routes.access import enter, settle
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    KeyConflictError,
    MessageTooLargeError,
    NotOwnerError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    QuotaExceededError,
    from_code,
)
from partq.store.log import AppendResult
from partq.wire import batch
from partq.wire.bodies import PublishBody, decode

MAX_BODY_MESSAGES = 10_000
ANSWER_TIMEOUT_S = 10.0
FORWARD_TIMEOUT_S = 8.0
KEY_HEADERS = ("QUEUE_PARTITION_KEY", "JMSXGroupID")
FORWARDED = "Partq-Forwarded"

routes = web.RouteTableDef()


Place = tuple[PartitionId, int]
Outcome = Place | PartqError


@routes.post("/v1/queues/{queue}/messages")
async def publish(request: web.Request) -> web.Response:
    """Store one message or an array; answer once they are stored."""
    broker, _ = enter(request, {Role.PRODUCE, Role.ADMIN})
    body = await request.read()
    is_array = body.lstrip()[:1] == b"["
    messages = decode(body, list[PublishBody]) if is_array else [decode(body, PublishBody)]
    if not 1 <= len(messages) <= MAX_BODY_MESSAGES:
        raise BatchTooLargeError(
            f"body: {len(messages)} messages; expected 1 to {MAX_BODY_MESSAGES} in a request"
        )
    outcomes = await publish_all(request, broker, messages)
    if not is_array:
        if isinstance(outcomes[0], PartqError):
            return error_response(outcomes[0])
        return json_response(_place(outcomes[0]), status=201)
    has_failed = any(isinstance(outcome, PartqError) for outcome in outcomes)
    results = [
        {"error": error_body(outcome)} if isinstance(outcome, PartqError) else _place(outcome)
        for outcome in outcomes
    ]
    return json_response({"results": results}, status=207 if has_failed else 201)


async def publish_all(
    request: web.Request, broker: Broker, messages: Sequence[PublishBody]
) -> list[Outcome]:
    """Store messages, each partition in order; after a refused one its later ones fail too."""
    outcomes: list[Outcome | None] = [None] * len(messages)
    by_partition: dict[PartitionId, list[tuple[int, batch.Message, int]]] = {}
    refused: dict[PartitionId, PartqError] = {}
    keyless = _keyless_partition(broker)
    for at, body in enumerate(messages):
        try:
            message = _message(body, request)
            slot = _slot(broker, message, body.slot, keyless)
        except PartqError as error:
            outcomes[at] = error
            continue
        partition = broker.config.layout.partition_of(slot)
        if partition in refused:
            outcomes[at] = _after(refused[partition], partition)
            continue
        size = len(batch.encode_message(message))
        if size > broker.config.max_message_bytes:
            refused[partition] = MessageTooLargeError(
                f"message {at}: {size} bytes; queue {broker.settings.queue} takes at most "
                f"{broker.config.max_message_bytes}"
            )
            outcomes[at] = refused[partition]
            continue
        by_partition.setdefault(partition, []).append((at, message, slot))
    await asyncio.gather(
        *(
            _publish_partition(request, broker, partition, rows, outcomes)
            for partition, rows in by_partition.items()
        )
    )
    return [outcome for outcome in outcomes if outcome is not None]


async def _publish_partition(
    request: web.Request,
    broker: Broker,
    partition: PartitionId,
    rows: list[tuple[int, batch.Message, int]],
    outcomes: list[Outcome | None],
) -> None:
    error: PartqError | None = None
    for chunk in _chunks(rows):
        if error is None:
            try:
                places = await _publish_chunk(request, broker, partition, chunk)
            except PartqError as failure:
                places, error = [failure] * len(chunk), failure
        else:
            places = [_after(error, partition)] * len(chunk)
        for (at, _, _), place in zip(chunk, places, strict=True):
            outcomes[at] = place
            if isinstance(place, PartqError):
                error = error or place


def _chunks(
    rows: list[tuple[int, batch.Message, int]],
) -> list[list[tuple[int, batch.Message, int]]]:
    """Cut rows so that each part fits a batch."""
    chunks: list[list[tuple[int, batch.Message, int]]] = []
    size = 0
    for row in rows:
        length = len(batch.encode_message(row[1]))
        if not chunks or size + length > batch.MAX_BATCH_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(row)
        size += length
    return chunks


async def _publish_chunk(
    request: web.Request,
    broker: Broker,
    partition: PartitionId,
    rows: list[tuple[int, batch.Message, int]],
) -> Sequence[Outcome]:
    data = batch.encode(
        [batch.encode_message(message) for _, message, _ in rows], [slot for _, _, slot in rows]
    )
    answered: asyncio.Future[AppendResult | PartqError] = asyncio.get_running_loop().create_future()
    try:
        broker.publish(
            partition,
            data,
            producer="",
            first=0,
            reply=partial(settle, answered),
        )
    except NotOwnerError:
        return await _forward(request, broker, partition, rows)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            result = await answered
    except TimeoutError:
        raise OutcomeUnknownError(
            f"partition {partition}: no answer of the store within {ANSWER_TIMEOUT_S:g} s; the "
            "messages may be stored"
        ) from None
    if isinstance(result, NotOwnerError):
        raise NotStoredError(f"partition {partition}: it moves to another broker; publish again")
    if isinstance(result, PartqError):
        raise result
    if result.status != "stored":
        raise QuotaExceededError(
            f"partition {partition}: its share of the quota is used up; consume, or publish later",
            retry_after_s=1.0,
        )
    return [(partition, result.offset + at) for at in range(len(rows))]


async def _forward(
    request: web.Request,
    broker: Broker,
    partition: PartitionId,
    rows: list[tuple[int, batch.Message, int]],
) -> Sequence[Outcome]:
    """Let the owner store the rows; once only, a second hop is refused."""
    owner = broker.claims.owner_url(partition)
    if FORWARDED in request.headers:
        raise NotOwnerError(f"partition {partition}: forwarded to {broker.id}, which is no owner")
    if owner is None or owner[0] == broker.id:
        raise NotStoredError(
            f"partition {partition}: no broker serves it at the moment; publish again",
            retry_after_s=1.0,
        )
    bodies = [
        {
            "key": message.key,
            "value_base64": base64.b64encode(message.value).decode(),
            "headers": message.headers,
            "event_time_ms": message.event_time_ms,
            "slot": slot,
        }
        for _, message, slot in rows
    ]
    url = f"{owner[1]}/v1/queues/{broker.settings.queue}/messages"
    headers = {"Authorization": request.headers["Authorization"], FORWARDED: broker.id}
    try:
        async with request.app[PEERS].post(
            url,
            json=bodies,
            headers=headers,
            timeout=ClientTimeout(total=FORWARD_TIMEOUT_S, sock_connect=2.0),
        ) as response:
            answer = await response.json()
    except (ClientError, TimeoutError, ValueError) as error:
        raise OutcomeUnknownError(
            f"partition {partition}: {owner[0]} did not answer ({error}); the messages may be "
            "stored"
        ) from error
    if "results" not in answer:
        raise _from_json(answer["error"])
    return [
        _from_json(result["error"])
        if "error" in result
        else (PartitionId.parse(result["partition"]), int(result["offset"]))
        for result in answer["results"]
    ]


def _from_json(error: dict[str, str]) -> PartqError:
    return from_code(error["code"], error["message"])


def _message(body: PublishBody, request: web.Request) -> batch.Message:
    keys = {
        k for k in (body.key, *(request.headers.get(name) for name in KEY_HEADERS)) if k is not None
    }
    if len(keys) > 1:
        raise KeyConflictError(
            f"message: two partition keys, {' and '.join(sorted(keys))[:200]}; give one"
        )
    if (body.value is None) == (body.value_base64 is None):
        raise BadRequestError("message: give either value (text) or value_base64 (bytes)")
    try:
        value = (
            base64.b64decode(body.value_base64, validate=True)
            if body.value_base64 is not None
            else (body.value or "").encode()
        )
    except binascii.Error as error:
        raise BadRequestError(f"message: value_base64: {error}") from error
    return batch.Message(keys.pop() if keys else None, value, body.headers, body.event_time_ms)


def _slot(broker: Broker, message: batch.Message, drawn: int | None, keyless: int) -> int:
    if message.key is not None:
        return slot_of(message.key)
    if drawn is not None:
        if not 0 <= drawn <= 0xFFFF:
            raise BadRequestError(f"message: slot {drawn}; expected 0 to 65535")
        return drawn
    if broker.config.keyless_policy == "Random":
        keyless = _keyless_partition(broker)
    slots = broker.config.layout.slots(broker.config.layout.partitions()[keyless])
    return random.choice(slots)  # noqa: S311  (spreads load)


def _keyless_partition(broker: Broker) -> int:
    """Choose a partition for a message without a key, one that is served if there is any."""
    partitions = broker.config.layout.partitions()
    served = [
        at
        for at, partition in enumerate(partitions)
        if partition in broker.owned or broker.claims.owner_url(partition) is not None
    ]
    if broker.config.keyless_policy == "RoundRobin":
        return broker.next_in_turn(served or range(len(partitions)))
    return random.choice(served or range(len(partitions)))  # noqa: S311  (spreads load)


def _after(error: PartqError, partition: PartitionId) -> PartqError:
    return NotStoredError(
        f"partition {partition}: an earlier message of it in this request was not stored "
        f"({error.code})"
    )


def _place(place: Place) -> dict[str, object]:
    return {"partition": str(place[0]), "offset": place[1]}
