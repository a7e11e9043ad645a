"""Many seeds on many processes; what failed is told by its seed, which is enough to replay it."""

import gc
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Final

from partq.simulate.trial import run_seed

CHUNK: Final = 20
"""Seeds that a process takes at once."""
CHUNKS_PER_PROCESS: Final = 50
"""After so many a process is replaced: nothing of a long run is kept."""


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


def run_many(seeds: Sequence[int], event_count: int, workers: int) -> Iterator[Result]:
    """Run seeds on `workers` processes, and return each result as it comes."""
    if workers == 1:
        for seed in seeds:
            yield from run_chunk([seed], event_count)
        return
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=CHUNKS_PER_PROCESS,
    ) as pool:
        running = {
            pool.submit(run_chunk, chunk, event_count) for chunk in islice(chunks, 2 * workers)
        }
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for chunk in islice(chunks, len(done)):
                    running.add(pool.submit(run_chunk, chunk, event_count))
                for each in done:
                    yield from each.result()
        finally:
            for each in running:
                each.cancel()


def run_chunk(seeds: Sequence[int], event_count: int) -> list[Result]:
    """Run some seeds in this process."""
    results = []
    for seed in seeds:
        outcome = run_seed(seed, event_count)
        violation = outcome.violation
        results.append(
            Result(
                seed=seed,
                digest=outcome.digest,
                failure="" if violation is None else f"{violation.invariant}: {violation.text}",
                simulated_s=outcome.simulated_s,
                recovery_s=outcome.recovery_s,
                handed=outcome.handed,
                duplicates=outcome.duplicates,
                commits=outcome.commits,
            )
        )
    gc.collect()
    return results
