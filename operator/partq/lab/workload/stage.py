"""One queue with worker processes around it, and what their journals say so far."""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import NOT_REACHED, Session
from partq.core.group.planner import GroupType
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT
from partq.embedded.runtime import RunningQueue
from partq.errors import InternalError, PartqError, UnavailableError
from partq.lab.verdict.journal import JournalReader
from partq.lab.verdict.journal_rows import Row
from partq.lab.verdict.progress import RunProgress
from partq.lab.workload.process import WorkerProcess
from partq.wire.calls.status import StatusAnswer

POLL_S: Final = 0.2
LEAVE_TIMEOUT_S: Final = 60.0


class Stage:
    """Starts, signals and watches the workers of one run; leaves none behind.

    `partition_count` is the queue's. Journals and logs of the workers go to `directory`. A consumer
    works for `work_ms` milliseconds on each message. `parts`: into how many parts a group of the
    type KeyShared cuts each partition; 0: it is of another type. `group_type`: of groups of the
    types Shared and Session the members are waited for, as they have no partitions for themselves.
    """

    def __init__(
        self,
        queue: RunningQueue,
        *,
        group: str,
        partition_count: int,
        directory: Path,
        work_ms: float = 0.0,
        parts: int = 0,
        group_type: str = GroupType.PARTITIONED,
    ) -> None:
        self.progress = RunProgress()
        self.consumers: dict[str, WorkerProcess] = {}
        """Those that are meant to run, by member, in the order of their starts."""
        self.partitions: Collection[str] | None = None
        """Those that take messages; None: all that were ever assigned. A partition that a change
        of the partition count has ended stays with a consumer until it is removed."""
        self.on_read: Callable[[], None] = lambda: None
        """Called after each look at the journals."""
        self._queue = queue
        self._group = group
        self._partition_count = partition_count
        self._work_ms = work_ms
        self._parts = parts
        self._module = "session_consumer" if group_type == GroupType.SESSION else "consumer"
        self._is_open = group_type in (GroupType.SHARED, GroupType.SESSION)
        self._journals = directory / "journals"
        self._logs = directory / "logs"
        self._reader = JournalReader(self._journals)
        self._workers: list[WorkerProcess] = []

    async def __aenter__(self) -> Self:
        self._journals.mkdir(parents=True)
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(worker.kill() for worker in self._workers))

    # ---- workers ----

    async def start_consumer(self, member: str) -> WorkerProcess:
        """Start a consumer; a member that died comes back under a new incarnation."""
        token = self._queue.tokens.consume
        args = ["--member", member, "--group", self._group, "--work-ms", str(self._work_ms)]
        worker = await self._start(member, f"partq.lab.workload.{self._module}", args, token)
        self.consumers[member] = worker
        return worker

    async def start_publisher(self, name: str, *args: str) -> WorkerProcess:
        """Start a producer with the arguments that say what it publishes."""
        token = self._queue.tokens.produce
        args = ("--name", name, *args)
        return await self._start(name, "partq.lab.workload.publisher", list(args), token)

    async def kill_consumer(self, member: str) -> None:
        """Kill a consumer with -9, and note that nobody works on its partitions."""
        await self.consumers.pop(member).kill()
        self.progress.drop_member(member)

    async def stop_consumer(self, member: str) -> None:
        """Let a consumer leave by SIGTERM, and see it gone.

        Raises:
            InternalError: it did not leave in time, or with an error.
        """
        worker = self.consumers.pop(member)
        if not await worker.stop(LEAVE_TIMEOUT_S) or worker.exit_code:
            raise InternalError(
                f"consumer {member} was told to leave and ended with status {worker.exit_code}: "
                f"{worker.last_words()}"
            )

    # ---- watching ----

    def read_journals(self) -> list[Row]:
        """Read what the journals say by now; return the new rows.

        Raises:
            InternalError: a consumer that is meant to run has ended.
        """
        rows = self._reader.read_new()
        self.progress.add(rows)
        for worker in self.consumers.values():
            if worker.exit_code is not None:
                raise InternalError(
                    f"{worker.name} has ended with status {worker.exit_code}: {worker.last_words()}"
                )
        self.on_read()
        return rows

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Read the journals until a condition holds; False: it does not in `timeout_s`.

        Raises:
            InternalError: as `read_journals`.
        """
        end = time.monotonic() + timeout_s
        while True:
            self.read_journals()
            if condition():
                return True
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(POLL_S)

    def tidy(self, before_ns: int) -> None:
        """Remove the journals of ended workers whose newest rows are older than an instant.

        `before_ns`: on the clock of the journals.

        Raises:
            InternalError: as `read_journals`.
        """
        self._workers = [worker for worker in self._workers if worker.exit_code is None]
        running = [worker.pid for worker in self._workers]
        self.read_journals()
        self._reader.remove_ended(running, before_ns)

    def is_balanced(self) -> bool:
        """Say whether the consumers that run have every partition, or all parts, evenly.

        Of a group whose members have no partitions for themselves: whether all have joined.
        """
        if self._is_open:
            return self.progress.members.issuperset(self.consumers)
        if self._parts:
            part_slots = -(-SLOT_COUNT // (self._partition_count * self._parts))
            return self.progress.is_shared_out(self.consumers, part_slots)
        partitions = self.partitions
        count = self._partition_count if partitions is None else len(partitions)
        return self.progress.is_balanced(self.consumers, count, partitions)

    def imbalance(self) -> str:
        """Return what `is_balanced` misses, in words."""
        if self._is_open:
            lacking = [each for each in self.consumers if each not in self.progress.members]
            return f"not joined: {', '.join(lacking)}"
        return self.progress.imbalance(self.consumers)

    async def layout(self) -> Layout | None:
        """Return the queue's layout as a broker names it; None: no broker answers."""
        async with self._session() as session:
            with suppress(PartqError):
                return (await session.layout(session.seeds)).layout
        return None

    async def status(self) -> StatusAnswer | None:
        """Return what a broker says of the queue; None: none answers."""
        async with self._session() as session:
            for url in session.seeds:
                try:
                    return await session.get(url, "/status", StatusAnswer)
                except (PartqError, *NOT_REACHED):
                    continue
        return None

    def _session(self) -> Session:
        queue = self._queue
        options = ConnectionOptions(
            queue.url, queue.name, token=queue.tokens.consume, namespace=queue.namespace
        )
        return Session(options)

    async def _start(self, name: str, module: str, args: list[str], token: str) -> WorkerProcess:
        where = ["--url", self._queue.url, "--queue", self._queue.name]
        try:
            worker = await WorkerProcess.start(
                name,
                module,
                [*where, "--journal", str(self._journals), *args],
                env={"PARTQ_TOKEN": token},
                directory=self._logs,
            )
        except OSError as error:
            raise UnavailableError(f"{name} cannot be started: {error}") from error
        self._workers.append(worker)
        return worker
