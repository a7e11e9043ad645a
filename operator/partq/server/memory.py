"""The bytes that the requests of a process may hold at a time."""

from collections.abc import Callable
from typing import Self

from partq.errors import OverloadedError

RETRY_AFTER_S = 1.0


class RequestMemory:
    """One budget for bodies that are being read, and answers that are being made or sent.

    Args:
        limit_bytes: of all requests together. One request alone may have more: what one call
            takes has its own bound, and must be possible.
        on_refused: called for each request that is sent away.
    """

    def __init__(self, limit_bytes: int, on_refused: Callable[[], None] = lambda: None) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_refused = on_refused

    def has(self, size_bytes: int) -> bool:
        """Say whether so much may be taken now."""
        return self.used_bytes + size_bytes <= self.limit_bytes

    def refusal(self, size_bytes: int) -> OverloadedError:
        """Count a request that is sent away, and return what it is told."""
        self._on_refused()
        return OverloadedError(
            f"requests hold {self.used_bytes} bytes of the server's memory, and this one needs "
            f"{size_bytes} more; at most {self.limit_bytes} are given out: ask again",
            retry_after_s=RETRY_AFTER_S,
        )


class Hold:
    """The part of the budget that one request, or one kept answer, holds until it is released."""

    def __init__(self, memory: RequestMemory) -> None:
        self.size_bytes = 0
        self._memory = memory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def try_take(self, size_bytes: int) -> bool:
        """Hold more, unless the budget has too little left."""
        if not self._has(size_bytes):
            return False
        self.force(size_bytes)
        return True

    def take(self, size_bytes: int) -> None:
        """Hold more.

        Raises:
            OverloadedError: the budget has too little left; nothing more is held than before.
        """
        if not self.try_take(size_bytes):
            raise self._memory.refusal(size_bytes)

    def force(self, size_bytes: int) -> None:
        """Hold more, whatever is left: it is in memory already, and is to be given back."""
        self.size_bytes += size_bytes
        self._memory.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Hold less."""
        self.size_bytes -= size_bytes
        self._memory.used_bytes -= size_bytes

    def release(self) -> None:
        """Give everything back; a repeat does nothing."""
        self._memory.used_bytes -= self.size_bytes
        self.size_bytes = 0

    def refusal(self, size_bytes: int) -> OverloadedError:
        """Return what a request is told that cannot hold so much more."""
        return self._memory.refusal(size_bytes)

    def _has(self, size_bytes: int) -> bool:
        """Whether there is room; a request that is alone has it."""
        is_alone = self._memory.used_bytes == self.size_bytes
        return is_alone or self._memory.has(size_bytes)
