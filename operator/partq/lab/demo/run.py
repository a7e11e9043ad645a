"""One run of the demo: processes, the scenario's changes under live traffic, and the outcome."""

import asyncio
import math
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from partq.aio import cancel_and_wait
from partq.core.layout import Layout
from partq.core.slot_table import SlotTable
from partq.embedded.runtime import BrokerChild, EmbeddedRuntime
from partq.errors import InternalError, PartqError, UnavailableError
from partq.lab.demo.inspection import compare
from partq.lab.demo.jobs import ARCHIVE_GROUP, InspectionPlan, change_count, inspect
from partq.lab.demo.outcome import DemoOutcome, conclude
from partq.lab.demo.scenario import (
    BROKER_COUNT,
    FIRST_MEMBERS,
    PARTITION_COUNT,
    RESCALE_STEPS,
    STEPS,
    KillBroker,
    KillMember,
    Rescale,
    Restart,
    Scale,
    Step,
    Victim,
)
from partq.lab.demo.view import LiveView
from partq.lab.verdict.timeline import RecordedPause, RunChange
from partq.lab.workload.process import WorkerProcess
from partq.lab.workload.stage import POLL_S, Stage
from partq.resources import Resources, group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.store.erase import erase_queue
from partq.store.keys import Keys
from partq.store.records.lives import Lives
from partq.store.records.rebalances import Rebalances
from partq.wire.calls.status import StatusAnswer

QUEUE: Final = "file-changes"
GROUP: Final = "workers"
BEGIN_TIMEOUT_S: Final = 60.0
SETTLE_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 60.0
STATUS_EVERY_S: Final = 1.0


def resources(*, is_audited: bool) -> Resources:
    """Return the demo's queue and group.

    `is_audited`: with a record of what the brokers do, and a group for whose sake they keep every
    message until it is archived.
    """
    groups = (GROUP, ARCHIVE_GROUP) if is_audited else (GROUP,)
    brokers = {"replicas": BROKER_COUNT}
    return resources_of(
        queue_document(QUEUE, partitions=PARTITION_COUNT, brokers=brokers, audit=is_audited),
        *(group_document(group, QUEUE) for group in groups),
    )


async def run(
    console: Console,
    source: Path,
    *,
    event_count: int,
    duration_s: float,
    directory: Path,
    redis_url: str | None = None,
    inspection_plan: InspectionPlan | None = None,
    is_rescaled: bool = False,
) -> DemoOutcome:
    """Run the scenario on the events of `source`, published evenly over `duration_s` seconds.

    Data, journals and logs are left in `directory`; in the Redis of `redis_url`, if it is given,
    nothing is left. With a plan for it the queue is archived and audited at the end. With
    `is_rescaled` the scenario is the one in which the partition count changes.

    Raises:
        SettingsError: there is no redis-server, or the one of `redis_url` cannot be used.
        PartqError: a part that was to run did not.
    """
    declared = resources(is_audited=inspection_plan is not None)
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
            queue = runtime.queue(QUEUE)
            view.note(
                f"page in a browser: {queue.brokers[0].url}/ with the token {queue.tokens.admin}"
            )
            steps = RESCALE_STEPS if is_rescaled else STEPS
            demo_run = _DemoRun(runtime, stage, view, duration_s, steps)
            outcome = await demo_run.go(source, event_count)
            if inspection_plan is None:
                return outcome
            how = " with Spark" if inspection_plan.engine == "spark" else ""
            view.note(f"archiving the queue{how}, and auditing what the brokers did")
            inspection = await inspect(
                runtime.queue(QUEUE),
                stage.progress.deliveries,
                group=GROUP,
                directory=directory,
                plan=inspection_plan,
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
        await Lives(store, keys).release(uid, keeps_data=False)
    finally:
        await store.close()


def _is_rescale(step: Step) -> bool:
    return isinstance(step.action, Rescale)


def _count_at(step: Step, event_count: int) -> int:
    """Return how many events are published when a step is due."""
    return math.ceil(step.at * event_count)


class _DemoRun:
    """The scenario as it goes."""

    def __init__(
        self,
        runtime: EmbeddedRuntime,
        stage: Stage,
        view: LiveView,
        duration_s: float,
        steps: Sequence[Step],
    ) -> None:
        self._steps = steps
        self._tables: dict[str, tuple[SlotTable, SlotTable]] = {}
        """The slots before and after each change of the partition count, by its trigger."""
        self._runtime = runtime
        self._stage = stage
        self._view = view
        self._duration_s = duration_s
        self._member_count = 0
        self._status: StatusAnswer | None = None
        self._publisher: WorkerProcess
        stage.on_read = lambda: view.show(stage.progress, self._status, GROUP)

    async def go(self, source: Path, event_count: int) -> DemoOutcome:
        """Run it all."""
        watcher = asyncio.create_task(self._watch_status(), name="demo status")
        try:
            await self._scale(FIRST_MEMBERS)
            await self._wait_until_balanced("the first consumers", BEGIN_TIMEOUT_S)
            per_s = event_count / self._duration_s
            self._view.note(f"publishing {event_count:,} events, {per_s:,.0f}/s")
            self._publisher = await self._stage.start_publisher(
                "publisher",
                *("--input", str(source), "--per-s", f"{per_s:.6f}"),
                *(["--drawn-id"] if any(_is_rescale(step) for step in self._steps) else []),
                *("--holds", *(str(_count_at(step, event_count)) for step in self._steps)),
            )
            changes = await self._play(event_count)
            await self._finish(event_count)
            recorded = await self._recorded_pauses()
            await asyncio.gather(*map(self._stage.stop_consumer, tuple(self._stage.consumers)))
            self._stage.read_journals()
        finally:
            await cancel_and_wait(watcher)
        return conclude(self._stage.progress, changes, event_count, recorded, self._tables)

    async def _play(self, event_count: int) -> list[RunChange]:
        """Make each change when its share is published, or as soon after it as all is settled.

        From its share on the publisher goes slowly: the traffic lasts until the change is made.
        """
        made: list[tuple[str, int, str]] = []
        for step in self._steps:
            await self._until_published(_count_at(step, event_count))
            await self._wait_until_balanced(step.trigger, SETTLE_TIMEOUT_S)
            await self._feel_traffic(step.trigger)
            self._view.note(step.trigger)
            at_ns = time.monotonic_ns()
            self._publisher.signal(signal.SIGUSR1)
            killed = await self._do_in_view(self._do(step))
            made.append((step.trigger, at_ns, killed))
        await self._wait_until_balanced("the end", SETTLE_TIMEOUT_S)
        await self._feel_traffic("the end")
        ends = [at_ns for _, at_ns, _ in made[1:]] + [time.monotonic_ns()]
        return [
            RunChange(trigger=trigger, at_ns=at_ns, until_ns=until_ns, killed=killed)
            for (trigger, at_ns, killed), until_ns in zip(made, ends, strict=True)
        ]

    async def _feel_traffic(self, what: str) -> None:
        """Wait until a message more is published, and one more is processed."""
        progress = self._stage.progress
        published, processed = progress.published_count, progress.processed_count

        def is_live() -> bool:
            has_both = progress.published_count > published and progress.processed_count > processed
            return has_both or self._publisher.exit_code is not None

        if not await self._stage.until(is_live, SETTLE_TIMEOUT_S):
            raise UnavailableError(
                f"before {what!r}: after {SETTLE_TIMEOUT_S:g} s not one more event is published "
                f"and processed, with {progress.published_count} and {progress.processed_count}: "
                f"{self._publisher.last_words()}"
            )

    async def _until_published(self, count: int) -> None:
        """Wait until so many events are published, or the publisher has ended."""
        progress = self._stage.progress
        if not await self._as_it_goes_on(
            lambda: progress.published_count >= count or self._publisher.exit_code is not None,
            lambda: progress.published_count,
        ):
            raise UnavailableError(
                f"after {progress.published_count} events none was published for "
                f"{END_TIMEOUT_S:g} s: {self._publisher.last_words()}"
            )

    async def _finish(self, event_count: int) -> None:
        """Wait until everything is published and processed."""
        stage = self._stage
        await self._until_published(event_count)
        await stage.until(lambda: self._publisher.exit_code is not None, END_TIMEOUT_S)
        if self._publisher.exit_code != 0:
            raise InternalError(
                f"the publisher ended with status {self._publisher.exit_code}: "
                f"{self._publisher.last_words()}"
            )
        await self._as_it_goes_on(
            lambda: stage.progress.has_all, lambda: stage.progress.processed_count
        )

    async def _as_it_goes_on(self, condition: Callable[[], bool], count: Callable[[], int]) -> bool:
        """Wait for a condition while a count grows; False: it stood still for END_TIMEOUT_S."""
        before = -1
        while count() != before:
            before = count()
            if await self._stage.until(condition, END_TIMEOUT_S):
                return True
        return False

    async def _do(self, step: Step) -> str:
        """Make a change; return the consumer that was killed, if one was."""
        first = next(iter(self._stage.consumers), "")
        match step.action:
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
            case Rescale(count, victim):
                return await self._rescale(step.trigger, count, victim)
        return ""

    async def _rescale(self, trigger: str, count: int, victim: Victim) -> str:
        """Change the partition count, kill something meanwhile, and wait for the new layout."""
        before = await self._layout(lambda _: True)
        queue = self._runtime.queue(QUEUE)
        await change_count(queue, count)
        killed = ""
        match victim:
            case Victim.COORDINATOR:
                await queue.coordinator.kill()
            case Victim.BROKER:
                await queue.brokers[0].kill()
            case Victim.CONSUMER:
                killed = next(iter(self._stage.consumers))
                await self._stage.kill_consumer(killed)
                await self._stage.start_consumer(killed)
        after = await self._layout(lambda layout: layout.partition_count == count)
        self._stage.partitions = {str(each) for each in after.current_partitions}
        self._tables[trigger] = before.table, after.table
        return killed

    async def _layout(self, is_right: Callable[[Layout], bool]) -> Layout:
        """Return the layout of the queue as soon as it is right."""
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < end:
            layout = await self._stage.layout()
            if layout is not None and is_right(layout):
                return layout
            await asyncio.sleep(POLL_S)
        raise UnavailableError(f"after {SETTLE_TIMEOUT_S:g} s the partition count is not changed")

    async def _kill_broker(self, broker: BrokerChild) -> None:
        """Kill a broker, and have it started again when the others have taken over."""
        # Else it would be back before its lease is over, and simply continue.
        broker.keep_running = False
        await broker.kill()
        if not await self._stage.until(lambda: self._is_without(broker.name), SETTLE_TIMEOUT_S):
            raise UnavailableError(f"nobody has taken over from {broker.name}")
        broker.keep_running = True
        await broker.start()

    def _is_without(self, broker: str) -> bool:
        """Say whether every partition belongs to another broker."""
        records = self._status.partitions.values() if self._status is not None else ()
        owners = [each.broker for each in records]
        return bool(owners) and broker not in owners and "" not in owners

    async def _scale(self, count: int) -> None:
        members = tuple(self._stage.consumers)
        await asyncio.gather(*map(self._stage.stop_consumer, members[count:]))
        for _ in range(count - len(members)):
            self._member_count += 1
            await self._stage.start_consumer(f"consumer-{self._member_count}")

    async def _wait_until_balanced(self, what: str, timeout_s: float) -> None:
        if not await self._stage.until(self._stage.is_balanced, timeout_s):
            raise UnavailableError(
                f"before {what!r}: after {timeout_s:g} s not every partition has its consumer: "
                f"{self._stage.imbalance()}"
            )

    async def _do_in_view(self, work: Coroutine[Any, Any, str]) -> str:
        """Return what comes of some work; the view continues meanwhile."""
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
