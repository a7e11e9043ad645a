"""JSON that processes answer: how a broker writes errors, and how what others answer is read.

What answers may be a broker, or whatever else has that address.
"""

import math
from typing import Any

import msgspec

from partq.errors import OutOfSequenceError, PartqError, from_code

MAX_RETRY_AFTER_MS = 3_600_000
"""The longest advice to wait that is followed."""


class _Reported(msgspec.Struct):
    groups: dict[str, dict[str, Any]]


class _ReportedFlow(msgspec.Struct):
    group: str
    member: str


class _State(msgspec.Struct):
    partitions: dict[str, _Reported]
    flows: list[_ReportedFlow]


def error_body(error: PartqError) -> dict[str, object]:
    """Return what a client is told of an error."""
    body: dict[str, object] = {"code": error.code, "message": error.message}
    if error.retry_after_s is not None:
        body["retry_after_ms"] = math.ceil(error.retry_after_s * 1000)
    if isinstance(error, OutOfSequenceError) and error.due is not None:
        body["due"] = error.due
    return body


def parse(text: bytes | bytearray) -> Any:
    """Return the value of an answer; its numbers are finite, its texts can be encoded.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("JSON nested too deep") from error


def parse_object(text: bytes | bytearray) -> dict[str, Any]:
    """Return the object of an answer.

    Raises:
        ValueError: it is another value, or no JSON.
    """
    answer = parse(text)
    if not isinstance(answer, dict):
        raise ValueError(f"got JSON of type {type(answer).__name__}, expected an object")
    return answer


def read_error(answer: Any, where: str = "") -> PartqError | None:
    """Return the error that an answer, or its part, names; None: it names none.

    `where` is put before its message.

    Raises:
        ValueError: it is no object, or `error` is not as brokers write it.
    """
    if not isinstance(answer, dict):
        raise ValueError(f"got {type(answer).__name__}, expected an object")
    if "error" not in answer:
        return None
    match answer["error"]:
        case {"code": str(code), "message": str(message), **more}:
            found = from_code(
                code, where + message, retry_after_s=_advice_s(more.get("retry_after_ms"))
            )
            if isinstance(found, OutOfSequenceError) and isinstance(due := more.get("due"), int):
                found.due = due
            return found
        case _:
            raise ValueError("error: expected an object with the texts code and message")


def check_state(answer: dict[str, Any]) -> None:
    """Check that an answer has the shape of a broker's state, as far as other brokers read it.

    Raises:
        ValueError: it has not; names the field.
    """
    msgspec.convert(answer, _State)


def _advice_s(retry_after_ms: object) -> float | None:
    match retry_after_ms:
        case None:
            return None
        case int() | float():
            return max(0, min(retry_after_ms, MAX_RETRY_AFTER_MS)) / 1000
        case _:
            raise ValueError("retry_after_ms: expected a number")
