"""Reads what a queue holds, for `spark.read`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from partq.spark.connectivity import find_brokers
from partq.spark.errors import short_errors
from partq.spark.read.division import divide
from partq.spark.read.filters import Narrowing
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import Range
from partq.spark.read.options import ReadOptions
from partq.spark.read.range_reader import read_range
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

    def __init__(self, options: ReadOptions, schema: StructType, *, pin: str) -> None:
        self._options = options
        self._schema = schema
        # What a group has not done with is kept for it; a pin would hold it for ten minutes more.
        self._pin = None if options.start.everywhere == "group" else pin
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
            if self._pin is not None and ranges:
                log.hold(self._pin, {each.partition: each.kept_from for each in ranges})
            found = divide(
                ranges,
                at_least=self._options.min_partitions,
                most_records=self._options.max_records_per_partition,
            )
            return list(found) or [InputPartition(None)]

    def _open(self) -> LogThread:
        find_brokers(self._options.connection)
        return LogThread(self._options.connection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one range."""
        if not isinstance(partition, Range):
            return iter(())  # there is nothing to read, and Spark wants a task for it
        return read_range(self._options, self._schema, partition, pin=self._pin)
