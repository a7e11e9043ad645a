"""Changes of the partition count on real processes under a steady load, with their instants."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.core.slot_table import SlotTable
from partq.core.views.rescale_status import RescalePhase
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import UnavailableError
from partq.lab.bench.loaded_queue import BROKERS, GROUP, QUEUE, TIMEOUT_S, LoadedQueue
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of
from partq.wire.calls.answers import UNSET
from partq.wire.calls.bodies import RescaleBody
from partq.wire.calls.status import RescalePlan, StatusAnswer

CONSUMERS: Final = 2
KEYS: Final = 1024
RETIRE_AFTER_S: Final = 1.0
"""How long partitions without slots stay: the publisher repeats nothing that is older."""
POLL_S: Final = 0.05


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


class RescaleRun(LoadedQueue):
    """One queue under load, whose partition count changes."""

    def __init__(self, stage: Stage, session: Session, say: Callable[[], None]) -> None:
        super().__init__(stage, say)
        self.session = session

    async def change(self, load: RescaleLoad, rounds: int) -> list[CountChange]:
        """Change the count to the other one and back, again and again."""
        changes = []
        for _ in range(rounds):
            for count in (load.other, load.partitions):
                changes.append(await self._change_to(count))
                await self.calm()
                self.say()
        return changes

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
        await self.balanced()
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
            running = RescaleRun(stage, session, say)
            await running.start_consumers(*(f"m-{number}" for number in range(CONSUMERS)))
            async with running.loaded(
                "--drawn-id", partitions=load.partitions, per_s=load.per_s, keys=KEYS
            ):
                yield running
