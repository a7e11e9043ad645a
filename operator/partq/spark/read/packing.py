"""Packs the ranges of a read into Spark's tasks: a task costs more than a small range does."""

import heapq
from collections.abc import Iterable, Sequence

from partq.spark.read.division import divide
from partq.spark.read.offsets import Range, TaskRanges
from partq.spark.read.options import ReadOptions

TASK_RECORDS = 2_000_000
"""How many messages a task has at most, if a partition has no more: what a failed task repeats."""
BLIND_TASK_RECORDS = 200_000
"""The same where Spark's cores are not known: large enough that the start of a task, some 50 ms of
a core, does not count, and small enough to leave most cores work."""
BLIND_TASKS = 8
"""How many tasks there are at least where Spark's cores are not known, one range each."""


def planned_tasks(options: ReadOptions, ranges: Iterable[Range]) -> list[TaskRanges]:
    """Return what each task of a read with these options reads; raises as `plan_tasks`."""
    return plan_tasks(
        ranges,
        cores=options.cores,
        at_least=options.min_partitions,
        at_most=options.max_tasks,
        most_records=options.max_records_per_partition,
    )


def plan_tasks(
    ranges: Iterable[Range],
    *,
    cores: int | None,
    at_least: int | None = None,
    at_most: int | None = None,
    most_records: int | None = None,
) -> list[TaskRanges]:
    """Return what each task reads: all messages of the ranges, in tasks of about the same size.

    Ranges are cut only for `at_least` and `most_records`. A partition's messages are in their order
    in a task, and those of an older generation come first.

    Args:
        ranges: one per partition.
        cores: how many tasks Spark runs at once; None: not known.
        at_least: how many tasks to make, if there are as many messages.
        at_most: how many tasks to make at most; None: as many as suit the cores and the size.
        most_records: the most messages of a task.

    Raises:
        BadRequestError: there are too many ranges; as `divide`.
    """
    pieces = divide(ranges, at_least=at_least, most_records=most_records)
    total = sum(each.size for each in pieces)
    count = at_most or max(at_least or 0, _suitable(total, cores))
    return _pack(pieces, count, most_records)


def _suitable(total: int, cores: int | None) -> int:
    """Return how many tasks of about the same size suit a read of so many messages."""
    if cores is None:
        return max(BLIND_TASKS, -(-total // BLIND_TASK_RECORDS))
    # As many for each core: with one task more than that, all but one core would wait for it.
    return cores * max(1, -(-total // (cores * TASK_RECORDS)))


def _pack(pieces: Sequence[Range], count: int, most_records: int | None) -> list[TaskRanges]:
    """Put the largest piece that is left into the task that has the least, again and again."""
    count = min(count, len(pieces))
    packed: list[list[Range]] = [[] for _ in range(count)]
    emptiest = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda each: -each.size):
        size, number = emptiest[0]
        if most_records is not None and size + piece.size > most_records:
            heapq.heappush(emptiest, (piece.size, len(packed)))
            packed.append([piece])
        else:
            heapq.heapreplace(emptiest, (size + piece.size, number))
            packed[number].append(piece)
    tasks = [sorted(each, key=lambda piece: (piece.partition, piece.start)) for each in packed]
    return [TaskRanges(tuple(each)) for each in sorted(tasks, key=lambda each: each[0].partition)]
