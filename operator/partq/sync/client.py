"""What the blocking clients share: they are opened and closed alike."""

from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from partq.sync.process_loop import LoopPortal


class AsyncClient(Protocol):
    """What a blocking client opens, calls and closes in the loop."""

    async def __aenter__(self) -> Self:
        """Open it."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""

    async def close(self) -> None:
        """Close it, and raise what no call has told."""


C = TypeVar("C", bound=AsyncClient)


class SyncClient(Generic[C]):
    """Opens and closes an asynchronous client in the loop of the process.

    Args:
        inner: that client.
        name: for the errors.
    """

    def __init__(self, inner: C, name: str) -> None:
        self._inner = inner
        self._portal = LoopPortal(name)

    def __enter__(self) -> Self:
        """Open it; raises as entering the asynchronous one."""
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; raises as `close`, unless an exception leaves the block."""
        if self._portal.is_forked:
            return
        try:
            self._portal.run(lambda: self._inner.__aexit__(kind, error, traceback), is_last=True)
        finally:
            self._portal.forget(self)

    def open(self) -> Self:
        """Open it without `with`: for a global of a web application; returns itself.

        Raises: as entering the asynchronous one.
        """
        self._portal.open(self)
        try:
            self._portal.run(self._inner.__aenter__)
        except BaseException:
            self._portal.forget(self)
            raise
        return self

    def close(self) -> None:
        """Close it; raises as `close` of the asynchronous one. It may be called again."""
        if not self._portal.is_open:
            return
        try:
            self._portal.run(self._inner.close, is_last=True)
        finally:
            self._portal.forget(self)
