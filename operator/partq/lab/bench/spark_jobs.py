"""What `partq bench spark` has Spark do: make rows, write, read, archive and audit them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.errors import BadRequestError
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive.archiver import Archiver, ArchiveSettings
from partq.pipeline.archive.audit_feed import AuditFeed
from partq.pipeline.archive.feeds import MessageFeed
from partq.pipeline.archive.spark_engine import SparkEngine
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.audit.engines.spark import SparkAuditEngine
from partq.pipeline.audit.job import run_audit
from partq.pipeline.audit.verdict import AuditVerdict
from partq.pipeline.job import Job
from partq.pipeline.storage.files import open_files

READ = ("key", "value", "partition", "offset", "publish_time")
"""The columns that are read from both."""


def make_rows(spark: SparkSession, events: Path, row_count: int, files: int, folder: Path) -> int:
    """Write events as Parquet, repeated until there are enough, and return how many there are.

    Args:
        spark: to write with.
        events: NDJSON, gzipped or not, each line with its `key`.
        row_count: how many rows; rounded down to whole repeats of all events, at least one.
        files: into how many files they go.
        folder: for them; must not exist.

    Raises:
        BadRequestError: no line has a key.
    """
    lines = spark.read.text(str(events)).select(
        F.get_json_object("value", "$.key").alias("key"), F.col("value").cast("binary")
    )
    lines = lines.where("key is not null").repartition(files, "key").cache()
    count = lines.count()
    if not count:
        raise BadRequestError(f"{events}: expected lines of JSON with a field key, got none")
    repeats = spark.range(max(1, row_count // count), numPartitions=1)
    rows = lines.crossJoin(F.broadcast(repeats)).select(
        "key",
        "value",
        # What a queue gives as well, so that both sides read columns of the same kinds.
        F.lit("1.0").alias("partition"),
        F.monotonically_increasing_id().alias("offset"),
        F.current_timestamp().alias("publish_time"),
    )
    rows.write.parquet(str(folder))
    lines.unpersist()
    return spark.read.parquet(str(folder)).count()


def write_queue(spark: SparkSession, folder: Path, options: Mapping[str, str]) -> None:
    """Publish the rows of Parquet files to a queue."""
    rows = spark.read.parquet(str(folder)).select("key", "value")
    rows.write.format("partq").mode("append").options(**options).save()


def read_queue(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Read a queue, all that it holds, and drop it."""
    _read_all(_queue(spark, options))


def read_parquet(spark: SparkSession, folder: Path) -> None:
    """Read the same rows from Parquet, and drop them."""
    _read_all(_parquet(spark, folder))


def count_tasks(spark: SparkSession, options: Mapping[str, str], folder: Path) -> dict[str, int]:
    """Return in how many tasks a queue and Parquet are read, by the name of the side."""
    sides = {"spark_read": _queue(spark, options), "parquet_read": _parquet(spark, folder)}
    return {name: frame.rdd.getNumPartitions() for name, frame in sides.items()}


def count_queue(spark: SparkSession, options: Mapping[str, str]) -> int:
    """Return how many messages a queue holds."""
    return spark.read.format("partq").options(**options).load().count()


def archive_queue(
    job: Job, access: QueueAccess, group: str, root: Path, *, now_ms: Callable[[], int]
) -> int:
    """Archive a queue and its audit record, as `partq pipeline archive` does.

    Args:
        job: to run in.
        access: with an administrator's token.
        group: of the archive alone.
        root: of the archive.
        now_ms: the time, in unix ms.

    Returns:
        how many records its audit record has.
    """
    archive = ArchiveLog.open_for(open_files(job.spark, str(root)), access.identity())
    done = Archiver(
        SparkEngine(job.spark),
        job.watch,
        archive,
        [AuditFeed(access), MessageFeed(access, group)],
        ArchiveSettings(),
        now_ms=now_ms,
    ).run()
    return done.rows["audit"]


def audit_archive(job: Job, root: Path, report: Path) -> AuditVerdict:
    """Audit an archive, report and all, as `partq pipeline audit` does."""
    files = open_files(job.spark, str(root))
    engine = SparkAuditEngine(job.spark, files, job.watch)
    reported = open_files(job.spark, str(report))
    return run_audit(engine, files, reported, job.watch).verdict


def _queue(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    return spark.read.format("partq").options(**options).load().select(*READ)


def _parquet(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.parquet(str(folder)).select(*READ)


def _read_all(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
