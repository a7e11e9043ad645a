"""Publishing by plain HTTP: one message, or an array of them."""

import asyncio
import base64
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from aiohttp import ClientConnectorError, ClientError, ClientTimeout, web

from partq.broker.broker import Broker
from partq.broker.calls import PRODUCERS, Calls
from partq.broker.keys import PEERS, TLS
from partq.broker.middlewares import error_body, error_response, json_response
from partq.broker.routes.access import enter, settle
from partq.core.hashing import slot_of
from partq.core.model import SLOT_COUNT, PartitionId
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
from partq.wire.answers import Placed, PublishResults
from partq.wire.bodies import PublishBody, decode

MAX_BODY_MESSAGES = 10_000
MAX_TIME_MS = 2**53
"""Far beyond any time, and within what every language's JSON can hold."""
ANSWER_TIMEOUT_S = 10.0
FORWARD_TIMEOUT_S = 8.0
KEY_HEADERS = ("QUEUE_PARTITION_KEY", "JMSXGroupID")
FORWARDED = "Partq-Forwarded"

calls = Calls()


Place = tuple[PartitionId, int]
Outcome = Place | PartqError
Row = tuple[int, batch.Message, int]
"""A message, its place in the request and its slot."""


@calls.add(
    "POST",
    "/v1/queues/{queue}/messages",
    roles=PRODUCERS,
    body=PublishBody | list[PublishBody],
    answers={201: (Placed, PublishResults), 207: PublishResults},
    errors=(
        KeyConflictError,
        MessageTooLargeError,
        NotOwnerError,
        NotStoredError,
        OutcomeUnknownError,
        QuotaExceededError,
    ),
)
async def publish(request: web.Request) -> web.Response:
    """Store one message or an array; answer once they are stored."""
    broker, _ = enter(request)
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
    by_partition: dict[PartitionId, list[Row]] = {}
    refused: dict[PartitionId, PartqError] = {}
    keyless = Keyless(broker)
    for at, body in enumerate(messages):
        try:
            key = _key(body, request)
            slot = _slot(body, key, keyless)
        except PartqError as error:
            outcomes[at] = error
            continue
        partition = broker.config.layout.partition_of(slot)
        if partition in refused:
            outcomes[at] = _after(refused[partition], partition)
            continue
        try:
            message = _message(body, key)
            _check_size(message, at, broker)
        except PartqError as error:
            outcomes[at] = refused[partition] = error
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
    rows: list[Row],
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
    rows: list[Row],
) -> list[list[Row]]:
    """Cut rows so that each part fits a batch."""
    chunks: list[list[Row]] = []
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
    rows: list[Row],
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
    rows: list[Row],
) -> Sequence[Outcome]:
    """Let the owner store the rows; once only, a second hop is refused."""
    owner = broker.claims.owner_url(partition)
    if FORWARDED in request.headers:
        raise NotOwnerError(f"partition {partition}: forwarded to {broker.id}, which is no owner")
    if owner is None:
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
    tls = request.app.get(TLS)
    try:
        async with request.app[PEERS].post(
            url,
            json=bodies,
            headers=headers,
            ssl=tls.trusted if tls is not None else True,
            timeout=ClientTimeout(total=FORWARD_TIMEOUT_S, sock_connect=2.0),
        ) as response:
            answer = await response.json()
    except ClientConnectorError as error:
        raise NotStoredError(
            f"partition {partition}: {owner[0]} cannot be reached ({error}); publish again",
            retry_after_s=1.0,
        ) from error
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


def _from_json(error: dict[str, Any]) -> PartqError:
    retry_after_ms = error.get("retry_after_ms")
    retry_after_s = retry_after_ms / 1000 if retry_after_ms else None
    return from_code(error["code"], error["message"], retry_after_s=retry_after_s)


def _key(body: PublishBody, request: web.Request) -> str | None:
    """Return a message's partition key, wherever it stands; None: it has none."""
    keys = {
        k for k in (body.key, *(request.headers.get(name) for name in KEY_HEADERS)) if k is not None
    }
    if len(keys) > 1:
        raise KeyConflictError(
            f"message: two partition keys, {' and '.join(sorted(keys))[:200]}; give one"
        )
    return keys.pop() if keys else None


def _slot(body: PublishBody, key: str | None, keyless: "Keyless") -> int:
    if key is not None:
        return slot_of(key)
    if body.slot is None:
        return keyless.draw()
    if not 0 <= body.slot < SLOT_COUNT:
        raise BadRequestError(f"message: slot {body.slot}; expected 0 to {SLOT_COUNT - 1}")
    return body.slot


def _message(body: PublishBody, key: str | None) -> batch.Message:
    if (body.value is None) == (body.value_base64 is None):
        raise BadRequestError("message: give either value (text) or value_base64 (bytes)")
    if not 0 <= body.event_time_ms <= MAX_TIME_MS:
        raise BadRequestError(
            f"message: event_time_ms {body.event_time_ms}; expected 0 to {MAX_TIME_MS}"
        )
    try:
        value = (
            base64.b64decode(body.value_base64, validate=True)
            if body.value_base64 is not None
            else (body.value or "").encode()
        )
    except ValueError as error:
        raise BadRequestError(f"message: value: {error}") from error
    return batch.Message(key, value, body.headers, body.event_time_ms)


def _check_size(message: batch.Message, at: int, broker: Broker) -> None:
    size = len(batch.encode_message(message))
    if size > broker.config.max_message_bytes:
        raise MessageTooLargeError(
            f"message {at}: {size} bytes; queue {broker.settings.queue} takes at most "
            f"{broker.config.max_message_bytes}"
        )


class Keyless:
    """Draws slots for the messages of one request that have no key, by the queue's policy."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._choices: Sequence[int] = ()

    def draw(self) -> int:
        """Return a slot of a partition that is served, if any is."""
        config = self._broker.config
        partitions = config.layout.partitions()
        if not self._choices:
            served = self._broker.claims.served()
            self._choices = [at for at, partition in enumerate(partitions) if partition in served]
            self._choices = self._choices or range(len(partitions))
        if config.keyless_policy == "RoundRobin":
            chosen = self._broker.next_in_turn(self._choices)
        else:
            chosen = random.choice(self._choices)  # noqa: S311  (spreads load)
        return random.choice(config.layout.slots(partitions[chosen]))  # noqa: S311  (the same)


def _after(error: PartqError, partition: PartitionId) -> PartqError:
    return NotStoredError(
        f"partition {partition}: an earlier message of it in this request was not stored "
        f"({error.code})"
    )


def _place(place: Place) -> dict[str, object]:
    return {"partition": str(place[0]), "offset": place[1]}
