"""Moves on real processes under a steady load: scale, kill, freeze, and note the instants."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final

from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import UnavailableError
from partq.lab.bench.handoff.figures import first_elsewhere, highest_tokens
from partq.lab.bench.loaded_queue import BROKERS, GROUP, QUEUE, TIMEOUT_S, LoadedQueue
from partq.lab.verdict.journal import in_order
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of
from partq.settings import LEASE_TTL_S

LEASE_S: Final = LEASE_TTL_S
FEW, MANY = 2, 4
"""Consumers before and after a change of scale."""
KEYS_PER_PARTITION: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffLoad:
    """What flows while partitions move."""

    partitions: int
    per_s: int
    """Messages per second in all, evenly over the partitions."""


@dataclass(frozen=True, slots=True)
class Strike:
    """Something that happened to a process, and when its partitions came elsewhere."""

    at_ns: int
    elsewhere_ns: tuple[int, ...]
    """The first message of each of its partitions at another flow."""


class Phase(LoadedQueue):
    """One queue under load, whose partitions move."""

    def __init__(self, stage: Stage, runtime: EmbeddedRuntime, say: Callable[[], None]) -> None:
        super().__init__(stage, say)
        self.runtime = runtime
        self._names = map("m-{}".format, count())

    async def join(self, consumers: int = MANY - FEW) -> None:
        """Start consumers, and wait until all share the partitions."""
        await self.start_consumers(*islice(self._names, consumers))

    async def scale(self, rounds: int) -> list[tuple[int, int]]:
        """Double the consumers and halve them again; return from when to when each took."""
        changes = []
        for _ in range(rounds):
            for change in (self.join, self._leave):
                began_ns = time.monotonic_ns()
                await change()
                changes.append((began_ns, time.monotonic_ns()))
                await self.calm()
                self.say()
        return changes

    async def kill(self, times: int) -> list[Strike]:
        """Kill a consumer with -9, again and again; another one takes its place each time."""
        strikes = []
        for _ in range(times):
            member = next(iter(self.stage.consumers))
            watch = self._watch(self._held_by(member))
            await self.stage.kill_consumer(member)
            strikes.append(await watch())
            await self.join(1)
            await self.calm()
            self.say()
        return strikes

    async def freeze_consumer(self, times: int) -> list[Strike]:
        """Stop a consumer with SIGSTOP until its partitions are elsewhere, again and again."""
        strikes = []
        for _ in range(times):
            member = next(iter(self.stage.consumers))
            worker = self.stage.consumers[member]
            watch = self._watch(self._held_by(member))
            worker.signal(signal.SIGSTOP)
            try:
                strikes.append(await watch())
            finally:
                worker.signal(signal.SIGCONT)
            await self.balanced()
            await self.calm()
            self.say()
        return strikes

    async def freeze_broker(self, times: int) -> list[Strike]:
        """Stop a broker with SIGSTOP until its partitions are at the other, again and again."""
        strikes = []
        for number in range(times):
            broker = self.runtime.brokers[number % BROKERS]
            owners = await self._owners()
            watch = self._watch(frozenset(name for name in owners if owners[name] == broker.name))
            broker.freeze()
            try:
                strikes.append(await watch())
            finally:
                broker.thaw()
            await self._until_owned_by_all()
            await self.balanced()
            await self.calm()
            self.say()
        return strikes

    # ---- inside ----

    async def _leave(self) -> None:
        leaving = list(self.stage.consumers)[: MANY - FEW]
        await asyncio.gather(*map(self.stage.stop_consumer, leaving))
        await self.balanced()

    def _held_by(self, member: str) -> frozenset[str]:
        self.stage.read_journals()
        owners = self.stage.progress.owners
        return frozenset(name for name, owner in owners.items() if owner.member == member)

    async def _owners(self) -> dict[str, str]:
        """Return the broker of each partition."""
        status = await self.stage.status()
        partitions = status.partitions if status is not None else {}
        return {name: seen.broker for name, seen in partitions.items()}

    async def _until_owned_by_all(self) -> None:
        """Wait until every broker owns partitions again."""
        end = time.monotonic() + TIMEOUT_S
        while len(set((await self._owners()).values())) < BROKERS:
            if time.monotonic() >= end:
                raise UnavailableError(f"after {TIMEOUT_S:g} s a broker owns no partition")
            await self.calm()

    def _watch(self, partitions: frozenset[str]) -> Callable[[], Awaitable[Strike]]:
        """Note how things are and that something strikes now; the result waits for what follows.

        It returns when all of `partitions` came under newer tokens.
        """
        self.stage.read_journals()
        deliveries = self.stage.progress.deliveries
        known = len(deliveries)
        before = highest_tokens(deliveries)
        at_ns = time.monotonic_ns()

        def elsewhere() -> dict[str, int]:
            found = first_elsewhere(before, in_order(deliveries[known:]))
            return {name: found[name] for name in partitions if name in found}

        async def wait() -> Strike:
            await self.until(
                lambda: elsewhere().keys() == partitions,
                f"not all of the partitions {sorted(partitions)} came elsewhere",
            )
            return Strike(at_ns, tuple(elsewhere().values()))

        return wait


@asynccontextmanager
async def phase(
    directory: Path,
    load: HandoffLoad,
    delay_s: float,
    say: Callable[[], None],
    *,
    group_type: str = "Partitioned",
) -> AsyncIterator[Phase]:
    """Run a separate queue under load; `delay_s`: its rebalance delay."""
    rebalance = {"delaySeconds": delay_s}
    resources = resources_of(
        queue_document(QUEUE, partitions=load.partitions, rebalance=rebalance),
        group_document(GROUP, QUEUE, type=group_type),
    )
    async with (
        EmbeddedRuntime(
            resources,
            directory / "data",
            broker_count=BROKERS,
            lease_ttl_s=LEASE_S,
        ) as runtime,
        Stage(
            runtime.queue(QUEUE),
            group=GROUP,
            partition_count=load.partitions,
            directory=directory,
        ) as stage,
    ):
        running = Phase(stage, runtime, say)
        await running.join(FEW)
        keys = KEYS_PER_PARTITION * load.partitions
        async with running.loaded(partitions=load.partitions, per_s=load.per_s, keys=keys):
            yield running
