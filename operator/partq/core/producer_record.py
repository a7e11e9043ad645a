"""What a partition knows of a producer that numbers its messages, and how it judges a repeat.

The script that appends judges in the same way. Here it is done for a partition that takes the
messages no more, on behalf of the one that took its slots over.
"""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["due", "duplicate", "resend_from", "out_of_sequence", "number_reused"]


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A batch that is stored, or waits to be."""

    first: int
    """The number of its first message."""
    count: int
    offset: int
    """-1: it has none, as it was parked, or a message of its id was known."""
    digest: str
    """As `wire.batch.digest` returns it; empty: not known."""
    entry: int = -1
    """The number of the entry that it was parked as; -1: none, or not known."""


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A producer, or a series of one, in a partition."""

    due: int
    """The number that comes next."""
    batches: tuple[NumberedBatch, ...]
    """The last ones, oldest first."""

    def verdict(self, first: int, count: int, digest: str, *, is_sparse: bool) -> Verdict:
        """Judge a batch by its numbers; `is_sparse`: they have gaps, and are not compared."""
        if first == self.due or (first > self.due and is_sparse):
            return "due"
        if first > self.due:
            return "out_of_sequence"
        if first + count > self.due:
            return "resend_from"
        if not is_sparse and any(self._reuses(each, first, count, digest) for each in self.batches):
            return "number_reused"
        return "duplicate"

    def place_of(self, first: int, count: int) -> int:
        """Return the offset of messages that are stored; -1: it is forgotten."""
        for batch in self.batches:
            if batch.first <= first and first + count <= batch.first + batch.count:
                return batch.offset if batch.offset < 0 else batch.offset + first - batch.first
        return -1

    def entry_of(self, first: int, count: int) -> int:
        """Return the number of the entry that messages were parked as; -1: none is known."""
        for batch in self.batches:
            if batch.first <= first and first + count <= batch.first + batch.count:
                return batch.entry
        return -1

    @staticmethod
    def _reuses(batch: NumberedBatch, first: int, count: int, digest: str) -> bool:
        if (batch.first, batch.count) != (first, count) or digest in ("", batch.digest):
            return False
        known = batch.digest.split(".")
        if len(known) != 3:
            return False
        crc, outline, is_compressed = digest.split(".")
        return known[0] != crc and (known[1] != outline or "1" not in (is_compressed, known[2]))
