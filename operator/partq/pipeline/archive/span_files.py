"""Writes the rows of a span to Parquet files, one for each day on which rows were stored."""

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from partq.errors import InternalError
from partq.pipeline.archive_columns import PLACE, arrow_schema
from partq.pipeline.manifest import DataFile, Stream
from partq.pipeline.storage.local_files import LocalFiles

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of Arrow columns are kept in memory for a file, before they are written."""
ROW_GROUP_ROWS: Final = 1_000_000
MAX_OPEN_FILES: Final = 8
"""How many days of a span are written at once. Rows are in the order of time, unless the clock of
Redis was set back: a day that returns after this many others gets a second file."""

_TIME: Final[dict[Stream, str]] = {"messages": "publish_time", "audit": "at_ms"}
_US_PER_MS = 1000
_DAY_MS = 86_400_000
_FIRST_DAY = date(1970, 1, 1)
# Of what hardly repeats a dictionary is begun in vain.
_PLAIN = ("offset", "value", "encoded", "previous", "chain")


class SpanFiles:
    """The files of one span of a partition; rows are added in their order.

    Args:
        files: where to.
        folder: for the folders of the days.
        stream: of the rows.
        partition: the one they are all of.
    """

    def __init__(self, files: LocalFiles, folder: str, stream: Stream, partition: str) -> None:
        self._files = files
        self._folder = folder
        self._stream: Stream = stream
        self._partition = partition
        self._open: dict[int, _DayFile] = {}
        self._paths: list[str] = []

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows, or keep them until there are enough.

        Raises:
            OSError: the disk does not take them.
        """
        for rows in batches:
            for day, part in _by_day(self._stream, rows):
                (self._open.get(day) or self._begin(day)).add(part)

    def close(self) -> None:
        """Write what is kept, and end the files."""
        while self._open:
            self._open.popitem()[1].close()

    def abandon(self) -> None:
        """Leave the files as they are, for somebody to delete."""
        while self._open:
            self._open.popitem()[1].abandon()

    def measure(self) -> list[DataFile]:
        """Return what stands in the files, read from them, in the order of their first rows.

        Raises:
            InternalError: it is not what was written.
        """
        found = [self._measure(path) for path in self._paths]
        return sorted(found, key=lambda each: each.first)

    def _begin(self, day: int) -> "_DayFile":
        for file in self._open.values():
            file.flush()  # so that one alone keeps rows
        if len(self._open) == MAX_OPEN_FILES:
            self._open.pop(min(self._open)).close()
        name = (_FIRST_DAY + timedelta(days=day)).isoformat()
        folder = f"{self._folder}/date={name}/queue_partition={self._partition}"
        path = f"{folder}/part-{len(self._paths):05d}.parquet"
        self._paths.append(path)
        target = self._files.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        file = self._open[day] = _DayFile(str(target), arrow_schema(self._stream))
        return file

    def _measure(self, path: str) -> DataFile:
        at, time = PLACE[self._stream][0], _TIME[self._stream]
        target = self._files.path(path)
        try:
            with pq.ParquetFile(target, read_dictionary=["partition"]) as file:
                groups = [
                    self._measure_group(file.read_row_group(number, ["partition", at, time]))
                    for number in range(file.num_row_groups)
                ]
        except (OSError, pa.ArrowException) as error:
            raise InternalError(f"{target}: was written, and cannot be read: {error}") from error
        if any(each.partitions != {self._partition} for each in groups):
            raise InternalError(f"{target}: got rows of others than partition {self._partition}")
        return DataFile(
            path=path,
            stream=self._stream,
            partition=self._partition,
            first=min(each.first for each in groups),
            stop=max(each.last for each in groups) + 1,
            rows=sum(each.rows for each in groups),
            bytes=target.stat().st_size,
            min_ms=min(each.min_ms for each in groups),
            max_ms=max(each.max_ms for each in groups),
        )

    def _measure_group(self, rows: pa.Table) -> "_RowGroup":
        places = pc.min_max(rows[PLACE[self._stream][0]]).as_py()
        times = pc.min_max(_ms(rows[_TIME[self._stream]])).as_py()
        return _RowGroup(
            frozenset(pc.unique(rows["partition"]).to_pylist()),
            rows.num_rows,
            places["min"],
            places["max"],
            times["min"],
            times["max"],
        )


class _RowGroup(NamedTuple):
    """What a row group holds."""

    partitions: frozenset[str]
    rows: int
    first: int
    last: int
    min_ms: int
    max_ms: int


class _DayFile:
    """A Parquet file; rows are kept until they make a row group."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in _PLAIN],
        )
        self._schema = schema
        self._kept: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._kept.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES or self._rows >= ROW_GROUP_ROWS:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def abandon(self) -> None:
        self._kept = []
        self._writer.close()

    def flush(self) -> None:
        if not self._kept:
            return
        table = pa.Table.from_batches(self._kept, self._schema)
        self._kept, self._rows, self._bytes = [], 0, 0
        self._writer.write_table(table, row_group_size=table.num_rows)


def _by_day(stream: Stream, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield runs of rows of one day, in UTC, each with its day since 1970."""
    if not rows.num_rows:
        return
    days = _ms(rows[_TIME[stream]]).to_numpy(zero_copy_only=False) // _DAY_MS
    starts = [0, *(np.flatnonzero(days[1:] != days[:-1]) + 1).tolist(), len(days)]
    for start, stop in pairwise(starts):
        yield int(days[start]), rows.slice(start, stop - start)


def _ms(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return instants as unix ms."""
    if pa.types.is_timestamp(times.type):
        return pc.divide(times.cast(pa.int64()), _US_PER_MS)
    return times
