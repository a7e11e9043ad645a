"""The names under which a partition key may come, and the one key that they make of a message."""

from collections.abc import Iterable, Mapping

from partq.errors import (
    BadRequestError,
    KeyConflictError,
    TransactionOverKeysError,
    TransactionWithoutKeyError,
)
from partq.excerpts import excerpt

KEY_NAMES = ("SessionId", "PartitionKey", "QUEUE_PARTITION_KEY", "JMSXGroupID")
"""What the partition key is called elsewhere."""

_NAMES_IN_LOWER_CASE = frozenset(map(str.lower, KEY_NAMES))


def partition_key(given: Iterable[tuple[str, str]]) -> str | None:
    """Return the key that was given under one or more names; None: under none.

    `given`: names and values. The empty string is a key.

    Raises:
        KeyConflictError: two of the values differ.
    """
    key: tuple[str, str] | None = None
    for name, value in given:
        if key is None:
            key = name, value
        elif value != key[1]:
            raise KeyConflictError(
                f"message: {key[0]} is {key[1]:.100} and {name} is {value:.100}; expected one key: "
                "leave one of them out, or give both the same value"
            )
    return None if key is None else key[1]


def key_of_arguments(key: str | None, session_id: str | None, other_key: str | None) -> str | None:
    """Return the key of a message that a Python program sends, whichever argument has it.

    `other_key`: of the argument `partition_key`.

    Raises:
        BadRequestError: a value is not a text.
        KeyConflictError: two of them differ; names both.
    """
    given = [
        (name, value)
        for name, value in (
            ("session_id", session_id),
            ("partition_key", other_key),
            ("key", key),
        )
        if value is not None
    ]
    for name, value in given:
        if not isinstance(value, str):
            raise BadRequestError(f"{name}: got {type(value).__name__}, expected str or None")
    return partition_key(given)


def transaction_key(known: str | None, key: str | None, number: int) -> str:
    """Return the one key of a transaction's messages.

    Args:
        known: the key of the transaction, or of the messages before this one; None: no key yet.
        key: of the message, under whichever name it came.
        number: of the message in the transaction, from 0.

    Raises:
        TransactionWithoutKeyError: the message has no key.
        TransactionOverKeysError: the message has another key.
    """
    if key is None:
        raise TransactionWithoutKeyError(
            f"transaction: message {number} has no key, expected the one key of all its messages: "
            "one partition stores them together; give it as key, session or partition key"
        )
    if known is not None and key != known:
        raise TransactionOverKeysError(
            f"transaction: message {number} has the key {excerpt(key)!r}, expected "
            f"{excerpt(known)!r} as the others: use one transaction for each key"
        )
    return key


def check_key_headers(key: str | None, headers: Mapping[str, str]) -> None:
    """Refuse a header of a message that names another key than the message has.

    Other systems read the key from such a header, in any case of its letters. Here a header sets no
    key: the messages of such a sender would be in any partition, without order. A header that
    repeats the key of the message is fine, so what was stored can be sent on with its headers.

    Raises:
        BadRequestError: the message has no key.
        KeyConflictError: the message has another key.
    """
    if _NAMES_IN_LOWER_CASE.isdisjoint(map(str.lower, headers)):
        return
    for name, value in headers.items():
        if name.lower() not in _NAMES_IN_LOWER_CASE or value == key:
            continue
        if key is None:
            raise BadRequestError(
                f"headers: {name} is {excerpt(value)}, and the message has no key: a header of a "
                "message sets none; give the value as its key, or rename the header"
            )
        raise KeyConflictError(
            f"headers: {name} is {excerpt(value)} and key is {excerpt(key)}; expected one key: "
            "rename the header, or give both the same value"
        )
