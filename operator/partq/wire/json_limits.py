"""How much a JSON body may hold: a few bytes of it can become hundreds in memory."""

from typing import Final

from partq.errors import BatchTooLargeError

MAX_PARTS: Final = 500_000
"""Objects, arrays, fields and items of one body: 10,000 messages with some twenty headers each."""
_SIGNS: Final = (b"{", b"[", b":", b",")
"""Each begins a part, or ends the one before it."""


def check_parts(body: bytes) -> None:
    """Refuse a body of too many parts, before it is decoded; signs inside of texts do not count.

    Raises:
        BatchTooLargeError: it has more than `MAX_PARTS`.
    """
    if _count_signs(body) <= MAX_PARTS:
        return
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') <= 2 * MAX_PARTS:  # each text belongs to a part
        outside = b"".join(plain.split(b'"')[::2])
        if _count_signs(outside) <= MAX_PARTS:
            return
    raise BatchTooLargeError(
        f"body: more than {MAX_PARTS} objects, fields and items; expected at most as many: send "
        "less at a time"
    )


def _count_signs(text: bytes) -> int:
    return sum(map(text.count, _SIGNS))
