"""Many seeds on many processes; what failed is told by its seed, which is enough to replay it."""

import gc
import multiprocessing
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Final, cast

from partq.errors import InternalError
from partq.simulate.trial import run_seed

CHUNK_EVENTS: Final = 1000
"""A process ends after seeds of so many events in all: that is when their memory is freed."""


@dataclass(frozen=True, slots=True)
class Result:
    """What is kept of a seed."""

    seed: int
    digest: int
    failure: str
    """Empty: every invariant held."""
    simulated_s: float
    recovery_s: float
    handed: int
    duplicates: int
    commits: int


def run_many(seeds: Sequence[int], event_count: int, workers: int) -> Generator[Result, None, None]:
    """Run seeds on `workers` processes, and return each result as it comes; closing it ends them.

    Raises:
        InternalError: a process ended before its seeds were done.
    """
    if workers == 1:
        for seed in seeds:
            yield run_one(seed, event_count)
        return
    size = max(1, min(CHUNK_EVENTS // event_count, len(seeds) // workers))
    chunks = iter([seeds[at : at + size] for at in range(0, len(seeds), size)])
    # Each process does one chunk, and is made from one that has everything loaded.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__])
    running: dict[Connection, BaseProcess] = {}
    """By the connection on which its results come."""
    try:
        while True:
            while len(running) < workers and (chunk := next(chunks, None)) is not None:
                results, sender = context.Pipe(duplex=False)
                worker = context.Process(target=_run_chunk, args=(chunk, event_count, sender))
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


def run_one(seed: int, event_count: int) -> Result:
    """Run a seed in this process."""
    outcome = run_seed(seed, event_count)
    violation = outcome.violation
    return Result(
        seed=seed,
        digest=outcome.digest,
        failure="" if violation is None else f"{violation.invariant}: {violation.text}",
        simulated_s=outcome.simulated_s,
        recovery_s=outcome.recovery_s,
        handed=outcome.handed,
        duplicates=outcome.duplicates,
        commits=outcome.commits,
    )


def _run_chunk(seeds: Sequence[int], event_count: int, results: Connection) -> None:
    gc.disable()  # the process ends before that matters
    for seed in seeds:
        results.send(run_one(seed, event_count))
