"""Bounds the memory of stored and unstored batches, over all partitions of this process."""

from typing import Protocol

BATCH_OVERHEAD_BYTES = 512
"""Approximate memory of a batch besides its bytes, so that small batches count, too."""


def memory_bytes(batch: bytes) -> int:
    """Return what a batch costs in memory."""
    return len(batch) + BATCH_OVERHEAD_BYTES


class PendingBatches(Protocol):
    """A holder of batches that wait to be stored: one per partition."""

    held_bytes: int


class PendingBudget:
    """Bytes of batches that wait to be stored or are being stored.

    A partition may hold at most as many bytes as are free. So one that gets too many leaves as much
    room for the others, and each further one of its kind makes all their shares smaller. One
    batch at a time may pass above the bound, of a partition that holds none, so that every
    partition has its turn.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._guest: PendingBatches | None = None
        """Whose batch has passed above the bound."""

    def take(self, holder: PendingBatches, size_bytes: int) -> bool:
        """Count a batch of `holder` in; False: there is no room for it."""
        left = self.max_bytes - self.used_bytes
        if holder.held_bytes + size_bytes > left:
            if holder.held_bytes or (size_bytes > left and self._guest is not None):
                return False
            if size_bytes > left:
                self._guest = holder
        holder.held_bytes += size_bytes
        self.used_bytes += size_bytes
        return True

    def give_back(self, holder: PendingBatches, size_bytes: int) -> None:
        """Count bytes of `holder` out: they are stored, or refused."""
        holder.held_bytes -= size_bytes
        self.used_bytes -= size_bytes
        if self._guest is holder and not holder.held_bytes:
            self._guest = None


class ShrinkableTail(Protocol):
    """A holder of the newest batches of one partition."""

    @property
    def size_bytes(self) -> int:
        """What it holds."""

    @property
    def older_bytes(self) -> int:
        """What it holds besides its newest batch."""

    def shrink(self, most_bytes: int) -> None:
        """Let the oldest batches go until at most so many bytes are held."""


class TailBudget:
    """Bytes of the newest batches of all partitions, which deliveries are taken from.

    What is let go is read from Redis again. While there is room, a partition may hold as much as it
    gets; without room, partitions that hold more than their share lose their oldest batches.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._tails: dict[ShrinkableTail, None] = {}

    def enter(self, tail: ShrinkableTail) -> None:
        """Let a tail share the memory."""
        self._tails[tail] = None

    def leave(self, tail: ShrinkableTail) -> None:
        """Forget a tail; it has let everything go."""
        self._tails.pop(tail, None)

    def make_room(self, grown: ShrinkableTail) -> None:
        """Keep the bound, now that a tail has grown."""
        while self.used_bytes > self.max_bytes:
            victim = grown
            if not grown.older_bytes or grown.size_bytes * len(self._tails) <= self.max_bytes:
                victim = max(self._tails, key=lambda tail: (tail.older_bytes, tail.size_bytes))
            # A quarter at once, so that the lists are cut rarely and not for each batch.
            victim.shrink(victim.size_bytes * 3 // 4)


class Buffers:
    """The budgets of one broker for what its partitions hold in memory."""

    def __init__(self, *, pending_bytes: int, tail_bytes: int) -> None:
        self.pending = PendingBudget(pending_bytes)
        self.tails = TailBudget(tail_bytes)
