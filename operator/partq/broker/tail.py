"""The newest batches of a partition, in memory: consumers that keep up cost no read of Redis."""

from bisect import bisect_right

from partq.store.log import Entry


class Tail:
    """Consecutive stored batches that end where the log ends."""

    def __init__(self, end: int, max_bytes: int) -> None:
        self.end = end
        """The offset that the next message gets."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._firsts: list[int] = []
        self._entries: list[Entry] = []

    def accept(self, entry: Entry) -> bool:
        """Add a batch, only at the end; False when it belongs elsewhere: memory is wrong then."""
        if entry.first != self.end:
            return False
        self._firsts.append(entry.first)
        self._entries.append(entry)
        self.end = entry.first + entry.count
        self._bytes += len(entry.data)
        if self._bytes > self._max_bytes:
            self._evict()
        return True

    def find(self, offset: int) -> Entry | None:
        """Return the batch that contains `offset`, None when it is not in memory."""
        at = bisect_right(self._firsts, offset) - 1
        return self._entries[at] if at >= 0 and offset < self.end else None

    def _evict(self) -> None:
        # Down to three quarters, so that the lists are cut rarely and not for each batch.
        keep_from = 0
        while self._bytes > self._max_bytes * 3 // 4 and keep_from < len(self._entries) - 1:
            self._bytes -= len(self._entries[keep_from].data)
            keep_from += 1
        del self._entries[:keep_from], self._firsts[:keep_from]
