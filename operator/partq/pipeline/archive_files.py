"""The Parquet files of an archive, as Spark reads and writes them."""

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.core.model import PartitionId
from partq.errors import InternalError
from partq.pipeline.archive_columns import COLUMNS, PLACE
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.manifest import ArchiveState, DataFile, Stream, select
from partq.pipeline.staging import Staging
from partq.pipeline.storage.files import Files, open_files

_AT_MS: Final[dict[Stream, str]] = {"messages": "unix_millis(publish_time)", "audit": "at_ms"}
_DAY_MS = 86_400_000
_LAYOUT = ("date", "queue_partition")


def read_archive(
    spark: SparkSession,
    root: str,
    *,
    partitions: Iterable[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    """Return the messages of an archive as it is now, each of them once.

    What jobs write or merge meanwhile changes nothing in what is returned.

    Args:
        spark: to read with.
        root: of the archive: a path, or a URL that this Spark can read.
        partitions: only of these, `1.3` say; None: of all.
        from_ms: only what was stored then or later, in unix ms by Redis's clock; None: from the
            beginning on.
        until_ms: only what was stored before; None: to the end.

    Raises:
        SettingsError: there is no archive, or it cannot be read.
        InternalError: its log is damaged.
    """
    wanted = {"partitions": partitions, "from_ms": from_ms, "until_ms": until_ms}
    return _read(spark, root, "messages", **wanted)  # type: ignore[arg-type]  # as named above


def read_audit(
    spark: SparkSession, root: str, *, partitions: Iterable[str] | None = None
) -> DataFrame:
    """Return the archived audit record, each record once; arguments and errors as `read_archive`.

    The columns are those of `partq.wire.audit`.
    """
    return _read(spark, root, "audit", partitions=partitions)


def read_state(spark: SparkSession, root: str) -> ArchiveState:
    """Return what an archive consists of: its files, how far it is, and what it could not have.

    Raises:
        SettingsError: there is no archive, or it cannot be read.
        InternalError: its log is damaged.
    """
    return ArchiveLog.open(open_files(spark, root)).load()


def _read(
    spark: SparkSession,
    root: str,
    stream: Stream,
    *,
    partitions: Iterable[str] | None = None,
    from_ms: int | None = None,
    until_ms: int | None = None,
) -> DataFrame:
    files = open_files(spark, root)
    wanted = None if partitions is None else frozenset(partitions)
    state = ArchiveLog.open(files).load()
    chosen = select(
        state.files.values(), stream, partitions=wanted, from_ms=from_ms, until_ms=until_ms
    )
    frame = read_files(spark, files, stream, [each.path for each in chosen])
    if from_ms is not None:
        frame = frame.where(F.expr(_AT_MS[stream]) >= from_ms)
    if until_ms is not None:
        frame = frame.where(F.expr(_AT_MS[stream]) < until_ms)
    return frame


def read_files(
    spark: SparkSession, files: Files, stream: Stream, paths: Sequence[str]
) -> DataFrame:
    """Return the rows of Parquet files of an archive."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS[stream].items())
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*[files.url(path) for path in paths])


def in_one_file_per_folder(stream: Stream, rows: DataFrame, folder_count: int) -> DataFrame:
    """Bring the rows of each date and partition into one task."""
    return rows.repartition(folder_count, _date(stream), F.col("partition"))


def _date(stream: Stream) -> Column:
    """Return the day on which a row was stored, in UTC whatever the session's time zone is."""
    days = f"cast(floor({_AT_MS[stream]} / {_DAY_MS}) as int)"
    return F.expr(f"cast(date_add(date'1970-01-01', {days}) as string)")


def write_rows(
    spark: SparkSession, staging: Staging, stream: Stream, rows: DataFrame
) -> list[DataFile]:
    """Write rows by date and partition, in the order of their places; then count them.

    What is returned was read back from the files, not taken from what should be in them.

    Raises:
        InternalError: what Spark wrote cannot be seen from here.
    """
    folder = f"{staging.folder}/{stream}"
    (
        rows.select(*COLUMNS[stream])
        .withColumn("date", _date(stream))
        .withColumn("queue_partition", F.col("partition"))
        .sortWithinPartitions(*_LAYOUT, *PLACE[stream])
        .write.partitionBy(*_LAYOUT)
        .parquet(staging.files.url(folder))
    )
    sizes = {
        path: size for path, size, _ in staging.files.walk(folder) if path.endswith(".parquet")
    }
    return _measure(spark, staging.files, stream, folder, sizes)


def _measure(
    spark: SparkSession, files: Files, stream: Stream, folder: str, sizes: dict[str, int]
) -> list[DataFile]:
    """Return what stands in the files, read from them."""
    if not sizes:
        return []
    at, at_ms = PLACE[stream][0], F.expr(_AT_MS[stream])
    rows = (
        read_files(spark, files, stream, list(sizes))
        .groupBy(F.col("_metadata.file_path").alias("path"))
        .agg(
            F.min("partition").alias("partition"),
            F.min(at).alias("first"),
            (F.max(at) + 1).alias("stop"),
            F.count("*").alias("rows"),
            F.min(at_ms).alias("min_ms"),
            F.max(at_ms).alias("max_ms"),
        )
        .collect()
    )
    found = []
    for row in rows:
        # Names repeat in the folders of two partitions; the last three parts are unique.
        tail = "/".join(row["path"].split("/")[-3:])
        path = f"{folder}/{tail}"
        if path not in sizes:
            raise InternalError(f"{files.url(path)}: is read, and not listed")
        values = {name: row[name] for name in ("first", "stop", "rows", "min_ms", "max_ms")}
        found.append(
            DataFile(
                path=path,
                stream=stream,
                partition=row["partition"],
                bytes=sizes[path],
                **values,
            )
        )
    if len(found) != len(sizes):
        raise InternalError(f"{files.url(folder)}: of {len(sizes)} files some are empty")
    return sorted(found, key=lambda each: (PartitionId.parse(each.partition), each.first))
