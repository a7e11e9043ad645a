"""Which processes serve a queue, and how much CPU time they have used."""

import os
from collections.abc import Iterable, Sequence

import psutil

from partq.embedded.child import Child
from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import InternalError
from partq.lab.bench.measure import Pids


def pids_of(runtime: EmbeddedRuntime) -> Pids:
    """Return the processes that serve a queue.

    Raises:
        InternalError: one has ended.
    """
    processes: dict[str, Sequence[Child]] = {
        "brokers": runtime.brokers,
        "coordinator": runtime.coordinators,
        "redis": [runtime.redis],
    }
    pids = {
        name: [child.pid for child in children if child.pid is not None]
        for name, children in processes.items()
    }
    if not all(pids.values()):
        raise InternalError(f"bench: processes have ended before the measurement: {pids}")
    return pids


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of processes, and of those that they have waited for, in seconds."""
    total = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue  # its parent has its time now
        total += times.user + times.system + times.children_user + times.children_system
    return total


def family_of_this_process(without: Iterable[int]) -> list[int]:
    """Return this process and all below it, less those given: Spark, and what it has started."""
    left = set(without)
    me = psutil.Process(os.getpid())
    return [each.pid for each in (me, *me.children(recursive=True)) if each.pid not in left]
