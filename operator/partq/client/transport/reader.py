"""What all readers of a queue's logs share: their arguments, connections and partitions."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar, Self

from partq.client.arguments import MAX_TIME_S, check_range, whole
from partq.client.transport import tasks
from partq.client.transport.partition_router import PartitionRouter
from partq.core.model import PartitionId
from partq.wire.calls.entries import MAX_BYTES

FETCH_BYTES = 4 * 1024 * 1024
"""How much of a log is fetched at once, in bytes."""
TIMEOUT_S = 30.0


class QueueReader:
    """Asks the brokers of one queue. Use it in `async with`.

    Every call is repeated over changes of brokers and failures, at most for `timeout_s`.

    Args:
        url: of a broker, or several with commas between them.
        queue: its name.
        token: one that may read what is read.
        namespace: of the queue; None: it is not checked.
        ca_file: certificates of who may sign the brokers'; None: the system's.
        timeout_s: for how long a partition that nobody serves is waited for, in seconds.
        fetch_bytes: how much is fetched at once, 1 to 16 MiB.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

    _rights_path: ClassVar[str]
    """What only a token that may read is not refused; that there is no such partition is no refusal
    of the token."""

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        token: str | None = None,
        namespace: str | None = None,
        ca_file: str | Path | None = None,
        timeout_s: float = TIMEOUT_S,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        self._fetch_bytes = whole("fetch_bytes", fetch_bytes, 1, MAX_BYTES)
        check_range("timeout_s", timeout_s, 0, MAX_TIME_S)
        self._owners = PartitionRouter.open(
            url, queue=queue, token=token, namespace=namespace, ca_file=ca_file, timeout_s=timeout_s
        )
        self._fetching: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        """Open the connections, and ask any broker whether the token may read.

        Without an answer it goes on: the calls wait for brokers.

        Raises:
            UnauthorizedError, ForbiddenError: it may not; names its role, and those that may.
        """
        await self._owners.__aenter__()
        try:
            await self._owners.check_rights(self._rights_path)
        except BaseException:
            await self._owners.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop every reading and close the connections."""
        self._is_closed = True
        try:
            await tasks.stop(*self._fetching)
        finally:
            await self._owners.__aexit__()

    async def partitions(self) -> list[PartitionId]:
        """Return every partition, by generation and index.

        The messages of a key are in one partition of each generation; those of an older generation
        come before those of a newer one.
        """
        return await self._owners.checked(None)
