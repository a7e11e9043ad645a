"""Which producer a task is, and which of its rows are stored already."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from partq.core.model import PartitionId
from partq.errors import ConflictError
from partq.spark.encoding import Run

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream; both come again when a micro-batch is run again."""


@dataclass(frozen=True, slots=True)
class TaskId:
    """A task, as the brokers know it: the same at each of its attempts."""

    producer: str
    words: str
    """For people."""
    is_repeatable: bool
    """Whether another attempt has the same name, so that it skips what is stored."""


def task_of_write(write_id: str, *, is_exactly_once: bool) -> TaskId:
    """Return who this task of a batch write is."""
    partition = _partition_id()
    words = f"task {partition} of write {write_id!r}"
    return _task(f"spark-write:{write_id}:{partition}", words, is_exactly_once)


def task_of_stream(*, is_exactly_once: bool) -> TaskId:
    """Return who this task of a stream is: of its query, micro-batch and Spark partition."""
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY_ID) if context is not None else None
    batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
    partition = _partition_id()
    words = f"task {partition} of micro-batch {batch} of query {query}"
    return _task(
        f"spark-stream:{query}:{batch}:{partition}",
        words,
        is_exactly_once and query is not None and batch is not None,
    )


def _task(producer: str, words: str, is_repeatable: bool) -> TaskId:
    if not is_repeatable:
        producer = f"spark-attempt:{uuid.uuid4().hex}"
    return TaskId(producer, words, is_repeatable)


def _partition_id() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


class Numbering:
    """Numbers the rows of a task per partition, and leaves out those that are stored.

    Args:
        task: whose rows they are.
        due: the number of the first message per partition that is not stored.
    """

    def __init__(self, task: TaskId, due: Mapping[PartitionId, int]) -> None:
        self._task = task
        self._due = due
        self._next: dict[PartitionId, int] = {}
        self.skipped_count = 0

    def rest(self, run: Run) -> Run | None:
        """Return what is not stored of the next messages of a partition; None: all of it is."""
        first = self._next.get(run.partition, 0)
        self._next[run.partition] = first + len(run)
        known = min(max(self._due[run.partition] - first, 0), len(run))
        self.skipped_count += known
        return run.part(known, len(run)) if known < len(run) else None

    def check_end(self) -> None:
        """See, once there are no more rows, that they can be those of the attempt before.

        Raises:
            ConflictError: more is stored than there are rows.
        """
        for partition, due in self._due.items():
            count = self._next.get(partition, 0)
            if due > count:
                raise ConflictError(
                    f"{self._task.words}: {due} rows of partition {partition} are stored, and this "
                    f"attempt has {count}: its input is not the same at each attempt; make it so, "
                    "or set the option exactlyOnce to false"
                )
