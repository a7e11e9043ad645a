"""Calls of a Redis that is away for a moment."""

from contextlib import suppress

from partq.errors import StoreUnavailableError
from partq.testing import eventually


async def until_answered(act):
    """Repeat until Redis answers, as every caller of the store does in its own time."""

    async def answers():
        with suppress(StoreUnavailableError):
            return [await act()]
        return []

    (answer,) = await eventually(answers, "Redis answers")
    return answer
