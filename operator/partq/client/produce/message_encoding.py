"""Checking and encoding what an application publishes.

A message that a consumer could not read must not get into a log, where it would stop a partition.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from partq.client.hooks.serializers import ValueSerializer, serialized
from partq.core.hashing import slot_of
from partq.errors import BadRequestError, MessageTooLargeError
from partq.excerpts import excerpt
from partq.wire.batch import MAX_EVENT_TIME_MS, Message, encode_messages
from partq.wire.partition_key import check_key_headers

_values = attrgetter("value")
_headers = attrgetter("headers")
_event_times = attrgetter("event_time_ms")


def listed(messages: Iterable[Message]) -> Sequence[Message]:
    """Return messages as a sequence, which can be read more than once.

    Raises:
        TypeError: what was given is no iterable of messages; says what it is.
    """
    if not isinstance(messages, list | tuple):
        if isinstance(messages, str | bytes | bytearray | dict) or not isinstance(
            messages, Iterable
        ):
            raise TypeError(
                f"send_many: got {type(messages).__name__}, expected an iterable of partq.Message"
            )
        messages = list(messages)
    if not set(map(type, messages)) <= {Message}:
        for index, message in enumerate(messages):
            if not isinstance(message, Message):
                raise TypeError(
                    f"send_many: element {index} is {type(message).__name__}, expected "
                    "partq.Message(key, value)"
                )
    return messages


def with_bytes(message: Message, serialize: ValueSerializer | None) -> Message:
    """Return a message with the bytes of its value; None: it has them.

    Raises:
        BadRequestError: the value has none.
    """
    if serialize is None:
        return message
    data = serialized(serialize, message.value)
    return Message(message.key, data, message.headers, message.event_time_ms)


def all_with_bytes(
    messages: Sequence[Message], serialize: ValueSerializer | None
) -> Sequence[Message]:
    """Return messages with the bytes of their values; None: they have them.

    Raises:
        BadRequestError: a value has none; says of which element.
    """
    if serialize is None:
        return messages
    made = []
    for index, each in enumerate(messages):
        try:
            made.append(with_bytes(each, serialize))
        except BadRequestError as error:
            raise BadRequestError(f"element {index}: {error.message}") from error.__cause__
    return made


def encode_checked(messages: Sequence[Message], max_message_bytes: int) -> list[bytes]:
    """Return the bytes of each message; the hashing code checks keys.

    Raises:
        BadRequestError: a value that is not bytes, headers that are not text, an event time that
            is out of range, a header that names another key, and the like.
        MessageTooLargeError: a message is above `max_message_bytes` when encoded.
    """
    try:
        if not set(map(type, map(_values, messages))) <= {bytes}:
            _complain("value", "bytes", _values, bytes, messages)
        if not set(map(type, map(_event_times, messages))) <= {int}:
            _complain("event_time_ms", "int", _event_times, int, messages)
        times = set(map(_event_times, messages))
        if times and not 0 <= min(times) <= max(times) <= MAX_EVENT_TIME_MS:
            wrong = min(times) if min(times) < 0 else max(times)
            raise BadRequestError(
                f"event_time_ms: got {wrong}, expected 0 to {MAX_EVENT_TIME_MS}; give milliseconds "
                "since 1970"
            )
    except AttributeError as error:
        raise BadRequestError(f"expected partq.Message objects: {error}") from error
    for message in filter(_headers, messages):
        _check_headers(message.key, message.headers)
    try:
        encoded = encode_messages(messages)
    except UnicodeEncodeError as error:
        for message in messages:
            _check_characters(message)
        raise BadRequestError(f"a message cannot be encoded: {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequestError(f"a message cannot be encoded: {error}") from error
    largest = max(map(len, encoded), default=0)
    if largest > max_message_bytes:
        raise MessageTooLargeError.of(largest, max_message_bytes)
    return encoded


def first_wrong(
    error: BadRequestError, messages: Sequence[Message], check: Callable[[Message], object]
) -> BadRequestError:
    """Return the error of the first message that `check` refuses, with its place; else `error`."""
    for index, message in enumerate(messages):
        try:
            check(message)
        except BadRequestError as own:
            return type(own)(f"element {index}: {own.message}")
    return error


def _check_headers(key: str | None, headers: dict[str, str] | None) -> None:
    if type(headers) is not dict or not all(
        isinstance(text, str) for item in headers.items() for text in item
    ):
        raise BadRequestError(
            f"headers {excerpt(repr(headers))}: expected a dict of text to text, or None"
        )
    check_key_headers(key, headers)


def _check_characters(message: Message) -> None:
    """Refuse a text that UTF-8 cannot hold, by the name of its field."""
    if message.key is not None:
        slot_of(message.key)
    for name, text in (message.headers or {}).items():
        for place, characters in (
            (f"headers: the name {excerpt(name)!r}", name),
            (f"headers: {excerpt(name)} {excerpt(text)!r}", text),
        ):
            try:
                characters.encode()
            except UnicodeEncodeError as error:
                raise BadRequestError(
                    f"{place}: got a lone surrogate at character {error.start}, expected text that "
                    "UTF-8 can hold"
                ) from error


def _complain(
    name: str,
    expected: str,
    values: "attrgetter[object]",
    kind: type,
    messages: Sequence[Message],
) -> None:
    wrong = next(value for value in map(values, messages) if type(value) is not kind)
    hint = ""
    if kind is bytes:
        hint = ": a text by .encode(), other values by Producer(value_serializer=)"
    raise BadRequestError(f"{name}: got {type(wrong).__name__}, expected {expected}{hint}")
