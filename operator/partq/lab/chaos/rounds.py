"""One round: publish, strike, recover, and judge what the consumers saw of its messages."""

import asyncio
import random
import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partq.embedded.child import Child
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import InternalError, UnavailableError
from partq.lab.chaos.faults import FREEZE_S, ChaosGroup, Fault, RoundLoad
from partq.lab.verdict.judge import Verdict
from partq.lab.verdict.totals import KEEP_PARTS, RunTotals
from partq.lab.workload.process import WorkerProcess
from partq.lab.workload.stage import Stage
from partq.lab.workload.synthetic import key_prefix

BEGIN_TIMEOUT_S: Final = 60.0
ROUND_TIMEOUT_S: Final = 60.0
"""For each of: everything published, everything processed, every partition Ready again."""
EARLIEST, LATEST = 0.1, 0.6
"""Shares of the round's messages that are published when the fault strikes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What came of one round."""

    faults: tuple[Fault, ...]
    """In the order in which they struck."""
    number: int
    """No two rounds of a run have the same faults and the same number."""
    struck: str
    """What was hit."""
    duration_s: float
    verdict: Verdict

    @property
    def title(self) -> str:
        """The names of its faults."""
        return " + ".join(self.faults)


class Chaos:
    """Rounds against one running queue."""

    def __init__(
        self, runtime: EmbeddedRuntime, stage: Stage, draw: random.Random, group: ChaosGroup
    ) -> None:
        self._group = group
        self._runtime = runtime
        self._stage = stage
        self._draw = draw
        self._member_count = 0
        self._books = RunTotals(stage.progress, has_order=group.has_order)
        self._began_ns: deque[int] = deque(maxlen=KEEP_PARTS)
        """When the last rounds began: what is older is not looked at again."""
        self._is_clean = True
        """Once a round was bad, all journals stay: somebody will want to read them."""

    async def begin(self) -> None:
        """Start the consumers and wait until they have all partitions.

        Raises:
            UnavailableError: they do not get them.
        """
        await self._start_new_members(self._group.members)
        await self._wait_until_balanced(BEGIN_TIMEOUT_S)

    async def round(self, faults: Sequence[Fault], number: int) -> Round:
        """Publish the load of the first fault, let all strike while it flows, and judge.

        Raises:
            PartqError: the system does not recover, or a process fails that nobody has touched.
        """
        began_ns = time.monotonic_ns()
        name = "-".join([*(fault.name.lower().replace("_", "-") for fault in faults), str(number)])
        progress, load = self._stage.progress, self._group.load(faults[0])
        self._books.begin(key_prefix(name))
        before = progress.published_count
        publisher = await self._publish(name, load)
        share = self._draw.uniform(EARLIEST, LATEST)
        await self._published(before + int(load.messages * share), publisher)
        struck = []
        for fault in faults:
            hit, publisher = await self._strike(fault, name, load, publisher)
            struck.append(hit)
        await self._published(before + load.messages, publisher)
        await publisher.wait(ROUND_TIMEOUT_S)
        # A process that was frozen may still write down what it had begun: settled comes first.
        await self._wait_until_balanced(ROUND_TIMEOUT_S)
        await self._stage.until(lambda: progress.has_all, ROUND_TIMEOUT_S)
        verdict = self._books.judge_part()
        self._began_ns.append(began_ns)
        self._is_clean = self._is_clean and verdict.is_good
        if self._is_clean:
            self._stage.tidy(self._began_ns[0])
        return Round(
            faults=tuple(faults),
            number=number,
            struck=", ".join(struck),
            duration_s=(time.monotonic_ns() - began_ns) / 1e9,
            verdict=verdict,
        )

    def total(self) -> Verdict:
        """Judge all rounds that are over, once more: a repeat may come after its round."""
        return self._books.total()

    async def end(self) -> None:
        """Let the consumers leave."""
        await asyncio.gather(*map(self._stage.stop_consumer, tuple(self._stage.consumers)))
        self._stage.read_journals()

    # ---- faults ----

    async def _strike(
        self, fault: Fault, name: str, load: RoundLoad, publisher: WorkerProcess
    ) -> tuple[str, WorkerProcess]:
        """Hit a process; return what it was, and the producer that continues."""
        match fault:
            case Fault.PRODUCER_KILLED:
                await publisher.kill()
                return publisher.name, await self._publish(name, load)
            case Fault.CONSUMER_KILLED:
                return await self._kill_consumer(), publisher
            case Fault.CONSUMER_FROZEN:
                return await self._freeze_consumer(), publisher
            case Fault.BROKER_FROZEN:
                broker = await self._drawn(self._runtime.brokers)
                broker.freeze()
                try:
                    await self._stage.until(lambda: False, FREEZE_S)
                finally:
                    broker.thaw()
                return broker.name, publisher
            case Fault.REDIS_KILLED:
                return await self._kill([self._runtime.redis]), publisher
            case Fault.BROKER_KILLED:
                return await self._kill(self._runtime.brokers), publisher
            case Fault.MEMBERS_CHANGED:
                return await self._change_members(), publisher
            case Fault.COORDINATOR_KILLED:
                await self._join_or_leave()
                return await self._kill(self._runtime.coordinators), publisher

    async def _drawn(self, children: Sequence[Child]) -> Child:
        """Draw a process that runs: one that was hit just now is started again first."""
        child = self._draw.choice(children)
        if not await self._stage.until(lambda: child.pid is not None, ROUND_TIMEOUT_S):
            raise UnavailableError(
                f"{child.name} was not started again within {ROUND_TIMEOUT_S:g} s"
            )
        return child

    async def _kill(self, children: Sequence[Child]) -> str:
        child = await self._drawn(children)
        await child.kill()
        return child.name

    async def _kill_consumer(self) -> str:
        """Kill one; it comes back under its name within the delay, or another one in its place."""
        member = self._draw.choice(list(self._stage.consumers))
        await self._stage.kill_consumer(member)
        if self._draw.random() < 0.5:
            await self._stage.start_consumer(member)
            return f"{member}, which returned"
        return f"{member}, replaced by {await self._start_new_member()}"

    async def _freeze_consumer(self) -> str:
        member = self._draw.choice(list(self._stage.consumers))
        worker = self._stage.consumers[member]
        worker.signal(signal.SIGSTOP)
        try:
            await self._stage.until(lambda: False, FREEZE_S)
        finally:
            worker.signal(signal.SIGCONT)
        return member

    async def _change_members(self) -> str:
        """Let a third of the consumers leave while as many new ones come, all at once.

        One that was started again just now does not leave: it is not ready for a signal.
        """
        self._stage.read_journals()
        known = self._stage.progress.members
        members = [each for each in self._stage.consumers if each in known]
        leaving = self._draw.sample(members, -(-len(members) // 3))
        await asyncio.gather(
            self._start_new_members(len(leaving)), *map(self._stage.stop_consumer, leaving)
        )
        return f"{', '.join(leaving)}, which left; as many came"

    async def _join_or_leave(self) -> None:
        """Give the coordinator something to do at the moment of its death."""
        if len(self._stage.consumers) > self._group.members:
            await self._stage.stop_consumer(next(iter(self._stage.consumers)))
        else:
            await self._start_new_member()

    # ---- steps ----

    async def _start_new_members(self, count: int) -> None:
        await asyncio.gather(*(self._start_new_member() for _ in range(count)))

    async def _start_new_member(self) -> str:
        self._member_count += 1
        member = f"consumer-{self._member_count}"
        await self._stage.start_consumer(member)
        return member

    async def _publish(self, name: str, load: RoundLoad) -> WorkerProcess:
        numbers = {
            "--messages": load.messages,
            "--size-bytes": load.size_bytes,
            "--per-s": load.per_s,
            "--keys": self._group.keys,
        }
        args = [str(part) for pair in numbers.items() for part in pair]
        return await self._stage.start_publisher(name, *args)

    async def _published(self, count: int, publisher: WorkerProcess) -> None:
        """Wait until so many messages of the whole run are known to be stored."""
        progress = self._stage.progress

        def is_enough() -> bool:
            if publisher.exit_code:
                raise InternalError(
                    f"{publisher.name} has ended with status {publisher.exit_code}: "
                    f"{publisher.last_words()}"
                )
            return progress.published_count >= count

        if not await self._stage.until(is_enough, ROUND_TIMEOUT_S):
            raise UnavailableError(
                f"{publisher.name}: {progress.published_count} of {count} messages are published "
                f"after {ROUND_TIMEOUT_S:g} s: {publisher.last_words()}"
            )

    async def _wait_until_balanced(self, timeout_s: float) -> None:
        if not await self._stage.until(self._stage.is_balanced, timeout_s):
            raise UnavailableError(
                f"after {timeout_s:g} s not every partition is Ready: {self._stage.imbalance()}"
            )
