"""Batches as a book sees them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """A stored batch; without slots unless a book asks for them."""

    first: int
    count: int = 0
    slots: Sequence[int] = ()


BATCH = Batch(0)
"""One that begins with the log."""
