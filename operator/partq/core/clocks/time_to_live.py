"""How long the messages of a batch may wait to be delivered, as their producer says.

A batch has one time to live or none, so a broker judges it as a whole and without opening it. The
queue may have one for all its messages; the shorter holds.
"""

from partq.errors import BadRequestError
from partq.excerpts import excerpt

MAX_TTL_S = 315_360_000
"""Ten years."""
MAX_TTL_MS = MAX_TTL_S * 1000


def to_ttl_ms(ttl_s: float | None) -> int:
    """Return a time to live in whole milliseconds, rounded; None, so none: 0.

    Raises:
        BadRequestError: no number, or not from 0.001 to `MAX_TTL_S`.
    """
    if ttl_s is None:
        return 0
    if type(ttl_s) not in {int, float} or not 0.001 <= ttl_s <= MAX_TTL_S:
        raise BadRequestError(
            f"ttl_s {excerpt(repr(ttl_s))}; expected a number of seconds from 0.001 to "
            f"{MAX_TTL_S}, or None for "
            "no time to live"
        )
    return round(ttl_s * 1000)


def check_ttl_ms(ttl_ms: int) -> None:
    """Check what a client says.

    Raises:
        BadRequestError: not from 0 (none) to `MAX_TTL_MS`.
    """
    if not 0 <= ttl_ms <= MAX_TTL_MS:
        raise BadRequestError(
            f"publish: ttl_ms {ttl_ms}; expected 1 to {MAX_TTL_MS}, or 0 for no time to live"
        )


def is_over(at_ms: int, ttl_ms: int, now_ms: float) -> bool:
    """Whether what was stored at `at_ms` has outlived `ttl_ms`; 0: it has no end."""
    return ttl_ms > 0 and now_ms - at_ms > ttl_ms
