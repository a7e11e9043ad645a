"""One run of the demo: processes, the scenario's changes under live traffic, and the outcome."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from partq.cli.demo.inspection import Inspection, compare
from partq.cli.demo.jobs import ARCHIVE_GROUP, inspect
from partq.cli.demo.scenario import (
    BROKER_COUNT,
    FIRST_MEMBERS,
    PARTITION_COUNT,
    STEPS,
    Action,
    KillBroker,
    KillMember,
    Restart,
    Scale,
)
from partq.cli.demo.view import LiveView
from partq.cli.verdict.journal import in_order
from partq.cli.verdict.judge import Verdict, find_duplicates, judge
from partq.cli.verdict.progress import Progress
from partq.cli.verdict.timeline import Change, Rebalance, RecordedPause, hit_live_traffic, measure
from partq.cli.workload.process import WorkerProcess
from partq.cli.workload.stage import Stage
from partq.embedded.runtime import BrokerChild, EmbeddedRuntime
from partq.errors import InternalError, PartqError, UnavailableError
from partq.resources import API_VERSION, parse_resources
from partq.store.connection import Store
from partq.store.erase import erase_queue
from partq.store.keys import Keys
from partq.store.layouts import Layouts
from partq.store.rebalances import Rebalances

QUEUE: Final = "file-changes"
GROUP: Final = "workers"
BEGIN_TIMEOUT_S: Final = 60.0
SETTLE_TIMEOUT_S: Final = 30.0
END_TIMEOUT_S: Final = 60.0
STATUS_EVERY_S: Final = 1.0


def resources(*, is_audited: bool) -> str:
    """Return the demo's queue and group.

    `is_audited`: with a record of what the brokers do, and a group for whose sake they keep every
    message until it is archived.
    """
    spec = {"partitions": PARTITION_COUNT, "brokers": {"replicas": BROKER_COUNT}}
    groups = (GROUP, ARCHIVE_GROUP) if is_audited else (GROUP,)
    found = [
        _resource("PartitionedQueue", QUEUE, {**spec, **({"audit": True} if is_audited else {})}),
        *(_resource("ConsumerGroup", group, {"queue": QUEUE}) for group in groups),
    ]
    return "\n---\n".join(map(json.dumps, found))


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    verdict: Verdict
    rebalances: tuple[Rebalance, ...]
    duplicates: tuple[int, ...]
    """How many came between each change and the next one."""
    failures: tuple[str, ...]
    """Why the run has failed apart from the verdict: a sentence each."""
    inspection: Inspection | None = None
    """What the jobs on Spark say of it, if they were asked."""

    @property
    def is_good(self) -> bool:
        """Whether the run has shown what it was to show."""
        return self.verdict.is_good and not self.failures


def conclude(
    progress: Progress,
    changes: Sequence[Change],
    event_count: int,
    recorded: Sequence[RecordedPause] = (),
) -> Outcome:
    """Judge a run by its journals; `recorded`: the coordinator's word on its rebalances."""
    published, deliveries = in_order(progress.published), in_order(progress.deliveries)
    held = in_order(progress.held)
    verdict = judge(published, deliveries)
    repeats = [row.at_ns for _, row in find_duplicates(deliveries)]
    published_ns = [row.at_ns for row in published]
    processed_ns = [row.at_ns for row in deliveries]
    failures = [
        f"{change.trigger!r} did not hit live traffic"
        for change in changes
        if not hit_live_traffic(change, published_ns, processed_ns)
    ]
    if verdict.published != event_count:
        failures.append(f"{verdict.published} of {event_count} events were published")
    return Outcome(
        verdict=verdict,
        rebalances=tuple(measure(change, held, recorded) for change in changes),
        duplicates=tuple(
            sum(change.at_ns <= at_ns < change.until_ns for at_ns in repeats) for change in changes
        ),
        failures=tuple(failures),
    )


async def run(
    console: Console,
    source: Path,
    *,
    event_count: int,
    duration_s: float,
    directory: Path,
    redis_url: str | None = None,
    report: Path | None = None,
) -> Outcome:
    """Run the scenario on the events of `source`, published evenly over `duration_s` seconds.

    Data, journals and logs are left in `directory`; in the Redis of `redis_url`, if it is given,
    nothing is left. With a folder for a `report` the queue is archived and audited at the end.

    Raises:
        SettingsError: there is no redis-server, or the one of `redis_url` cannot be used.
        PartqError: a part that was to run did not.
    """
    declared = parse_resources(resources(is_audited=report is not None))
    runtime = EmbeddedRuntime(declared, directory / "data", redis_url=redis_url)
    redis = "Redis, " if redis_url is None else ""
    with LiveView(console, event_count) as view:
        view.note(
            f"starting {redis}{BROKER_COUNT} brokers, a coordinator; all of it in {directory}"
        )
        async with (
            _nothing_left(console, runtime, redis_url),
            runtime,
            Stage(
                runtime.queue(QUEUE),
                group=GROUP,
                partition_count=PARTITION_COUNT,
                directory=directory,
            ) as stage,
        ):
            outcome = await _Run(runtime, stage, view, duration_s).go(source, event_count)
            if report is None:
                return outcome
            view.note("archiving the queue with Spark, and auditing what the brokers did")
            inspection = await inspect(
                runtime.queue(QUEUE),
                stage.progress.deliveries,
                group=GROUP,
                directory=directory,
                report=report,
                note=view.note,
            )
            differences = compare(outcome.verdict, inspection, GROUP)
            return replace(
                outcome, inspection=inspection, failures=(*outcome.failures, *differences)
            )


@asynccontextmanager
async def _nothing_left(
    console: Console, runtime: EmbeddedRuntime, redis_url: str | None
) -> AsyncIterator[None]:
    """Remove the queue of a runtime, once it has stopped, from a Redis that others use, too."""
    try:
        yield
    finally:
        if redis_url is not None and runtime.queues:
            queue = runtime.queue(QUEUE)
            try:
                async with asyncio.timeout(END_TIMEOUT_S):
                    await _remove(redis_url, queue.namespace, queue.uid)
            except (PartqError, TimeoutError) as error:
                keys = f"partq:{{{queue.namespace}/{QUEUE}*"
                console.print(f"{keys} may be left in Redis: {error}", markup=False)


async def _remove(redis_url: str, namespace: str, uid: str) -> None:
    store = await Store.open(redis_url)
    try:
        keys = Keys(store.prefix, namespace, QUEUE, uid)
        await erase_queue(store, keys)
        await Layouts(store, keys).release(uid, keeps_data=False)
    finally:
        await store.close()


class _Run:
    """The scenario as it goes."""

    def __init__(
        self, runtime: EmbeddedRuntime, stage: Stage, view: LiveView, duration_s: float
    ) -> None:
        self._runtime = runtime
        self._stage = stage
        self._view = view
        self._duration_s = duration_s
        self._member_count = 0
        self._status: dict[str, Any] = {}
        stage.on_look = lambda: view.show(stage.progress, self._status, GROUP)

    async def go(self, source: Path, event_count: int) -> Outcome:
        """Run it all."""
        watcher = asyncio.create_task(self._watch_status(), name="demo status")
        try:
            await self._scale(FIRST_MEMBERS)
            await self._settle("the first consumers", BEGIN_TIMEOUT_S)
            per_s = event_count / self._duration_s
            self._view.note(f"publishing {event_count:,} events, {per_s:,.0f}/s")
            publisher = await self._stage.start_publisher(
                "publisher", "--input", str(source), "--per-s", f"{per_s:.6f}"
            )
            changes = await self._play(publisher)
            await self._finish(publisher)
            recorded = await self._recorded_pauses()
            await asyncio.gather(*map(self._stage.stop_consumer, tuple(self._stage.consumers)))
            self._stage.look()
        finally:
            watcher.cancel()
            await asyncio.gather(watcher, return_exceptions=True)
        return conclude(self._stage.progress, changes, event_count, recorded)

    async def _play(self, publisher: WorkerProcess) -> list[Change]:
        """Make each change at its time, or as soon after it as the one before has settled."""
        if not await self._stage.until(
            lambda: bool(self._stage.progress.published_count), BEGIN_TIMEOUT_S
        ):
            raise UnavailableError(f"nothing was published: {publisher.last_words()}")
        began = time.monotonic()
        made: list[tuple[str, int, str]] = []
        for step in STEPS:
            wait_s = began + step.at * self._duration_s - time.monotonic()
            await self._stage.until(lambda: False, wait_s)
            await self._settle(step.trigger, SETTLE_TIMEOUT_S)
            self._view.note(step.trigger)
            at_ns = time.monotonic_ns()
            killed = await self._looking(self._do(step.action))
            made.append((step.trigger, at_ns, killed))
        await self._settle("the end", SETTLE_TIMEOUT_S)
        ends = [at_ns for _, at_ns, _ in made[1:]] + [time.monotonic_ns()]
        return [
            Change(trigger=trigger, at_ns=at_ns, until_ns=until_ns, killed=killed)
            for (trigger, at_ns, killed), until_ns in zip(made, ends, strict=True)
        ]

    async def _finish(self, publisher: WorkerProcess) -> None:
        """Wait until everything is published and processed."""
        stage = self._stage
        end_s = self._duration_s + END_TIMEOUT_S
        await stage.until(lambda: publisher.exit_code is not None, end_s)
        if publisher.exit_code != 0:
            raise InternalError(
                f"the publisher ended with status {publisher.exit_code}: {publisher.last_words()}"
            )
        await stage.until(lambda: stage.progress.has_all, END_TIMEOUT_S)

    async def _do(self, action: Action) -> str:
        """Make a change; return the consumer that was killed, if one was."""
        first = next(iter(self._stage.consumers), "")
        match action:
            case Scale(members):
                await self._scale(members)
            case Restart():
                await self._stage.kill_consumer(first)
                await self._stage.start_consumer(first)
                return first
            case KillMember():
                await self._stage.kill_consumer(first)
                return first
            case KillBroker():
                await self._kill_broker(self._runtime.brokers[0])
        return ""

    async def _kill_broker(self, broker: BrokerChild) -> None:
        """Kill a broker, and have it started again when the others have taken over."""
        # Else it would be back before its lease is over, and simply go on.
        broker.keep_running = False
        await broker.kill()
        if not await self._stage.until(lambda: self._is_without(broker.name), SETTLE_TIMEOUT_S):
            raise UnavailableError(f"nobody has taken over from {broker.name}")
        broker.keep_running = True
        await broker.start()

    def _is_without(self, broker: str) -> bool:
        """Say whether every partition belongs to another broker."""
        owners = [each["broker"] for each in self._status.get("partitions", {}).values()]
        return bool(owners) and broker not in owners and "" not in owners

    async def _scale(self, count: int) -> None:
        members = tuple(self._stage.consumers)
        await asyncio.gather(*map(self._stage.stop_consumer, members[count:]))
        for _ in range(count - len(members)):
            self._member_count += 1
            await self._stage.start_consumer(f"consumer-{self._member_count}")

    async def _settle(self, what: str, timeout_s: float) -> None:
        if not await self._stage.until(self._stage.is_settled, timeout_s):
            raise UnavailableError(
                f"before {what!r}: after {timeout_s:g} s not every partition has its consumer: "
                f"{self._stage.unsettled()}"
            )

    async def _looking(self, work: Coroutine[Any, Any, str]) -> str:
        """Return what comes of some work; the view goes on meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work)
            await self._stage.until(task.done, SETTLE_TIMEOUT_S)
        return task.result()

    async def _recorded_pauses(self) -> list[RecordedPause]:
        """Return what the coordinator has written down of its rebalances."""
        queue = self._runtime.queue(QUEUE)
        # Redis tells the time of this machine, which the journals count from its start.
        since_start_ns = time.monotonic_ns() - time.time_ns()
        async with asyncio.timeout(END_TIMEOUT_S):
            store = await Store.open(self._runtime.redis_url)
            try:
                keys = Keys(store.prefix, queue.namespace, queue.name, queue.uid)
                return [
                    RecordedPause(
                        at_ns=each.started_at_ms * 1_000_000 + since_start_ns,
                        longest_pause_ms=each.longest_pause_ms,
                    )
                    for each in await Rebalances(store, keys).read(GROUP)
                ]
            finally:
                await store.close()

    async def _watch_status(self) -> None:
        while True:
            self._status = await self._stage.status()
            await asyncio.sleep(STATUS_EVERY_S)
