"""Interfaces of what a flow asks for batches, and for their ages."""

from typing import Protocol

from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.store.records.log import Entry


class BatchFinder(Protocol):
    """Finds stored batches for a flow."""

    def find(self, consumed: ConsumedPartition, offset: int) -> Entry | None:
        """Return the batch that holds an offset; None: beyond the end, or being read."""

    def is_behind(self, consumed: ConsumedPartition) -> bool:
        """Whether messages wait beyond the book's position."""

    def forget(self, consumed: ConsumedPartition) -> None:
        """Let go what was read for a flow that has lost the partition."""


class ExpiryCheck(Protocol):
    """Judges the age of batches that have a time to live."""

    def must_wait(self, consumed: ConsumedPartition, entry: Entry) -> bool:
        """End what is too old of a batch; return whether nothing may be sent until a notice."""
