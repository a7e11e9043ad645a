"""Answers of brokers, read as the types that describe them."""

from typing import TypeVar

from partq.errors import InternalError
from partq.wire.calls import replies

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


def unusable(what: str, reason: object) -> InternalError:
    """Return the error of an answer that is not what the protocol promises."""
    return InternalError(
        f"{what}: the broker's answer is unusable: {reason}; use a client of the broker's version"
    )
