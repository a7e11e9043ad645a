"""Reads ranges of partitions, in a task of Spark."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from partq.arrow.columns import record_batches
from partq.client.log_reader import LogPosition
from partq.errors import DataLossError, RolledBackError
from partq.spark.errors import short_errors
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import Range, TaskRanges
from partq.spark.read.options import ReadOptions
from partq.spark.read.schema import arrow_schema
from partq.wire.calls.entries import StoredBatch


def read_ranges(
    options: ReadOptions, schema: StructType, task: TaskRanges
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task, range by range.

    Args:
        options: of the read.
        schema: the columns that are asked for.
        task: what to read.

    Raises:
        DataLossError: messages are gone by now, and `failOnDataLoss` is true.
        RolledBackError: the store has other messages by now than those that were planned.
        UndecodableError: a message does not decode.
        PartqError: the brokers refuse, or nobody serves the partition in time.
    """
    with short_errors(), LogThread(options.connection) as log:
        if task.pin is not None:
            log.hold(task.pin, {each.partition: each.kept_from for each in task.ranges})
        for each in task.ranges:
            yield from record_batches(
                _stored(log, options, each),
                arrow_schema(schema),
                queue=options.connection.queue,
                partition=each.partition,
                start=each.start,
                stop=each.stop,
            )


def _stored(log: LogThread, options: ReadOptions, planned: Range) -> Iterator[StoredBatch]:
    """Yield the stored batches of a range."""
    start = LogPosition(planned.partition, planned.start_epoch, planned.start)
    stop = LogPosition(planned.partition, planned.stop_epoch, planned.stop)
    due = planned.start
    while due < planned.stop:
        try:
            for batch in log.entries(planned.partition, start, stop):
                if planned.most_epoch and batch.append_broker_epoch > planned.most_epoch:
                    raise RolledBackError(
                        f"queue {options.connection.queue!r}, partition {planned.partition}: the "
                        f"message at {batch.first} was stored after this read was planned: the "
                        "store was rolled back; start the query again"
                    )
                yield batch
                due = batch.first + batch.count
            return
        except DataLossError:
            if options.fail_on_data_loss:
                raise
            found = log.positions("earliest", [planned.partition])[planned.partition]
            if found.offset <= due:
                raise
            due = min(found.offset, planned.stop)
            start = LogPosition(planned.partition, 0, due)
