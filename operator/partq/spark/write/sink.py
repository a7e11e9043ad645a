"""Writing a DataFrame, or the micro-batches of a stream, to a queue.

Every task is a separate producer, under a name that its next attempt has, too; its rows are
numbered per partition. An attempt asks the brokers first what is stored, and leaves that out. When
the partition count of the queue is changed meanwhile, it fails, and the next one goes on.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import datasource as spark_api
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType, TimestampType

from partq.core.numbering.fixed_series import first_layout
from partq.errors import BadRequestError
from partq.spark.connectivity import at_first, find_brokers
from partq.spark.errors import short_errors
from partq.spark.write.batcher import Batcher
from partq.spark.write.earlier_rows import EarlierRows
from partq.spark.write.encoding import RowEncoder
from partq.spark.write.keyless import KeylessSlots
from partq.spark.write.numbering import Numbering, TaskId, task_of_stream, task_of_write
from partq.spark.write.sending import TaskSender, check_queue
from partq.spark.write.sink_columns import WriteColumns, write_columns
from partq.spark.write.sink_options import WriteOptions, write_options

log = logging.getLogger("partq.spark")

ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task has done: all its rows are stored."""

    row_count: int
    skipped_count: int
    """How many of them an earlier attempt had stored."""


@dataclass(frozen=True, slots=True)
class Sink:
    """What the writers of a batch and of a stream share; travels to the executors."""

    options: WriteOptions
    columns: WriteColumns

    def write(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> TaskCommit:
        """Store the rows of a task; return once each of them is stored, on every disk it goes to.

        Raises:
            PartqError: not all of them are, or that is unknown; what is stored stays, and the next
                attempt of the task leaves it out.
        """
        with short_errors():
            return self._write(batches, task)

    def _write(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> TaskCommit:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return TaskCommit(0, 0)  # nothing was stored before, either: no broker need be asked
        if not task.is_repeatable:
            log.warning("%s: its rows are stored at least once", task.words)
        row_count = 0
        with TaskSender(self.options.connection, task.producer) as sender:
            queue_layout = sender.state.queue_layout
            layout = queue_layout.layout
            earlier = EarlierRows(sender.state.earlier)
            encoder = RowEncoder(
                self.columns,
                layout,
                # An attempt before a change of the partition count has chosen the same slots.
                KeylessSlots(task.producer, first_layout(layout), queue_layout.keyless_policy),
                earlier,
                max_message_bytes=queue_layout.max_message_bytes,
                ttl_ms=self.options.ttl_ms,
                keeps_key_headers=self.options.keeps_key_headers,
            )
            numbering = Numbering(task, sender.state.progress)
            gathering = Batcher(self.options.codec)
            batch: pa.RecordBatch | None = first
            while batch is not None:
                row_count += batch.num_rows
                for run in encoder.encode(batch):
                    if (rest := numbering.rest(run)) is not None:
                        for partition, ready in gathering.add(rest):
                            sender.send(partition, ready)
                batch = next(filled, None)
            numbering.check_end(earlier)
            for partition, ready in gathering.rest():
                sender.send(partition, ready)
            sender.flush()
        return TaskCommit(row_count, numbering.skipped_count + earlier.count)


class PartqWriter(DataSourceArrowWriter):
    """Writes the tasks of a batch."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Store a task's rows; raises as `Sink.write`."""
        options = self._sink.options
        task = task_of_write(options.write_id, is_exactly_once=options.is_exactly_once)
        return self._sink.write(iterator, task)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what was written: it was delivered from the moment on in which it was stored."""
        log.info("write %r: %s", self._sink.options.write_id, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Say what stays written: nothing is taken back."""
        options = self._sink.options
        advice = "; repeat the write with this writeId to add the missing rows"
        log.warning(
            "write %r has failed: %s. Rows that are stored stay in the queue, also those of the "
            "failed tasks%s",
            options.write_id,
            _sum(messages),
            advice if options.is_exactly_once else "",
        )


class PartqStreamWriter(DataSourceStreamWriter):
    """Writes the tasks of micro-batches, row by row: all that Spark 4.0 has for streams."""

    def __init__(self, sink: Sink, schema: StructType) -> None:
        self._sink = sink
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> TaskCommit:
        """Store a task's rows; raises as `Sink.write`."""
        return self._write(_batches(iterator, self._schema))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's
        """Say what was written."""
        log.info("micro-batch %d: %s", batchId, _sum(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's
        """Say what stays written; the micro-batch is repeated, and leaves it out."""
        log.warning(
            "micro-batch %d has failed: %s. Rows that are stored stay in the queue, also those of "
            "the failed tasks",
            batchId,
            _sum(messages),
        )

    def _write(self, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
        task = task_of_stream(is_exactly_once=self._sink.options.is_exactly_once)
        return self._sink.write(batches, task)


if hasattr(spark_api, "DataSourceStreamArrowWriter"):  # Spark 4.1

    class PartqStreamArrowWriter(PartqStreamWriter, spark_api.DataSourceStreamArrowWriter):
        """Writes the tasks of micro-batches as Arrow."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
            """Store a task's rows; raises as `Sink.write`."""
            return self._write(iterator)


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> PartqWriter:
    """Return the writer of `df.write`.

    Raises:
        BadRequestError: an option, a column or the mode is unusable; nothing is written.
        PartqError: the brokers refuse the queue or the token, or none serves a partition in time.
    """
    if overwrite:
        raise BadRequestError("mode overwrite: a queue is only appended to; use mode('append')")
    sink = Sink(write_options(given, is_stream=False), write_columns(schema))
    find_brokers(sink.options.connection)
    check_queue(at_first(sink.options.connection))
    return PartqWriter(sink)


def stream_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> PartqStreamWriter:
    """Return the writer of `df.writeStream`; raises as `batch_writer`."""
    if overwrite:
        raise BadRequestError(
            "output mode complete: a queue is only appended to; use append or update"
        )
    sink = Sink(write_options(given, is_stream=True), write_columns(schema))
    find_brokers(sink.options.connection)
    check_queue(sink.options.connection)
    if hasattr(spark_api, "DataSourceStreamArrowWriter"):
        return PartqStreamArrowWriter(sink, schema)
    return PartqStreamWriter(sink, schema)


def _sum(messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [message for message in messages if isinstance(message, TaskCommit)]
    rows = sum(message.row_count for message in done)
    skipped = sum(message.skipped_count for message in done)
    return (
        f"{len(done)} of {len(messages)} tasks have stored all of their rows: {rows} rows, of "
        f"which earlier attempts had stored {skipped}"
    )


def _batches(rows: Iterator[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Return rows as Arrow, some thousand at a time."""
    names = schema.fieldNames()
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        columns = zip(*chunk, strict=True)
        yield pa.RecordBatch.from_arrays(
            [
                _array(list(values), field.dataType)
                for values, field in zip(columns, schema.fields, strict=True)
            ],
            names,
        )


def _array(values: list[Any], kind: DataType) -> pa.Array:
    if isinstance(kind, TimestampType):
        # Spark makes times of the process's own zone of them, without naming it.
        numbers = [None if value is None else kind.toInternal(value) for value in values]
        return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.array(values, to_arrow_type(kind))
