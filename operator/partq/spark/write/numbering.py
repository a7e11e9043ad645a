"""Which producer a task is, and which of its rows are stored already."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from partq.client.transport.session import LastBatch, ProducerProgress
from partq.core.model import PartitionId
from partq.errors import ConflictError
from partq.spark.write.earlier_rows import EarlierRows
from partq.spark.write.encoding import EncodedRun
from partq.wire.batch import outline as outline_crc

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream; both are the same when a micro-batch is repeated."""


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
        progress: what is stored per partition.
    """

    def __init__(self, task: TaskId, progress: Mapping[PartitionId, ProducerProgress]) -> None:
        self._task = task
        self._progress = progress
        self._next: dict[PartitionId, int] = {}
        self._crcs: dict[PartitionId, int] = {}
        self.skipped_count = 0

    def rest(self, run: EncodedRun) -> EncodedRun | None:
        """Return what is not stored of the next messages of a partition; None: all of it is.

        Raises:
            ConflictError: what is stored is not what an attempt with these rows had stored.
        """
        first = self._next.get(run.partition, 0)
        self._next[run.partition] = first + len(run)
        progress = self._progress[run.partition]
        known = min(max(progress.due - first, 0), len(run))
        if not known:
            return run
        self.skipped_count += known
        if progress.outline is not None:
            self._compare(run.part(0, known), first, progress.outline)
        return run.part(known, len(run)) if known < len(run) else None

    def check_end(self, earlier: EarlierRows) -> None:
        """See, once there are no more rows, that they can be those of the attempt before.

        Raises:
            ConflictError: more is stored than there are rows.
        """
        for partition, progress in self._progress.items():
            count = self._next.get(partition, 0)
            if progress.due > count:
                raise self._more_stored(partition, progress.due, count)
        if (missing := earlier.missing()) is not None:
            series, due, count = missing
            raise self._more_stored(series.partition, due, count)

    def _more_stored(self, partition: PartitionId, due: int, count: int) -> ConflictError:
        return self._conflict(
            f"{due} rows of partition {partition} are stored, and this attempt has {count}"
        )

    def _compare(self, run: EncodedRun, first: int, outline: LastBatch) -> None:
        """Compare messages, numbered from `first`, with the last batch that is stored."""
        end = outline.first + outline.size
        start, stop = max(outline.first - first, 0), min(end - first, len(run))
        if start >= stop:
            return
        slots = run.slots[start:stop].astype("<u2").tobytes()
        sizes = run.sizes[start:stop].astype("<u4").tobytes()
        crc = outline_crc(slots, sizes, self._crcs.get(run.partition, 0))
        self._crcs[run.partition] = crc
        if first + stop == end and crc != outline.crc32c:
            raise self._conflict(
                f"rows {outline.first} to {end - 1} of partition {run.partition} are stored, and "
                "those of this attempt are others"
            )

    def _conflict(self, difference: str) -> ConflictError:
        return ConflictError(
            f"{self._task.words}: {difference}: its input is not the same at each attempt; make "
            "it so, with sortWithinPartitions say, or set the option exactlyOnce to false"
        )
