"""Many seeds on many processes; what failed is told by its seed, which is enough to replay it."""

import gc
import multiprocessing
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, cast

from partq.core.group.planner import GroupType
from partq.embedded.redis_process import find_redis_server
from partq.errors import InternalError
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.machine.real_redis import ComparedRedis, RealRedis
from partq.lab.simulate.machine.stored import MakeMemory
from partq.lab.simulate.schedule import Schedule, draw_schedule
from partq.lab.simulate.trial import TrialOutcome, run_schedule

CHUNK_EVENTS: Final = 2000
"""A process ends after seeds of so many events in all: that is when their memory is freed."""
LONG_EVERY: Final = 10
"""Of so many seeds one is long, where short and long ones are asked for."""


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """What is said of the seeds; the rest is drawn. A seed has always the same schedule."""

    events: int
    long_events: int | None = None
    """Of every tenth seed; None: as all others."""
    assignment: Literal["Server", "Client"] | None = None
    """Of the group, in every seed; with Client its type is Partitioned. None: drawn."""

    is_rescaled: bool = False
    """Every seed changes the partition count, beside its other events; else some do."""
    is_key_shared: bool = False
    """The group has the type KeyShared in every seed, whatever `assignment` says; else in some."""
    is_session: bool = False
    """The same of the type Session."""

    is_shared: bool = False
    """The same with the type Shared."""

    def schedule(self, seed: int) -> Schedule:
        """Return the schedule of a seed."""
        has_rescales = True if self.is_rescaled else None
        draw = partial(draw_schedule, seed, self.event_count(seed), has_rescales=has_rescales)
        if self.is_key_shared:
            return draw(group_type=GroupType.KEY_SHARED)
        if self.is_shared:
            return draw(group_type=GroupType.SHARED)
        if self.is_session:
            return draw(group_type=GroupType.SESSION)
        match self.assignment:
            case None:
                return draw()
            case "Server":
                return draw(is_client_assigned=False)
            case "Client":
                return draw(is_client_assigned=True, group_type=GroupType.PARTITIONED)

    def event_count(self, seed: int) -> int:
        """Return how many events a seed has."""
        is_long = self.long_events is not None and seed % LONG_EVERY == LONG_EVERY - 1
        return self.long_events if is_long and self.long_events is not None else self.events


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a seed."""

    seed: int
    events: int
    """Beside changes of the partition count."""
    digest: int
    failure: str
    """Empty: every invariant held."""
    simulated_s: float
    recovery_s: float
    handed: int
    duplicates: int
    commits: int


def run_many(
    seeds: Sequence[int], options: SeedOptions, workers: int, *, is_compared: bool = False
) -> Generator[Result, None, None]:
    """Run seeds on `workers` processes, and return each result as it comes; closing it ends them.

    With `is_compared` every process has a real redis-server, which is asked whatever the simulated
    one is asked and must answer alike.

    Raises:
        InternalError: a process ended before its seeds were done.
        SettingsError: there is no redis-server, or it does not start.
    """
    if workers == 1:
        yield from _run(seeds, options, is_compared=is_compared)
        return
    if is_compared:
        find_redis_server()  # the user hears at once that none is installed
    ten = sum(options.event_count(seed) for seed in range(LONG_EVERY))
    average = ten // LONG_EVERY
    size = max(1, min(CHUNK_EVENTS // max(1, average), len(seeds) // workers))
    chunks = iter([seeds[at : at + size] for at in range(0, len(seeds), size)])
    # Each process does one chunk, and is made from one that has everything loaded.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    running: dict[Connection, BaseProcess] = {}
    """By the connection on which its results come."""
    # Processes that are killed leave files: here, where the end of this one finds them.
    files = TemporaryDirectory(prefix="partq-simulate-", ignore_cleanup_errors=True)
    try:
        while True:
            while len(running) < workers and (chunk := next(chunks, None)) is not None:
                results, sender = context.Pipe(duplex=False)
                worker = context.Process(
                    target=_run_chunk, args=(chunk, options, is_compared, Path(files.name), sender)
                )
                worker.start()
                sender.close()
                running[results] = worker
            if not running:
                return
            for ready in cast(list[Connection], wait([*running])):
                try:
                    yield ready.recv()
                except EOFError:
                    ready.close()
                    process = running.pop(ready)
                    process.join()
                    if process.exitcode:
                        raise InternalError(
                            f"a simulating process ended with exit code {process.exitcode}"
                        ) from None
    finally:
        for process in running.values():
            process.kill()
            process.join()
        files.cleanup()


def _run(
    seeds: Sequence[int], options: SeedOptions, *, is_compared: bool, files: Path | None = None
) -> Iterator[Result]:
    """Run seeds in this process."""
    with memories(is_compared=is_compared, files=files) as make_memory:
        for seed in seeds:
            outcome = run_schedule(options.schedule(seed), make_memory)
            yield _result(outcome, options.event_count(seed))


@contextmanager
def memories(*, is_compared: bool, files: Path | None = None) -> Iterator[MakeMemory]:
    """Return what makes the keys of the simulated Redis, compared with a real one or not.

    `files`: where the real one has its files; None: where files come and go.

    Raises:
        SettingsError: there is no redis-server, or it does not start.
    """
    if not is_compared:
        yield MemoryRedis
        return
    with RealRedis(files) as real:
        yield partial(ComparedRedis, real)


def _result(outcome: TrialOutcome, event_count: int) -> Result:
    violation = outcome.violation
    return Result(
        seed=outcome.schedule.seed,
        events=event_count,
        digest=outcome.digest,
        failure="" if violation is None else f"{violation.invariant}: {violation.text}",
        simulated_s=outcome.simulated_s,
        recovery_s=outcome.recovery_s,
        handed=outcome.handed,
        duplicates=outcome.duplicates,
        commits=outcome.commits,
    )


def _run_chunk(
    seeds: Sequence[int], options: SeedOptions, is_compared: bool, files: Path, results: Connection
) -> None:
    gc.disable()  # the process ends before that matters
    for result in _run(seeds, options, is_compared=is_compared, files=files):
        results.send(result)
