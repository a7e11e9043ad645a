"""The partition key of a message, by whichever of its names a client gives it."""

from collections.abc import Iterable

from partq.errors import KeyConflictError


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
