"""States of keys over HTTP: what is asked, and what is answered."""

from base64 import b64decode, b64encode
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from partq.errors import BadRequestError


class KeyStateQuery(msgspec.Struct):
    """Of which key the state is asked for."""

    key: str


class KeyState(msgspec.Struct):
    """The state of a key in a group."""

    state: str | None
    """In base64; null: the key has none."""


class KeyStatesQuery(msgspec.Struct):
    """Which states of a group are asked for."""

    partition: Annotated[str, msgspec.Meta(max_length=40)]
    """As `1.3`."""
    after: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")] = "0"
    """What the last answer calls `next`; 0: from the beginning."""


class StoredKeyState(msgspec.Struct):
    """A key that has a state."""

    key: str
    state: str
    """In base64."""


class KeyStatesPage(msgspec.Struct):
    """Some of the states of a group in a partition, in no order."""

    states: list[StoredKeyState]
    """A key may come twice, if states are added or removed meanwhile."""
    next: str | UnsetType = UNSET
    """What to ask for `after`; left out: these were the last."""


def encode_state(state: bytes) -> str:
    """Return a state as JSON has it."""
    return b64encode(state).decode()


def decode_state(text: str) -> bytes:
    """Return the state that JSON has.

    Raises:
        BadRequestError: it is no base64.
    """
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise BadRequestError(f"state: got what is no base64 ({error}), expected base64") from None
