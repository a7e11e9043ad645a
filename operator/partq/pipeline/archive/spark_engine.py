"""Archives with Spark: tasks read the queue and write the files."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.pipeline.archive.audit_source import AuditSource
from partq.pipeline.archive.feeds import Feed, MessageFeed
from partq.pipeline.archive_columns import MESSAGE_COLUMNS
from partq.pipeline.archive_files import write_rows
from partq.pipeline.failures import spark_failures
from partq.pipeline.manifest import ArchivePosition, DataFile
from partq.pipeline.staging import Staging


class SparkEngine:
    """Runs in a Spark session; an engine as `ArchiveEngine` says."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def write(
        self,
        staging: Staging,
        feed: Feed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> list[DataFile]:
        """Write the rows, one file per task, partition and day."""
        with spark_failures():
            if isinstance(feed, MessageFeed):
                rows = self._messages(feed, starts, stops)
            else:
                rows = self._audit(feed, starts, stops)
            return write_rows(self._spark, staging, feed.stream, rows)

    def _messages(
        self,
        feed: MessageFeed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> DataFrame:
        """Return the messages; both ends are checked to be those that were planned."""
        # What the group has not done with is kept for it. Elsewhere the source keeps the log for
        # ten minutes, so nothing would be trimmed for as long. That the log is still the one that
        # `starts` speak of was checked when the cursors moved there.
        cursors = {name: at.offset for name, at in feed.beginnings().items()}
        is_there = cursors == {name: at.offset for name, at in starts.items()}
        where = "group" if is_there else _places(starts)
        wanted = [each for each, stop in stops.items() if stop.offset > starts[each].offset]
        return (
            self._spark.read.format("partq")
            .options(**feed.access.options(), group=feed.group)
            .option("startingOffsets", where)
            .option("endingOffsets", _places({**starts, **stops}))
            .option("columns", ",".join(MESSAGE_COLUMNS))
            .load()
            .where(F.col("partition").isin(wanted))
        )

    def _audit(
        self,
        feed: Feed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> DataFrame:
        """Return the records of the groups."""
        self._spark.dataSource.register(AuditSource)
        ranges = {
            each: [starts[each].offset, stop.offset]
            for each, stop in stops.items()
            if stop.offset > starts[each].offset
        }
        return (
            self._spark.read.format(AuditSource.name())
            .options(**feed.access.options())
            .option("ranges", json.dumps(ranges))
            .load()
        )


def _places(positions: Mapping[str, ArchivePosition]) -> str:
    return json.dumps(
        {
            partition: {"offset": at.offset, "broker_epoch": at.append_broker_epoch}
            for partition, at in positions.items()
        }
    )
