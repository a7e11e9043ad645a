"""What refusals of a batch mean: whether a repeat may succeed, and whether it may be stored."""

from partq.errors import BadRequestError, ForbiddenError, NotFoundError, UnauthorizedError

FINAL = (BadRequestError, UnauthorizedError, ForbiddenError, NotFoundError)
"""Refusals that no repeat changes."""
NOTHING_STORED = frozenset(
    {
        "not_stored",
        "quota_exceeded",
        "store_full",
        "broker_closing",
        "unavailable",
    }
)
"""Codes of refusals after which certainly nothing of the batch is stored."""
