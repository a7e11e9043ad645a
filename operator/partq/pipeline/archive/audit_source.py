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
    """The groups [start, stop) of a partition, by sequence, with the chain at both ends."""

    partition: str
    start: int
    start_chain: str
    stop: int
    stop_chain: str


class AuditSource(DataSource):
    """Reads what the option `ranges` says; the others say which queue.

    `ranges` has the sequence and the chain of both ends: {"1.0": [0, "", 41, "3f..."]}.
    """

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
        self._ranges: dict[str, list[Any]] = json.loads(options["ranges"])
        named = ("url", "queue", "namespace", "token")
        self._client: dict[str, Any] = {name: options[name] for name in named}
        self._client |= {"ca_file": options["cafile"]} if "cafile" in options else {}

    def partitions(self) -> list[InputPartition]:
        """Return the ranges."""
        return [AuditRange(name, *ends) for name, ends in self._ranges.items()]

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
        start = ArchivePosition(wanted.start, chain=wanted.start_chain)
        stop = ArchivePosition(wanted.stop, chain=wanted.stop_chain)
        async with AuditReader(**self._client) as reader:
            spans = AuditSpans(reader)
            async for decode in spans.fetch(PartitionId.parse(wanted.partition), start, stop):
                for batch in decode():
                    yield batch


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
