"""Answers of brokers, read as the types that describe them."""

from collections.abc import Collection
from typing import TypeVar

from partq.errors import InternalError, UnsupportedError
from partq.wire.calls import replies
from partq.wire.calls.answers import UnsetType

T = TypeVar("T")


def read(what: str, answer: object, kind: type[T]) -> T:
    """Return an answer as a type; `what` names it in the error.

    Raises:
        InternalError: it is something else, such as the answer of another version.
    """
    try:
        return replies.convert(answer, kind)
    except ValueError as error:
        raise unusable(what, error) from error


def given(what: str, field: str, value: T | UnsetType) -> T:
    """Return the value of a field that every answer without an error has.

    Raises:
        InternalError: it is not there; `what` names the answer.
    """
    if isinstance(value, UnsetType):
        raise unusable(what, f"it has neither {field} nor an error")
    return value


def unusable(what: str, reason: object) -> InternalError:
    """Return the error of an answer that is not what the protocol promises."""
    return InternalError(
        f"{what}: the broker's answer is unusable: {reason}; use a client of the broker's version"
    )


def unsupported(missing: Collection[str], who: str) -> UnsupportedError:
    """Return the error of a call that needs what a broker cannot do; nothing was sent.

    `missing`: features, by the names of `wire/frame.py`. `who`: the broker, at the beginning of
    a sentence.
    """
    names = ", ".join(sorted(missing))
    return UnsupportedError(
        f"{who} is of a version without {names}, which the call needs; nothing was sent: upgrade "
        "brokers first, then clients"
    )
