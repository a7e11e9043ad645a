"""A real queue for a test: broker, coordinator and Redis as processes, on loopback."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from partq.embedded.data_dir import QueueTokens
from partq.embedded.runtime import EmbeddedRuntime, RunningQueue
from partq.resources import group_document, queue_document, resources_of


class LocalBroker:
    """One queue that runs until the end of the block, with nothing left behind.

    ```python
    async with LocalBroker(queue="orders", groups=["workers"]) as broker:
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            ...
    ```

    `with LocalBroker(...)` is the same for tests and fixtures that are not asynchronous; a process
    that a test kills there is not started again.

    Args:
        queue: its name.
        partitions: how many, 1 to 4096.
        groups: names of its consumer groups, which begin at the oldest message; or each name with
            fields of its spec, named as in YAML.
        broker_count: broker processes, 1 to 64.
        spec: fields of the PartitionedQueue's spec that differ from their defaults, named as
            in YAML.
        lease_ttl_s: of a broker, 1 to 60 s: how long its partitions wait when it is killed. A
            machine that stands still for as long ends it, too: name a short one only to kill.
        data_dir: where to keep the data; None: a temporary directory, removed at the end.
    """

    def __init__(
        self,
        *,
        queue: str = "orders",
        partitions: int = 4,
        groups: Sequence[str] | Mapping[str, dict[str, Any]] = ("workers",),
        broker_count: int = 1,
        spec: dict[str, Any] | None = None,
        lease_ttl_s: float = 10.0,
        data_dir: Path | None = None,
    ) -> None:
        specs = groups if isinstance(groups, Mapping) else {name: {} for name in groups}
        self._resources = resources_of(
            queue_document(queue, **{"partitions": partitions, **(spec or {})}),
            *(group_document(group, queue, **fields) for group, fields in specs.items()),
        )
        self._name = queue
        self._broker_count = broker_count
        self._lease_ttl_s = lease_ttl_s
        self._data_dir = data_dir
        self._stack = AsyncExitStack()
        self._runtime: EmbeddedRuntime | None = None
        self._blocking_stack = ExitStack()

    def __enter__(self) -> Self:
        """Start everything, without an event loop of the caller.

        Raises:
            RuntimeError: the caller runs in an event loop.
            SettingsError and others: as `EmbeddedRuntime.start`.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # as it has to be
        else:
            raise RuntimeError("LocalBroker: got `with` in an event loop, expected `async with`")
        with ExitStack() as stack:
            runner = stack.enter_context(asyncio.Runner())
            runner.run(self.__aenter__())
            # The processes belong to this loop, which stands still until they are ended.
            stack.callback(lambda: runner.run(self._stack.aclose()))
            self._blocking_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._blocking_stack.close()

    async def __aenter__(self) -> Self:
        """Start everything; raises as `EmbeddedRuntime.start`."""
        async with AsyncExitStack() as stack:
            data_dir = self._data_dir
            if data_dir is None:
                data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="partq-")))
            self._runtime = await stack.enter_async_context(
                EmbeddedRuntime(
                    self._resources,
                    data_dir,
                    broker_count=self._broker_count,
                    lease_ttl_s=self._lease_ttl_s,
                )
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def runtime(self) -> EmbeddedRuntime:
        """The processes: to kill, freeze and restart them."""
        if self._runtime is None:
            raise RuntimeError("the LocalBroker is not started; use it inside `async with`")
        return self._runtime

    @property
    def queue(self) -> RunningQueue:
        """The queue as it runs."""
        return self.runtime.queue(self._name)

    @property
    def url(self) -> str:
        """What `Producer` and `Consumer` take as their URL."""
        return self.queue.url

    @property
    def tokens(self) -> QueueTokens:
        """The tokens `produce`, `consume` and `admin`."""
        return self.queue.tokens
