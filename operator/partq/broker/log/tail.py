"""The newest batches of a partition, in memory: consumers that keep up cost no read of Redis."""

from bisect import bisect_right

from partq.broker.log.buffers import TailBudget, memory_bytes
from partq.store.records.log import Entry


class Tail:
    """Consecutive stored batches that end where the log ends; none, when there is no room."""

    def __init__(self, end: int, budget: TailBudget) -> None:
        self.end = end
        """The offset that the next message gets."""
        self.size_bytes = 0
        self._budget = budget
        self._firsts: list[int] = []
        self._entries: list[Entry] = []
        budget.enter(self)

    @property
    def older_bytes(self) -> int:
        """What is held besides the newest batch."""
        return self.size_bytes - memory_bytes(self._entries[-1].data) if self._entries else 0

    def accept(self, entry: Entry) -> bool:
        """Add a batch, only at the end; False when it belongs elsewhere: memory is wrong then."""
        if entry.first != self.end:
            return False
        self._firsts.append(entry.first)
        self._entries.append(entry)
        self.end = entry.first + entry.count
        self._count(memory_bytes(entry.data))
        self._budget.make_room(self)
        return True

    def find(self, offset: int) -> Entry | None:
        """Return the batch that contains `offset`, None when it is not in memory."""
        at = bisect_right(self._firsts, offset) - 1
        return self._entries[at] if at >= 0 and offset < self.end else None

    def shrink(self, most_bytes: int) -> None:
        """Let the oldest batches go until at most so many bytes are held."""
        keep_from, size = 0, self.size_bytes
        while size > most_bytes:
            size -= memory_bytes(self._entries[keep_from].data)
            keep_from += 1
        del self._entries[:keep_from], self._firsts[:keep_from]
        self._count(size - self.size_bytes)

    def drop(self) -> None:
        """Let everything go, for good."""
        self.shrink(0)
        self._budget.leave(self)

    def _count(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self._budget.used_bytes += size_bytes
