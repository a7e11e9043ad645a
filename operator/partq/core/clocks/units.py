"""Tells times in milliseconds from those that are in another unit."""

from partq.errors import BadRequestError
from partq.excerpts import excerpt

MIN_AT_MS = 10**11
"""Of 1973. A smaller time is usually one in seconds; 0 means something else."""
MAX_AT_MS = 10**14
"""Of the year 5138. A larger time is one in microseconds or nanoseconds."""


def check_at_ms(name: str, at_ms: int, zero: str) -> None:
    """Refuse a time that is in another unit.

    Args:
        name: of the time, for the error.
        at_ms: milliseconds since 1970.
        zero: what 0 means.

    Raises:
        BadRequestError: it lies before 1973 and is not 0, or after the year 5138.
    """
    if at_ms and not MIN_AT_MS <= at_ms <= MAX_AT_MS:
        raise BadRequestError(
            f"{name}: got {excerpt(repr(at_ms))}, which is usually not in milliseconds; expected "
            f"milliseconds since 1970, {MIN_AT_MS} to {MAX_AT_MS}, or 0 for {zero}"
        )
