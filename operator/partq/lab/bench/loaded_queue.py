"""A separate queue under a steady load, while a benchmark changes something about it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from partq.errors import UnavailableError
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow
from partq.lab.verdict.judge import Verdict, judge
from partq.lab.workload.stage import Stage

QUEUE: Final = "bench"
GROUP: Final = "readers"
BROKERS: Final = 2
VALUE_BYTES: Final = 100
MAX_MESSAGES: Final = 100_000_000
"""The publisher is stopped long before."""
CALM_S: Final = 2.0
"""How long the load continues between two changes."""
TIMEOUT_S: Final = 60.0
"""How long anything is waited for."""


class LoadedQueue:
    """One queue under load, from its start to its end.

    Args:
        stage: its processes, and what they write down.
        say: called after each change.
    """

    def __init__(self, stage: Stage, say: Callable[[], None]) -> None:
        self.stage = stage
        self.say = say
        self.published: list[PublishedRow] = []
        """Everything published, in order; complete after the load."""
        self.deliveries: list[DeliveredRow] = []
        """Everything processed, in order; complete after the load."""
        self.verdict: Verdict | None = None

    @asynccontextmanager
    async def loaded(
        self, *arguments: str, partitions: int, per_s: int, keys: int
    ) -> AsyncIterator[None]:
        """Publish until the end of the block; then wait until all was processed, and judge it.

        Args:
            arguments: of the publisher, beside the load's.
            partitions: how many the queue has.
            per_s: messages per second in all.
            keys: how many they have; each partition has as many of them.

        Raises:
            UnavailableError: no message came to a partition, or some did not come in the end.
        """
        progress = self.stage.progress
        publisher = await self.stage.start_publisher(
            "load",
            "--in-turn",
            *arguments,
            *("--messages", str(MAX_MESSAGES), "--size-bytes", str(VALUE_BYTES)),
            *("--per-s", str(per_s), "--keys", str(keys)),
        )
        await self.until(
            lambda: len(progress.processed_by_partition) == partitions, "no message came"
        )
        await self.calm()
        yield
        await publisher.stop(TIMEOUT_S)
        await self.until(lambda: progress.has_all, "messages are missing")
        await asyncio.gather(*map(self.stage.stop_consumer, tuple(self.stage.consumers)))
        self.stage.read_journals()
        self.published = in_order(progress.published)
        self.deliveries = in_order(progress.deliveries)
        self.verdict = judge(self.published, self.deliveries)

    async def start_consumers(self, *names: str) -> None:
        """Start consumers, and wait until all share the partitions.

        Raises:
            UnavailableError: they do not in time.
        """
        await asyncio.gather(*map(self.stage.start_consumer, names))
        await self.balanced()

    async def balanced(self) -> None:
        """Wait until the consumers share the partitions.

        Raises:
            UnavailableError: they do not in time.
        """
        if not await self.stage.until(self.stage.is_balanced, TIMEOUT_S):
            raise UnavailableError(
                f"after {TIMEOUT_S:g} s the consumers do not share the partitions: "
                f"{self.stage.imbalance()}"
            )

    async def until(self, condition: Callable[[], bool], trouble: str) -> None:
        """Wait until something is so.

        Raises:
            UnavailableError: it is not in time; says what the trouble is.
        """
        if not await self.stage.until(condition, TIMEOUT_S):
            raise UnavailableError(f"after {TIMEOUT_S:g} s {trouble}")

    async def calm(self) -> None:
        """Let the load go on for a while."""
        await self.stage.until(lambda: False, CALM_S)
