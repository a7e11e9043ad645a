"""JSON that processes answer: how a broker writes errors, and how what others answer is read.

What answers may be a broker, or whatever else has that address.
"""

import math
from collections.abc import AsyncIterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from partq.errors import InternalError, OutOfSequenceError, PartqError, from_code
from partq.excerpts import excerpt
from partq.wire.calls import shape_errors
from partq.wire.calls.answers import ErrorDetail

MAX_MESSAGE_CHARS = 4000
"""Of an error that something else says; those of brokers are shorter."""
MAX_RETRY_AFTER_MS = 3_600_000
"""The longest advice to wait that is followed."""


class _MayRefuse(msgspec.Struct):
    error: ErrorDetail | UnsetType = UNSET


T = TypeVar("T")

plain = msgspec.to_builtins
"""Return an answer as the objects, arrays and texts that its JSON has."""


def error_detail(error: PartqError) -> ErrorDetail:
    """Return an error as a client gets it."""
    detail = ErrorDetail(error.code, error.message)
    if error.retry_after_s is not None:
        detail.retry_after_ms = math.ceil(error.retry_after_s * 1000)
    if isinstance(error, OutOfSequenceError) and error.due is not None:
        detail.due = error.due
    return detail


def to_error(detail: ErrorDetail, where: str = "") -> PartqError:
    """Return the error that a broker reports; `where` is put before its message."""
    wait_ms = detail.retry_after_ms
    retry_after_s = None if wait_ms is UNSET else max(0, min(wait_ms, MAX_RETRY_AFTER_MS)) / 1000
    error = from_code(
        detail.code, where + excerpt(detail.message, MAX_MESSAGE_CHARS), retry_after_s=retry_after_s
    )
    if isinstance(error, OutOfSequenceError) and detail.due is not UNSET:
        error.due = detail.due
    return error


async def read_whole(chunks: AsyncIterable[bytes], most_bytes: int, where: str) -> bytes:
    """Return the bytes of an answer; of one that is too long the rest is not read.

    Raises:
        InternalError: it has more than `most_bytes`; `where` says whose it is.
    """
    text = bytearray()
    async for chunk in chunks:
        text += chunk
        if len(text) > most_bytes:
            raise InternalError(
                f"{where}: the answer is too long, expected at most {most_bytes} bytes"
            )
    return bytes(text)


def parse(text: bytes | bytearray) -> object:
    """Return the value of an answer; its numbers are finite, its texts can be encoded.

    Raises:
        ValueError: it is not JSON, or nested too deep.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("JSON nested too deep") from error


def parse_object(text: bytes | bytearray) -> dict[str, object]:
    """Return the object of an answer.

    Raises:
        ValueError: it is another value, or no JSON.
    """
    answer = parse(text)
    if not isinstance(answer, dict):
        raise ValueError(f"got JSON of type {type(answer).__name__}, expected an object")
    return answer


class NotJsonError(ValueError):
    """An answer that is not JSON: something else than a broker has that address."""


def decode(text: bytes | bytearray, kind: type[T]) -> T:
    """Read an answer as the type that describes it; fields that it does not have are left out.

    Raises:
        NotJsonError: it is not JSON, or nested too deep.
        ValueError: it is something else; names the field.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(shape_errors.describe(error, shape_errors.UNKNOWN, kind)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJsonError(str(error)) from error


def convert(answer: object, kind: type[T]) -> T:
    """Return an answer as the type that describes it; fields that it does not have are left out.

    Raises:
        ValueError: it is something else; names the field.
    """
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise ValueError(shape_errors.describe(error, answer, kind)) from error


def read_error(answer: object, where: str = "") -> PartqError | None:
    """Return the error that an answer, or its part, names; None: it names none.

    `where` is put before its message.

    Raises:
        ValueError: it is not an object, or `error` is not as brokers write it.
    """
    found = convert(answer, _MayRefuse)
    return None if found.error is UNSET else to_error(found.error, where)
