"""What all readers of a queue's logs share: their arguments, connections and partitions."""

from pathlib import Path
from typing import ClassVar, Self

from partq.aio import TaskSet
from partq.client.arguments import MAX_TIME_S, check_range, whole
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.partition_router import PartitionRouter
from partq.client.transport.pin_calls import PinCalls
from partq.client.transport.session import Session
from partq.client.transport.tasks import EnteredLoop
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.wire.calls.entries import MAX_BYTES

FETCH_BYTES = 4 * 1024 * 1024
"""How much of a log is fetched at once, in bytes."""
TIMEOUT_S = 30.0


class QueueClient:
    """Opens and closes the connections of a client that only asks."""

    _rights_path: ClassVar[str]
    """What only a token that may read is not refused. It is of a partition that no queue has, as
    generations begin at 1: the answer costs nothing, and needs no owner."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._session = Session(options)
        self._pin_calls = PinCalls()
        self._entered_loop = EnteredLoop("the client")

    async def __aenter__(self) -> Self:
        """Open the connections, and ask any broker whether the token may read.

        Without an answer it continues: the calls wait for brokers.

        Raises:
            UnauthorizedError, ForbiddenError: it may not; names its role, and those that may.
        """
        async with self._session.opening():
            await self._session.check_rights_anywhere(self._session.seeds, self._rights_path)
        self._entered_loop = EnteredLoop("the client")  # it may be entered again, elsewhere
        self._entered_loop.enter()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._session.__aexit__()


class QueueReader(QueueClient):
    """Asks the brokers of one queue. Use it in `async with`.

    Every call is repeated over changes of brokers and failures, at most for `timeout_s`.

    Args:
        url: of a broker, or several with commas between them.
        queue: its name.
        token: one that may read what is read.
        namespace: of the queue; None: it is not checked.
        ca_file: PEM of the CAs that may sign the brokers' certificates; None: the system's.
        timeout_s: how long to wait for a partition that no broker serves, in seconds.
        fetch_bytes: bytes to fetch at once, 1 to 16 MiB.

    Raises:
        SettingsError: an argument is of a wrong type or out of range; names it.
    """

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
        self._timeout_s = timeout_s
        super().__init__(
            ConnectionOptions(url, queue, token=token, namespace=namespace, ca_file=ca_file)
        )
        self._router = PartitionRouter(self._session, timeout_s=timeout_s)
        self._fetching = TaskSet(lambda *_: None)  # a closed reader has no use for errors
        self._is_closed = False

    async def __aexit__(self, *_: object) -> None:
        """Stop every reading and close the connections."""
        self._is_closed = True
        try:
            await self._fetching.close()
        finally:
            await super().__aexit__()

    async def partitions(self) -> list[PartitionId]:
        """Return every partition, by generation and index.

        The messages of a key in a partition of an older generation come before those in one of a
        newer generation.
        """
        return await self._router.checked(None)

    async def layout(self) -> Layout:
        """Return the layout as it is now: which partition takes which slots, and follows which."""
        await self._router.checked(None)
        return (await self._router.queue_layout()).layout
