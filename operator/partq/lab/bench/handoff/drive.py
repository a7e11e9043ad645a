"""Moves on real processes under a steady load: scale, kill, freeze, and note the instants."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import UnavailableError
from partq.lab.bench.handoff.figures import first_elsewhere, highest_tokens
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.journal_rows import DeliveredRow
from partq.lab.verdict.judge import Verdict, judge
from partq.lab.workload.process import WorkerProcess
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of
from partq.settings import LEASE_TTL_S

QUEUE: Final = "bench"
GROUP: Final = "readers"
BROKERS: Final = 2
LEASE_S: Final = LEASE_TTL_S
FEW, MANY = 2, 4
"""Consumers before and after a change of scale."""
KEYS_PER_PARTITION: Final = 64
VALUE_BYTES: Final = 100
MAX_MESSAGES: Final = 100_000_000
"""The publisher is stopped long before."""
CALM_S: Final = 2.0
"""How long the load continues between two changes."""
SETTLE_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 60.0


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


@dataclass(slots=True)
class Phase:
    """One queue under load, from its start to its end."""

    stage: Stage
    runtime: EmbeddedRuntime
    load: HandoffLoad
    say: Callable[[], None]
    """Called after each change."""
    rows: list[DeliveredRow] = field(default_factory=list)
    """Everything processed, in order; complete after the phase."""
    verdict: Verdict | None = None
    _names: Iterator[str] = field(default_factory=lambda: map("m-{}".format, count()))

    async def scale(self, rounds: int) -> list[tuple[int, int]]:
        """Double the consumers and halve them again; return from when to when each took."""
        changes = []
        for _ in range(rounds):
            for change in (self._join, self._leave):
                began_ns = time.monotonic_ns()
                await change()
                changes.append((began_ns, time.monotonic_ns()))
                await self._calm()
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
            await self._start(1)
            await self._calm()
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
            await self._wait_until_balanced()
            await self._calm()
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
            await self._wait_until_balanced()
            await self._calm()
            self.say()
        return strikes

    async def begin(self) -> WorkerProcess:
        """Start consumers and the load; return its process."""
        await self._start(FEW)
        publisher = await self.stage.start_publisher(
            "load",
            "--in-turn",
            *("--messages", str(MAX_MESSAGES), "--size-bytes", str(VALUE_BYTES)),
            *("--per-s", str(self.load.per_s)),
            *("--keys", str(KEYS_PER_PARTITION * self.load.partitions)),
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
        await publisher.stop(END_TIMEOUT_S)
        await self._until(lambda: progress.has_all, "messages are missing")
        await asyncio.gather(*map(self.stage.stop_consumer, tuple(self.stage.consumers)))
        self.stage.read_journals()
        self.rows = in_order(progress.deliveries)
        self.verdict = judge(progress.published, self.rows)

    # ---- inside ----

    async def _join(self) -> None:
        await self._start(MANY - FEW)

    async def _leave(self) -> None:
        leaving = list(self.stage.consumers)[: MANY - FEW]
        await asyncio.gather(*map(self.stage.stop_consumer, leaving))
        await self._wait_until_balanced()

    async def _start(self, consumers: int) -> None:
        names = [next(self._names) for _ in range(consumers)]
        await asyncio.gather(*map(self.stage.start_consumer, names))
        await self._wait_until_balanced()

    async def _wait_until_balanced(self) -> None:
        if not await self.stage.until(self.stage.is_balanced, SETTLE_TIMEOUT_S):
            raise UnavailableError(
                f"after {SETTLE_TIMEOUT_S:g} s the consumers do not share the partitions: "
                f"{self.stage.imbalance()}"
            )

    async def _calm(self) -> None:
        await self.stage.until(lambda: False, CALM_S)

    async def _until(self, condition: Callable[[], bool], trouble: str) -> None:
        if not await self.stage.until(condition, SETTLE_TIMEOUT_S):
            raise UnavailableError(f"after {SETTLE_TIMEOUT_S:g} s {trouble}")

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
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while len(set((await self._owners()).values())) < BROKERS:
            if time.monotonic() >= end:
                raise UnavailableError(f"after {SETTLE_TIMEOUT_S:g} s a broker owns no partition")
            await self._calm()

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
            await self._until(
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
        running = Phase(stage, runtime, load, say)
        publisher = await running.begin()
        yield running
        await running.end(publisher)
