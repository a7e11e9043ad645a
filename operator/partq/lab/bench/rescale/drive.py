"""Changes of the partition count on real processes under a steady load, with their instants."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.slot_table import SlotTable
from partq.core.views.rescale_status import RescalePhase
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import UnavailableError
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.journal_rows import PublishedRow
from partq.lab.verdict.judge import Verdict, judge
from partq.lab.workload.process import WorkerProcess
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of
from partq.wire.calls.answers import UNSET
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.status import RescalePlan, StatusAnswer

QUEUE: Final = "bench"
GROUP: Final = "readers"
BROKERS: Final = 2
CONSUMERS: Final = 2
KEYS: Final = 1024
VALUE_BYTES: Final = 100
MAX_MESSAGES: Final = 100_000_000
"""The publisher is stopped long before."""
CALM_S: Final = 2.0
"""How long the load continues between two changes."""
RETIRE_AFTER_S: Final = 1.0
"""How long partitions without slots stay: the publisher repeats nothing that is older."""
POLL_S: Final = 0.05
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleLoad:
    """What flows while the partition count changes, and from which count to which."""

    partitions: int
    other: int
    per_s: int
    """Messages per second in all, evenly over the keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountChange:
    """A change of the partition count, on the clock of the journals."""

    at_ns: int
    """When it was asked for."""
    opened_ns: int
    """When all partitions were seen to take messages."""
    settled_ns: int
    """When it was seen to be over."""
    before: SlotTable
    after: SlotTable

    @property
    def new(self) -> Collection[str]:
        """The partitions that it has made."""
        return {str(each) for each in self.after.slots if each not in self.before.slots}


@dataclass(slots=True)
class RescaleRun:
    """One queue under load, from its start to its end."""

    stage: Stage
    session: Session
    load: RescaleLoad
    say: Callable[[], None]
    """Called after each change."""
    rows: list[PublishedRow] = field(default_factory=list)
    """Everything published, in order; complete after the run."""
    verdict: Verdict | None = None

    async def change(self, rounds: int) -> list[CountChange]:
        """Change the count to the other one and back, again and again."""
        changes = []
        for _ in range(rounds):
            for count in (self.load.other, self.load.partitions):
                changes.append(await self._change_to(count))
                await self._calm()
                self.say()
        return changes

    async def begin(self) -> WorkerProcess:
        """Start consumers and the load; return its process."""
        names = [f"m-{number}" for number in range(CONSUMERS)]
        await asyncio.gather(*map(self.stage.start_consumer, names))
        await self._until(self.stage.is_balanced, "the consumers do not share the partitions")
        publisher = await self.stage.start_publisher(
            "load",
            *("--drawn-id", "--in-turn"),
            *("--messages", str(MAX_MESSAGES), "--size-bytes", str(VALUE_BYTES)),
            *("--per-s", str(self.load.per_s), "--keys", str(KEYS)),
        )
        progress = self.stage.progress
        await self._until(
            lambda: len(progress.processed_by_partition) == self.load.partitions, "no message came"
        )
        await self._calm()
        return publisher

    async def end(self, publisher: WorkerProcess) -> None:
        """Stop the load, wait until all of it was processed, and judge it."""
        progress = self.stage.progress
        await publisher.stop(TIMEOUT_S)
        await self._until(lambda: progress.has_all, "messages are missing")
        await asyncio.gather(*map(self.stage.stop_consumer, tuple(self.stage.consumers)))
        self.stage.read_journals()
        self.rows = in_order(progress.published)
        self.verdict = judge(self.rows, in_order(progress.deliveries))

    # ---- inside ----

    async def _change_to(self, count: int) -> CountChange:
        before = (await self.session.layout(self.session.seeds)).layout
        at_ns = time.monotonic_ns()
        body = RescaleBody(count, is_dry_run=False)
        plan = await self.session.ask("POST", "/partitions", RescalePlan, body, prefix="/admin")
        phases = (RescalePhase.DRAINING, RescalePhase.SETTLED)
        opened_ns = await self._until_in(plan.generation, phases)
        settled_ns = await self._until_in(plan.generation, (RescalePhase.SETTLED,))
        after = (await self.session.layout(self.session.seeds)).layout
        self.stage.partitions = {str(each) for each in after.current_partitions}
        await self._until(self.stage.is_balanced, "the consumers do not share the partitions")
        return CountChange(
            at_ns=at_ns,
            opened_ns=opened_ns,
            settled_ns=settled_ns,
            before=before.table,
            after=after.table,
        )

    async def _until_in(self, generation: int, phases: Collection[RescalePhase]) -> int:
        """Wait until a change is in one of these phases, and return the instant."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            status = (await self.session.ask("GET", "/status", StatusAnswer)).rescale
            if status is not UNSET and status.generation == generation and status.phase in phases:
                return time.monotonic_ns()
            await asyncio.sleep(POLL_S)
        wanted = " or ".join(phases)
        raise UnavailableError(f"after {TIMEOUT_S:g} s change {generation} is not {wanted}")

    async def _calm(self) -> None:
        await self.stage.until(lambda: False, CALM_S)

    async def _until(self, condition: Callable[[], bool], trouble: str) -> None:
        if not await self.stage.until(condition, TIMEOUT_S):
            raise UnavailableError(f"after {TIMEOUT_S:g} s {trouble}")


@asynccontextmanager
async def rescale_run(
    directory: Path, load: RescaleLoad, say: Callable[[], None]
) -> AsyncIterator[RescaleRun]:
    """Run a separate queue under load."""
    resources = resources_of(
        queue_document(QUEUE, partitions=load.partitions), group_document(GROUP, QUEUE)
    )
    runtime = EmbeddedRuntime(
        resources, directory / "data", broker_count=BROKERS, retire_after_s=RETIRE_AFTER_S
    )
    async with runtime:
        queue = runtime.queue(QUEUE)
        options = ConnectionOptions(
            queue.url, queue.name, token=queue.tokens.admin, namespace=queue.namespace
        )
        async with (
            Stage(
                queue, group=GROUP, partition_count=load.partitions, directory=directory
            ) as stage,
            Session(options) as session,
        ):
            running = RescaleRun(stage, session, load, say)
            publisher = await running.begin()
            yield running
            await running.end(publisher)
