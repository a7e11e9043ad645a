"""A data source of Spark that reads ranges of the audit record, for the archive."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from partq.client.audit_reader import AuditReader
from partq.core.model import PartitionId
from partq.pipeline.archive.span_readers import AuditSpans
from partq.pipeline.archive_columns import AUDIT_COLUMNS
from partq.pipeline.manifest import ArchivePosition
from partq.spark.errors import short_errors


@dataclass
class AuditRange(InputPartition):
    """The groups [start, stop) of a partition, by sequence."""

    partition: str
    start: int
    stop: int


class AuditSource(DataSource):
    """Reads what the option `ranges` says: {"1.0": [START, STOP]}; the others say which queue."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "partq_audit"

    def schema(self) -> str:
        """Return the columns of the archive."""
        return ", ".join(f"`{name}` {kind}" for name, kind in AUDIT_COLUMNS.items())

    def reader(self, schema: StructType) -> "AuditRangesReader":
        """Return what reads; the columns are always all of them."""
        return AuditRangesReader({key.lower(): text for key, text in self.options.items()})


class AuditRangesReader(DataSourceReader):
    """Reads one range per task."""

    def __init__(self, options: dict[str, str]) -> None:
        self._ranges = {
            name: (int(start), int(stop))
            for name, (start, stop) in json.loads(options["ranges"]).items()
        }
        named = ("url", "queue", "namespace", "token")
        self._client: dict[str, Any] = {name: options[name] for name in named}
        self._client |= {"ca_file": options["cafile"]} if "cafile" in options else {}

    def partitions(self) -> list[InputPartition]:
        """Return the ranges."""
        return [AuditRange(name, start, stop) for name, (start, stop) in self._ranges.items()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range.

        Raises:
            PartqError: as `AuditReader.groups`.
        """
        wanted = cast(AuditRange, partition)
        with short_errors(), asyncio.Runner() as runner:
            batches = self._batches(wanted)
            while (batch := runner.run(_next(batches))) is not None:
                yield batch

    async def _batches(self, wanted: AuditRange) -> AsyncIterator[pa.RecordBatch]:
        start, stop = ArchivePosition(wanted.start), ArchivePosition(wanted.stop)
        async with AuditReader(**self._client) as reader:
            spans = AuditSpans(reader)
            async for decode in spans.fetch(PartitionId.parse(wanted.partition), start, stop):
                for batch in decode():
                    yield batch


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
