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


def check_features(needed: Collection[str], features: Collection[str], who: str) -> None:
    """See that a broker can do all that a call needs.

    Args:
        needed: by the call, by the names of `wire/frame.py`.
        features: of the broker, as `ProducerWelcome`, `Bound` or `QueueLayout` has them.
        who: the broker, at the beginning of a sentence.

    Raises:
        UnsupportedError: it cannot; nothing was sent.
    """
    missing = frozenset(needed).difference(features)
    if missing:
        raise unsupported(missing, who)


def unsupported(missing: Collection[str], who: str) -> UnsupportedError:
    """Return the error of a call that needs what a broker cannot do."""
    names = ", ".join(sorted(missing))
    return UnsupportedError(
        f"{who} is of a version without {names}, which the call needs; nothing was sent: upgrade "
        "brokers first, then clients"
    )
