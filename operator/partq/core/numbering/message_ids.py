"""Ids of messages: what is one, the header that has it, and its digest, by which it is known."""

import hashlib

from partq.errors import BadRequestError
from partq.excerpts import excerpt

MAX_ID_CHARS = 128
ID_HEADER = "message-id"
"""The header of a message in which consumers read its id."""
DIGEST_BYTES = 16


def check_message_id(message_id: str) -> None:
    """See that a text may be the id of a message.

    Raises:
        BadRequestError: it is not a text, too short or too long, or has no UTF-8.
    """
    given: object = message_id
    if not isinstance(given, str):
        raise BadRequestError(f"message_id: got {type(given).__name__}, expected str or None")
    if not 1 <= len(message_id) <= MAX_ID_CHARS:
        raise BadRequestError(
            f"message_id {excerpt(message_id)!r}: got {len(message_id)} characters, expected 1 to "
            f"{MAX_ID_CHARS}; hash a longer one"
        )
    try:
        message_id.encode()
    except UnicodeEncodeError as error:
        raise BadRequestError(
            f"message_id {excerpt(message_id)!r}: got a lone surrogate at character {error.start}, "
            "expected text that UTF-8 can hold"
        ) from error


def id_digest(message_id: str) -> str:
    """Return the digest of an id, 32 hexadecimal digits; never changes once released.

    Two ids of one digest, of which the second would be dropped, have a chance of 2**-64 at four
    billion ids.
    """
    return hashlib.blake2b(message_id.encode(), digest_size=DIGEST_BYTES).hexdigest()


def is_digest(text: str) -> bool:
    """Whether a text is what `id_digest` returns."""
    return len(text) == 2 * DIGEST_BYTES and all(each in "0123456789abcdef" for each in text)


def with_id(headers: dict[str, str] | None, message_id: str) -> dict[str, str]:
    """Return the headers of a message with the one that has its id.

    Raises:
        BadRequestError: it may not be an id, or the headers have another one.
    """
    check_message_id(message_id)
    known = (headers or {}).get(ID_HEADER, message_id)
    if known != message_id:
        raise BadRequestError(
            f"headers: {ID_HEADER} is {excerpt(known)} and message_id is {excerpt(message_id)}; "
            "expected one id: leave one of them out, or give both the same value"
        )
    return {**(headers or {}), ID_HEADER: message_id}
