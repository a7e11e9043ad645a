"""Which queue a job works on, and how its brokers are reached."""

import asyncio
from dataclasses import dataclass

from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.pipeline.archive_log import ArchivedQueue
from partq.wire.calls.answers import LayoutAnswer


@dataclass(frozen=True, slots=True)
class QueueAccess:
    """A queue, and the right to call it."""

    url: str
    queue: str
    namespace: str
    token: str
    ca_file: str | None = None

    def options(self) -> dict[str, str]:
        """Return the options of `spark.read.format("partq")` that say which queue it is."""
        named = {"url": self.url, "queue": self.queue, "namespace": self.namespace}
        secret = {"token": self.token}
        return named | secret | ({"caFile": self.ca_file} if self.ca_file else {})

    def connection(self) -> ConnectionOptions:
        """Return what a client of the queue is made with."""
        return ConnectionOptions(
            self.url, self.queue, token=self.token, namespace=self.namespace, ca_file=self.ca_file
        )

    def identity(self) -> ArchivedQueue:
        """Return which life of the queue this is; raises as `Session.ask`."""

        async def ask() -> LayoutAnswer:
            async with Session(self.connection()) as session:
                return await session.ask("GET", "/layout", LayoutAnswer)

        layout = asyncio.run(ask())
        return ArchivedQueue(layout.namespace, layout.queue, layout.uid)
