"""Publishing by plain HTTP: one message, or an array of them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from aiohttp import web

from partq.broker.api.app_keys import PEERS
from partq.broker.api.endpoints import PRODUCERS, Calls, EnteredCall
from partq.broker.api.errors import error_response, json_response
from partq.broker.broker import Broker
from partq.broker.operations.publish.message_forwarder import (
    PRODUCER,
    Forwarding,
    MessagePlace,
    Outcome,
    StorableMessage,
)
from partq.broker.operations.publish.message_writer import MessageWriter
from partq.broker.operations.publish.request_partitioner import RequestPartitioner
from partq.broker.peers.peer_client import FORWARDED
from partq.core.clocks.units import check_at_ms
from partq.core.hashing import slot_of
from partq.core.numbering.message_ids import with_id
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime, at_time
from partq.core.producer_series import check_producer_id
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    KeyConflictError,
    MessageTooLargeError,
    NotOwnerError,
    NotStoredError,
    NumberReusedError,
    OutcomeUnknownError,
    OutOfSequenceError,
    PartqError,
    QuotaExceededError,
    ResendFromError,
    StaleGenerationError,
    TransactionOverKeysError,
    TransactionWithoutKeyError,
    UnknownProducerError,
    UnsupportedError,
)
from partq.excerpts import excerpt
from partq.server.body import HOLD, read_body
from partq.wire import batch
from partq.wire.calls.answers import UNSET, Placed, PublishResult, PublishResults
from partq.wire.calls.bodies import (
    DELIVER_AFTER,
    DELIVER_AT,
    ENQUEUE_TIME,
    ID_NAME,
    PublishBody,
    PublishHeaders,
    PublishQuery,
)
from partq.wire.calls.body_codec import decode, read_texts
from partq.wire.calls.replies import error_detail
from partq.wire.partition_key import KEY_NAMES, check_key_headers, transaction_key

MAX_BODY_MESSAGES = 10_000
MAX_NUMBERED_MESSAGES = 1_000
"""Each key of them is an entry of the log for itself, and so is each message with an id."""
MAX_MESSAGES_BYTES = 2 * batch.MAX_BATCH_BYTES
MAX_ENVELOPE_BYTES = 64 * 1024
"""What the JSON of a message has beside its key, value and headers."""
SEQUENCE = "Partq-Sequence"

calls = Calls("messages")


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which numbers the messages of a request carry, so that it can be repeated safely."""

    producer: str
    """Empty: none."""
    first: int | None
    """What stands in the header; None: the number stands in the message."""

    @classmethod
    def read(cls, given: PublishHeaders, messages: Sequence[PublishBody]) -> Self:
        """Judge the headers of a request.

        Raises:
            BadRequestError: one is missing, or the request has more than one message for
                the number that stands there.
            BatchTooLargeError: there are more numbered messages than a request may have.
        """
        if given.producer is None:
            if given.sequence is not None:
                raise BadRequestError(f"{SEQUENCE} without {PRODUCER}: send both, or neither")
            return cls("", None)
        check_producer_id(given.producer, PRODUCER)
        if given.sequence is not None and len(messages) > 1:
            raise BadRequestError(
                f"{SEQUENCE} with {len(messages)} messages, expected one: give each of an array "
                "its number in its field sequence"
            )
        if len(messages) > MAX_NUMBERED_MESSAGES:
            raise BatchTooLargeError(
                f"body: {len(messages)} numbered messages; expected at most "
                f"{MAX_NUMBERED_MESSAGES} in a request"
            )
        return cls(given.producer, given.sequence)

    def of(self, body: PublishBody, key: str | None) -> int:
        """Return a message's number; -1: it has none.

        Raises:
            BadRequestError: it has none and needs one, or has one that counts for nothing.
        """
        found = {n for n in (self.first, body.sequence) if n is not None}
        if not self.producer and not found:
            return -1
        if not self.producer:
            raise BadRequestError(f"message: a sequence, and no header {PRODUCER}; send both")
        if len(found) != 1:
            raise BadRequestError(
                f"message: {len(found)} sequences of {PRODUCER} {self.producer}; expected one, in "
                f"the header {SEQUENCE} or the field sequence"
            )
        if key is None:
            raise BadRequestError(
                "message: a sequence, and no key: numbers count per key; give it one"
            )
        return found.pop()


@calls.add(
    "POST",
    "/v1/queues/{queue}/messages",
    roles=PRODUCERS,
    body=PublishBody | list[PublishBody],
    query=PublishQuery,
    headers=PublishHeaders,
    max_body_bytes=MAX_MESSAGES_BYTES,
    answers={200: Placed, 201: (Placed, PublishResults), 207: PublishResults},
    errors=(
        KeyConflictError,
        MessageTooLargeError,
        NotOwnerError,
        NotStoredError,
        NumberReusedError,
        OutcomeUnknownError,
        OutOfSequenceError,
        QuotaExceededError,
        ResendFromError,
        StaleGenerationError,
        TransactionOverKeysError,
        TransactionWithoutKeyError,
        UnknownProducerError,
        UnsupportedError,
    ),
)
async def publish(call: EnteredCall, query: PublishQuery) -> web.Response:
    """Store one message or an array; answer once they are stored.

    With `atomic` the messages of an array are a transaction: one write stores all of them.
    """

    def bound(start: bytes) -> int:
        return MAX_MESSAGES_BYTES if start[:1] == b"[" else _max_single(call.broker)

    body = await read_body(
        call.request, MAX_MESSAGES_BYTES, narrow=bound, too_large=MessageTooLargeError
    )
    is_array = body[:64].lstrip()[:1] == b"["
    messages = decode(body, list[PublishBody]) if is_array else [decode(body, PublishBody)]
    if not messages:
        raise BadRequestError(
            f"body: an array with no message; expected 1 to {MAX_BODY_MESSAGES} in a request"
        )
    if len(messages) > MAX_BODY_MESSAGES:
        raise BatchTooLargeError(
            f"body: {len(messages)} messages; expected 1 to {MAX_BODY_MESSAGES} in a request"
        )
    given = read_texts(call.request.headers, PublishHeaders, "headers", repeatable=KEY_NAMES)
    if given.message_id is not None and len(messages) > 1:
        raise BadRequestError(
            f"{ID_NAME} with {len(messages)} messages, expected one: give each of an array its id "
            "in its field message_id"
        )
    if sum(each.message_id is not None for each in messages) > MAX_NUMBERED_MESSAGES:
        raise BatchTooLargeError(
            f"body: more than {MAX_NUMBERED_MESSAGES} messages with an id; send them in several "
            "requests"
        )
    numbers = Numbers.read(given, messages)
    store = publish_whole if query.atomic == "true" else publish_all
    outcomes = await store(
        call.request,
        call.broker,
        messages,
        numbers,
        due=_due(given),
        ttl_ms=given.ttl_ms or 0,
        age_ms=given.age_ms or 0,
    )
    if not is_array:
        first = outcomes[0]
        if isinstance(first, PartqError):
            return error_response(first)
        return json_response(_place(first), status=200 if first.is_duplicate else 201)
    has_failed = any(isinstance(outcome, PartqError) for outcome in outcomes)
    results = [
        PublishResult(error=error_detail(outcome))
        if isinstance(outcome, PartqError)
        else _result(outcome)
        for outcome in outcomes
    ]
    return json_response(PublishResults(results), status=207 if has_failed else 201)


async def publish_all(
    request: web.Request,
    broker: Broker,
    messages: Sequence[PublishBody],
    numbers: Numbers,
    *,
    ttl_ms: int,
    age_ms: int = 0,
    due: DueTime = AT_ONCE,
) -> list[Outcome]:
    """Store messages, each series in order; after a refused one its later ones fail too.

    One without a key continues to another partition while the chosen one is unavailable.
    """
    placing = RequestPartitioner(broker, request)
    storing = MessageWriter(
        *(broker, _forwarding(request), numbers.producer, len(messages)),
        ttl_ms=ttl_ms,
        age_ms=age_ms,
        due=due,
    )
    for at, body in enumerate(messages):
        try:
            key = placing.key(body)
            message_id = placing.message_id(body)
            number = numbers.of(body, key)
            fixed = placing.fixed_slot(body, key, message_id)
        except PartqError as error:
            storing.refuse(at, error)
            continue
        slot = placing.draw() if fixed is None else fixed
        partition = broker.config.layout.partition_of(slot)
        series = storing.series(partition, key)
        if fixed is not None and storing.is_refused(at, series):
            continue
        try:
            message = _message(body, key, message_id)
            _check_size(message, at, broker)
        except PartqError as error:
            if fixed is None:
                storing.refuse(at, error)
            else:
                storing.refuse_series(at, series, error)
            continue
        storing.add(
            StorableMessage(
                at, message, slot, number, may_move=fixed is None, message_id=message_id or ""
            ),
            partition,
        )
    return await storing.run(placing)


async def publish_whole(
    request: web.Request,
    broker: Broker,
    messages: Sequence[PublishBody],
    numbers: Numbers,
    *,
    ttl_ms: int,
    age_ms: int = 0,
    due: DueTime = AT_ONCE,
) -> list[Outcome]:
    """Store messages of one key by one write, and return where each of them is.

    Raises:
        PartqError: none of them is stored; or the outcome of all is unknown.
    """
    placing = RequestPartitioner(broker, request)
    storing = MessageWriter(
        broker,
        _forwarding(request, is_whole=True),
        numbers.producer,
        len(messages),
        ttl_ms=ttl_ms,
        age_ms=age_ms,
        due=due,
        is_whole=True,
    )
    known = of_all = placing.key(PublishBody())
    size_bytes = batch.HEADER_SIZE
    first = -1
    for at, body in enumerate(messages):
        key = known = transaction_key(known, of_all if body.key is None else body.key, at)
        number = numbers.of(body, key)
        first = number if at == 0 else first
        if number >= 0 and number != first + at:
            raise BadRequestError(
                f"message {at}: sequence {number}, expected {first + at}: the numbers of a "
                "transaction follow each other"
            )
        if placing.message_id(body) is not None:
            raise BadRequestError(
                f"message {at}: it has an id, and messages of a transaction have none: leave it "
                "out; numbers make a transaction known"
            )
        message = _message(body, key, None)
        _check_size(message, at, broker)
        size_bytes += batch.MESSAGE_SIZE + len(batch.encode_message(message))
        if size_bytes > batch.MAX_BATCH_BYTES:
            raise BatchTooLargeError(
                f"transaction: {size_bytes} bytes with message {at}; expected at most "
                f"{batch.MAX_BATCH_BYTES}: send fewer or smaller messages"
            )
        slot = slot_of(key)
        partition = broker.config.layout.partition_of(slot)
        storing.add(StorableMessage(at, message, slot, number), partition)
    outcomes = await storing.run(placing)
    for outcome in outcomes:
        if isinstance(outcome, PartqError):
            raise outcome
    return outcomes


def _forwarding(request: web.Request, *, is_whole: bool = False) -> Forwarding:
    return Forwarding(
        request.app[PEERS],
        request.headers["Authorization"],
        request[HOLD],
        is_forwarded=FORWARDED in request.headers,
        is_whole=is_whole,
    )


def _message(body: PublishBody, key: str | None, message_id: str | None) -> batch.Message:
    if (body.value is None) == (body.value_base64 is None):
        raise BadRequestError("message: give either value (text) or value_base64 (bytes)")
    if not 0 <= body.event_time_ms <= batch.MAX_EVENT_TIME_MS:
        raise BadRequestError(
            f"message: event_time_ms: got {body.event_time_ms}, expected 0 to "
            f"{batch.MAX_EVENT_TIME_MS}; send milliseconds since 1970"
        )
    check_key_headers(key, body.headers or {})
    if body.value_base64 is None:
        value = (body.value or "").encode()  # half of a character was refused with the body
    else:
        try:
            value = base64.b64decode(body.value_base64, validate=True)
        except ValueError as error:
            raise BadRequestError(
                f"message: value_base64: got {excerpt(body.value_base64)!r}, expected base64 with "
                "its padding"
            ) from error
    headers = body.headers if message_id is None else with_id(body.headers, message_id)
    return batch.Message(key, value, headers, body.event_time_ms)


def _due(given: PublishHeaders) -> DueTime:
    """Return when messages are to be stored in the log, by the headers of their request.

    Raises:
        BadRequestError: more than one says so, or it is no time, or one in another unit.
    """
    at_ms, after_ms, text = (
        *(given.deliver_at_ms, given.deliver_after_ms),
        given.scheduled_enqueue_time,
    )
    if sum(each is not None for each in (at_ms, after_ms, text)) > 1:
        raise BadRequestError(
            f"headers: got more than one of {DELIVER_AT}, {DELIVER_AFTER} and {ENQUEUE_TIME}, "
            "expected one at most"
        )
    if text is not None:
        return _read_time(text)
    if at_ms is None:
        return DueTime(after_ms=after_ms or 0)
    check_at_ms(f"headers: {DELIVER_AT}", at_ms, "at once")
    return at_time(at_ms)


def _read_time(text: str) -> DueTime:
    """Return the due time that stands in a text of RFC 3339; without an offset it is UTC's.

    Raises:
        BadRequestError: it is no time.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequestError(
            f"{ENQUEUE_TIME}: got {excerpt(text)}, expected a time such as 2026-12-01T08:00:00Z"
        ) from None
    return at_time(round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))


def _check_size(message: batch.Message, at: int, broker: Broker) -> None:
    size = len(batch.encode_message(message))
    if size > broker.config.max_message_bytes:
        queue = f"queue {broker.settings.queue}"
        most = broker.config.max_message_bytes
        raise MessageTooLargeError.of(size, most, what=f"message {at}", queue=queue)


def _max_single(broker: Broker) -> int:
    """Return how long the JSON of one message may be: each of its bytes may take six there."""
    return 6 * broker.config.max_message_bytes + MAX_ENVELOPE_BYTES


def _place(place: MessagePlace) -> Placed:
    return Placed(
        *(str(place.partition), place.offset, place.is_duplicate),
        scheduled=place.scheduled or UNSET,
        due_ms=UNSET if place.due_ms < 0 else place.due_ms,
    )


def _result(place: MessagePlace) -> PublishResult:
    result = PublishResult(str(place.partition), place.offset)
    if place.is_duplicate:
        result.is_duplicate = True
    if place.scheduled:
        result.scheduled = place.scheduled
    if place.due_ms >= 0:
        result.due_ms = place.due_ms
    return result
