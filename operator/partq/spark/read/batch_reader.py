"""Reads what a queue holds, for `spark.read`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from partq.spark.connectivity import find_brokers
from partq.spark.errors import short_errors
from partq.spark.read.filters import Narrowing
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import TaskRanges, pin_name
from partq.spark.read.options import ReadOptions
from partq.spark.read.packing import planned_tasks
from partq.spark.read.range_reader import read_ranges
from partq.spark.read.read_planner import ReadPlanner

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


class _Taker:
    """Takes filters where Spark hands them over, and does not insist on it.

    Spark refuses a reader with a separate method for that while handing over is switched off,
    which it is by default. To Spark this is the method that every reader inherits, and which takes
    no filter; filters are then applied to all rows.
    """

    def __init__(self, take: Callable[[Iterable["Filter"]], Iterator["Filter"]]) -> None:
        self._take = take
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable["Filter"]) -> Iterator["Filter"]:
        return self._take(filters)


class BatchReader(DataSourceReader):
    """Covers what lies between two places of each partition, as of when it is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = Narrowing()
        self.pushFilters = _Taker(self._narrowing.accept)  # type: ignore[method-assign]

    def partitions(self) -> Sequence[InputPartition]:
        """Return what each task reads; raises what is wrong with the queue."""
        with short_errors(), self._open() as log:
            plan = ReadPlanner(log, self._options)
            plan.check()
            # The end first: what is stored meanwhile belongs to the next read.
            end = plan.end()
            begin = plan.start()
            ranges = self._narrowing.narrow(plan.ranges(begin, end), log)
            tasks = planned_tasks(self._options, ranges)
            # What a group has not done with is kept for it; a pin would hold it ten minutes longer.
            if ranges and self._options.start.everywhere != "group":
                kept_from = {each.partition: each.kept_from for each in ranges}
                pin = pin_name(kept_from)
                log.hold(pin, kept_from)
                tasks = [replace(each, pin=pin) for each in tasks]
            return list(tasks) or [InputPartition(None)]

    def _open(self) -> LogThread:
        find_brokers(self._options.connection)
        return LogThread(self._options.connection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task."""
        if not isinstance(partition, TaskRanges):
            return iter(())  # there is nothing to read, and Spark wants a task for it
        return read_ranges(self._options, self._schema, partition)
