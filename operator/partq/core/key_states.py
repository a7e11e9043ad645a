"""States of keys: what the members of a group leave of a key with the ack of a message."""

from typing import Final

from partq.core.hashing import slot_of
from partq.errors import BadRequestError

MAX_STATE_BYTES: Final = 65_536
"""The largest state of a key."""


def check_state(call: str, key: str | None, state: bytes | None) -> None:
    """Refuse a state that is too large, or of no key.

    Args:
        call: what the error names.
        key: of the message; None: it has none.
        state: None: the key is to have none.

    Raises:
        BadRequestError: nothing was changed.
    """
    check_key(call, key)
    if state is not None and len(state) > MAX_STATE_BYTES:
        raise BadRequestError(
            f"{call}: got a state of {len(state):,} bytes, expected at most {MAX_STATE_BYTES:,}; "
            "nothing was changed: keep what is large elsewhere, and its name in the state"
        )


def check_key(call: str, key: str | None) -> None:
    """Refuse what is no key: None, one that is too long, or has no UTF-8.

    Raises:
        BadRequestError: it is not.
    """
    if key is None:
        raise BadRequestError(
            f"{call}: got a message without a key; expected one with a key, as a state belongs to "
            "the key: publish with a key, or acknowledge without a state"
        )
    slot_of(key)
