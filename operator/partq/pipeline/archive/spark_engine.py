"""Archives with Spark: tasks read the queue and write the files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.core.model import PartitionId
from partq.errors import InternalError
from partq.pipeline.archive.arrow_engine import ArrowEngine
from partq.pipeline.archive.audit_source import AuditSource
from partq.pipeline.archive.feeds import Feed, MessageFeed
from partq.pipeline.archive_columns import MESSAGE_COLUMNS
from partq.pipeline.archive_files import write_rows
from partq.pipeline.failures import spark_failures
from partq.pipeline.manifest import ArchivePosition, DataFile
from partq.pipeline.staging import Staging
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from partq.spark.errors import short_errors
from partq.spark.read.offsets import Range
from partq.spark.read.packing import plan_tasks

TASK_PARTITIONS_AT_ONCE = 2
"""How many partitions a task reads and writes at the same time: Spark runs a task on each core."""


class SparkEngine:
    """Runs in a Spark session; an engine as `ArchiveEngine` says.

    On paths, each task writes its partitions like the engine without Spark: rows that Java writes
    cost several times as much. Other storage only Java reaches.
    """

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
            if isinstance(staging.files, LocalFiles):
                return self._on_paths(staging, staging.files, feed, starts, stops)
            if isinstance(feed, MessageFeed):
                rows = self._messages(feed, starts, stops)
            else:
                rows = self._audit(feed, starts, stops)
            return write_rows(self._spark, staging, feed.stream, rows)

    def _on_paths(
        self,
        staging: Staging,
        files: LocalFiles,
        feed: Feed,
        starts: Mapping[str, ArchivePosition],
        stops: Mapping[str, ArchivePosition],
    ) -> list[DataFile]:
        """Have tasks write files, several partitions each."""
        context = self._spark.sparkContext
        spans = [
            Range(PartitionId.parse(name), starts[name].offset, stop.offset)
            for name, stop in stops.items()
        ]
        planned = plan_tasks(spans, cores=context.defaultParallelism)
        tasks = []
        for task in planned:
            names = [str(each.partition) for each in task.ranges]
            ends = {name: (starts[name], stops[name]) for name in names}
            tasks.append(_Task(files.root, staging.folder, feed, ends))
        if not tasks:
            return []
        found = context.parallelize(tasks, len(tasks)).flatMap(_run_task).collect()
        for each in found:
            if not files.path(each.path).is_file():
                raise InternalError(
                    f"{files.url(each.path)}: a task has written it, and it is not there; give a "
                    "ROOT that driver and executors share"
                )
        return sorted(found, key=lambda each: (PartitionId.parse(each.partition), each.first))

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
        # Partitions that were removed are in the archive, and the queue does not know them.
        starts = {name: at for name, at in starts.items() if name in cursors}
        stops = {name: at for name, at in stops.items() if name in cursors}
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
            each: [starts[each].offset, starts[each].chain, stop.offset, stop.chain]
            for each, stop in stops.items()
            if stop.offset > starts[each].offset
        }
        return (
            self._spark.read.format(AuditSource.name())
            .options(**feed.access.options())
            .option("ranges", json.dumps(ranges))
            .load()
        )


@dataclass(frozen=True, slots=True)
class _Task:
    """What a task writes."""

    root: str
    folder: str
    feed: Feed
    ends: Mapping[str, tuple[ArchivePosition, ArchivePosition]]


def _run_task(task: _Task) -> list[DataFile]:
    files = LocalFiles(task.root)
    staging = Staging(files)
    # Each attempt of a task has a folder: one that still runs disturbs no later one.
    staging.folder = f"{task.folder}/{uuid4().hex}"
    engine = ArrowEngine(JobWatch(), files, partitions_at_once=TASK_PARTITIONS_AT_ONCE)
    with short_errors():
        return engine.write(
            staging,
            task.feed,
            {name: start for name, (start, _) in task.ends.items()},
            {name: stop for name, (_, stop) in task.ends.items()},
        )


def _places(positions: Mapping[str, ArchivePosition]) -> str:
    return json.dumps(
        {
            partition: {"offset": at.offset, "broker_epoch": at.append_broker_epoch}
            for partition, at in positions.items()
        }
    )
