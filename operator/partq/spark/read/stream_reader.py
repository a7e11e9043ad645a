"""Reads what comes into a queue, for `spark.readStream`."""

import logging
import signal
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from partq.core.model import PartitionId
from partq.errors import ConflictError, PartqError, RolledBackError, UnavailableError
from partq.spark.connectivity import find_brokers
from partq.spark.errors import short_errors
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import (
    OffsetsOrigin,
    ReadPosition,
    TaskRanges,
    from_json,
    origin_of,
    to_json,
)
from partq.spark.read.options import ReadOptions
from partq.spark.read.packing import planned_tasks
from partq.spark.read.range_reader import read_ranges
from partq.spark.read.read_planner import CHECKPOINT, ReadPlanner, log_positions
from partq.spark.read.trigger_delay import TriggerDelay

log = logging.getLogger("partq.spark")

ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end the process of a query."""


class StreamReader(DataSourceStreamReader):
    """Covers one micro-batch after another; where the last one ended is Spark's to know.

    One object of it lives in a process beside the driver as long as the query; others, in tasks,
    only read.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._query = uuid.uuid4().hex[:16]
        """The query's name in its checkpoint; of one with a checkpoint, as soon as that is seen."""
        self._pin = f"spark-{self._query}"
        self._delay = TriggerDelay(options.min_offsets_per_trigger, options.max_trigger_delay_s)
        self._is_spark_s = False
        self._is_kept = False
        """Whether the checkpoint has the query's name: a process after a crash finds it there."""
        self._thread: LogThread | None = None
        self._done: dict[PartitionId, ReadPosition] | None = None
        """What was told to the group, or pinned, last."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where a query begins that has no checkpoint."""
        with short_errors():
            plan = self._plan()
            plan.check()
            return self._to_json(plan.start())

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return what each task of a micro-batch reads."""
        with short_errors():
            plan = self._plan()
            begun, stop = self._known(plan, start), self._known(plan, end)
            if self._options.group:
                names = [each.query for each in map(_origin, (start, end)) if each is not None]
                self._query = names[-1] if names else self._query
                self._is_kept = True
                self._open().hold_group(self._options.group, self._query, earlier=names)
            # One that has no end was read before, and may be removed.
            begun = {each: position for each, position in begun.items() if each in stop}
            begin = plan.begin(begun, stop)
            return planned_tasks(self._options, plan.ranges(begin, plan.end_of(begin, stop)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task."""
        assert isinstance(partition, TaskRanges)  # noqa: S101  for mypy: Spark hands back what it was given
        return read_ranges(self._options, self._schema, partition)

    def commit(self, end: dict[str, object]) -> None:
        """Note that everything below `end` is processed."""
        with short_errors():
            origin = _origin(end)
            if origin is None or origin.life == self._open().life():
                self._finish(from_json(end))

    def stop(self) -> None:
        """Let go of everything."""
        if self._is_spark_s:
            # A second signal would cut off what the first one, or the end of the query, began.
            for number in ENDS:
                signal.signal(number, signal.SIG_IGN)
        thread, self._thread = self._thread, None
        if thread is not None:
            if not self._options.group:
                thread.let_go(self._pin)
            thread.close()

    def _to_json(self, positions: dict[PartitionId, ReadPosition]) -> dict[str, object]:
        return to_json(positions, OffsetsOrigin(self._open().life(), self._query))

    def _known(self, plan: ReadPlanner, body: dict[str, object]) -> dict[PartitionId, ReadPosition]:
        """Return positions of the checkpoint; none if they are of an earlier life of the queue.

        Raises:
            ConflictError: they are of another queue.
            RolledBackError: the queue was created again, and `failOnDataLoss` is true.
        """
        origin = _origin(body)
        if origin is not None and not plan.is_of_this_queue(CHECKPOINT, origin.life):
            return {}
        return from_json(body)

    def stop_on_signals(self) -> None:
        """Have the process let go of everything when Spark ends it, which is how a query stops.

        Spark calls `stop` as well, behind a read of a connection that it has closed; its signal
        comes at the same time, and would end the process before. At the end of the driver's
        terminal the signal is SIGHUP.
        """
        self._is_spark_s = True

    def _end(self, *_: object) -> NoReturn:
        """Stop within the signal: `sys.exit` alone could reach `stop` before its first line."""
        self.stop()
        sys.exit(0)

    def _open(self) -> LogThread:
        if self._is_spark_s:
            for number in ENDS:
                if signal.getsignal(number) is signal.SIG_DFL:
                    signal.signal(number, self._end)
        if self._thread is None:
            find_brokers(self._options.connection)
            self._thread = LogThread(self._options.connection)
        return self._thread

    def _plan(self) -> ReadPlanner:
        return ReadPlanner(self._open(), self._options)

    def _finish(self, done: dict[PartitionId, ReadPosition]) -> None:
        """Move the group's cursors to where the query has got; without a group, the pin.

        Raises:
            ConflictError: a member of the group is connected: then what Spark has not read yet
                could be acknowledged and trimmed under its feet.
        """
        if done == self._done or not done:
            return
        thread = self._open()
        layout = thread.layout()
        ours = {each: position for each, position in done.items() if each in layout}
        try:
            if self._options.group:
                if self._is_kept:
                    thread.hold_group(self._options.group, self._query)
                else:
                    first = layout.current_partitions[0]
                    thread.check_group(self._options.group, self._query, first)
        except UnavailableError as error:
            log.warning("progress is stored with the next batch: %s", error)
            return
        try:
            if self._options.group:
                thread.commit(self._options.group, log_positions(ours))
            else:
                thread.hold(self._pin, {each: position.offset for each, position in ours.items()})
        except (RolledBackError, UnavailableError) as error:
            # The next read finds out what a rollback means; cursors follow with the next batch.
            log.warning("progress could not be stored, it is stored with the next batch: %s", error)
            return
        except ConflictError as error:
            raise ConflictError(
                f"group {self._options.group!r}: its cursors are not moved to where the query is: "
                f"{error.message}; give Spark a separate group"
            ) from error
        self._done = done


def _origin(body: dict[str, object]) -> OffsetsOrigin | None:
    return origin_of(CHECKPOINT, body)


class FixedSignature(StreamReader):
    """For Spark 4.0 and 4.1, which name neither the start of a micro-batch nor a limit.

    Where the last one ended is known once Spark has planned one: it then runs each that it has
    planned. Before that, nothing tells a query without a checkpoint from one that continues after
    a crash; a limit counted from the wrong place would lead back, so no limit applies.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._reached: dict[PartitionId, ReadPosition] | None = None
        self._first_end: dict[PartitionId, ReadPosition] = {}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        """Return where a query begins that has no checkpoint; a group's cursors are there, then."""
        start = super().initialOffset()
        with short_errors():
            # Spark may have asked before where it ends; what came in between is not passed over.
            self._finish(
                {
                    each: min(position, self._first_end.get(each, position))
                    for each, position in from_json(start).items()
                }
            )
        return start

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """Return what each task of a micro-batch reads."""
        ranges = super().partitions(start, end)
        with short_errors():
            self._reached = self._known(self._plan(), end)
        return ranges

    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]  # noqa: N802
        """Return where the next micro-batch ends."""
        with short_errors():
            plan = self._plan()
            if self._reached is None:
                plan.check()
                self._first_end = plan.latest()
                return self._to_json(self._first_end)
            self._finish(self._reached)
            limit = self._options.max_offsets_per_trigger
            self._reached = plan.next_end(self._reached, limit=limit, is_enough=self._delay.is_due)
            return self._to_json(self._reached)


class RefusedReader(DataSourceStreamReader):
    """Says at its first call why there is no reader: a wrong option or schema.

    Spark takes the error of a reader that cannot be made for an internal one, and hides it.
    """

    def __init__(self, error: PartqError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        """Raise what is wrong, as every call."""
        with short_errors():
            raise self._error

    def latestOffset(self) -> NoReturn:  # type: ignore[override]  # noqa: N802
        """Raise what is wrong."""
        self.initialOffset()

    def partitions(self, _start: dict[str, object], _end: dict[str, object]) -> NoReturn:
        """Raise what is wrong."""
        self.initialOffset()

    def read(self, _partition: InputPartition) -> NoReturn:
        """Raise what is wrong."""
        self.initialOffset()
