"""Reads the rows of a partition from the files of an archive, in order, with pyarrow."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from partq.errors import InternalError
from partq.pipeline.archive_columns import PLACE, arrow_schema
from partq.pipeline.manifest import DataFile, Stream

BATCH_ROWS = 65_536

_NAMES: Final[dict[Stream, list[str]]] = {"messages": ["key", "partition"], "audit": ["partition"]}
"""Columns that are read as dictionaries: their values repeat."""


@dataclass(frozen=True, slots=True)
class _FileRows:
    path: str
    first: int
    last: int
    is_sorted: bool
    is_pure: bool
    """All are of the partition."""


class PartitionFiles:
    """The files of one partition and stream, as they are on this machine.

    Args:
        root: the folder that paths of files are below.
        stream: which rows they hold.
        partition: whose.
        files: of that stream and partition.
    """

    def __init__(
        self, root: str, stream: Stream, partition: str, files: Sequence[DataFile]
    ) -> None:
        self._root = root
        self._place = PLACE[stream]
        self._schema = arrow_schema(stream)
        self._names = _NAMES[stream]
        self._partition = partition
        self._files = files

    def batches(
        self, columns: Sequence[str], *, first: int = 0, stop: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the order of their places.

        Args:
            columns: which, those of the place among them.
            first: leave out files all of whose rows lie below.
            stop: leave out files all of whose rows lie here or above; None: none.

        Raises:
            InternalError: a file is not there, or cannot be read.
        """
        found = [
            rows
            for rows in map(self._inspect, self._files)
            if rows is not None and rows.last >= first and (stop is None or rows.first < stop)
        ]
        found.sort(key=lambda rows: (rows.first, rows.last))
        while found:
            together = [found.pop(0)]
            while found and found[0].first <= max(rows.last for rows in together):
                together.append(found.pop(0))
            if len(together) == 1 and together[0].is_sorted:
                yield from self._read(together[0], columns)
                continue
            # Files follow each other; what lies across each other is put in order in memory.
            batches = [batch for rows in together for batch in self._read(rows, columns)]
            if batches:
                table = pa.Table.from_batches(batches).unify_dictionaries()
                table = table.sort_by([(name, "ascending") for name in self._place])
                yield from table.combine_chunks().to_batches(BATCH_ROWS)

    def _open(self, path: str) -> parquet.ParquetFile:
        # Spark writes times as nanoseconds in 96 bits; 64 bits of them end in the year 2262.
        return parquet.ParquetFile(
            path, read_dictionary=self._names, coerce_int96_timestamp_unit="us"
        )

    def _inspect(self, file: DataFile) -> _FileRows | None:
        path = f"{self._root}/{file.path}"
        with _naming(path), self._open(path) as opened:
            if not opened.metadata.num_rows:
                return None
            table = opened.read(columns=list(self._place))
            places = [table.column(name).to_numpy() for name in self._place]
            names = pc.unique(opened.read(columns=["partition"]).column(0)).to_pylist()
        return _FileRows(
            path,
            int(places[0].min()),
            int(places[0].max()),
            _is_sorted(places),
            names == [self._partition],
        )

    def _read(self, rows: _FileRows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = list(columns) if rows.is_pure else [*columns, "partition"]
        with (
            _naming(rows.path),
            self._open(rows.path) as opened,
        ):
            for batch in opened.iter_batches(BATCH_ROWS, columns=wanted):
                own = batch
                if not rows.is_pure:
                    own = batch.filter(pc.equal(batch.column("partition"), self._partition))
                yield self._with_all(own, columns)

    def _with_all(self, batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
        """Return these columns alone; those that an older file lacks are null."""
        there = frozenset(batch.schema.names)
        arrays = [
            batch.column(name)
            if name in there
            else pa.nulls(batch.num_rows, self._schema.field(name).type)
            for name in columns
        ]
        return pa.RecordBatch.from_arrays(arrays, list(columns))


def _is_sorted(places: Sequence["np.ndarray[tuple[int], np.dtype[np.int64]]"]) -> bool:
    """Return whether rows stand in the order of one column, and of the next where it is equal."""
    is_less = np.zeros(len(places[0]) - 1, bool)
    is_equal = ~is_less
    for column in places:
        step = np.diff(column)
        if (is_equal & (step < 0)).any():
            return False
        is_equal &= step == 0
    return True


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    # Of columns that are not there, have another type or a null that cannot be.
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InternalError(f"{path}: cannot be read: {reason}") from error
