"""Archives for tests, made of rows that no queue had."""

from partq.pipeline.archive_columns import COLUMNS
from partq.pipeline.archive_files import write_rows
from partq.pipeline.archive_log import ArchivedQueue
from partq.pipeline.manifest import ManifestEntry
from partq.pipeline.staging import Staging

QUEUE = ArchivedQueue("default", "orders", "0123abcd")
NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def rows_of(spark, partition, first, stop, *, at_ms=NOW_MS, key=lambda offset: f"k{offset % 3}"):
    """Return messages [first, stop) of a partition, the second half of them a day later."""
    generation, index = map(int, partition.split("."))
    rows = [
        ("orders", partition, generation, index, offset, key(offset),
         f"{partition}:{offset}".encode(), {"h": "x"},
         at_ms + (DAY_MS if offset >= (first + stop) // 2 else 0), 0, 7, None)
        for offset in range(first, stop)
    ]  # fmt: skip
    kinds = COLUMNS["messages"] | {"publish_time": "bigint", "event_time": "bigint"}
    frame = spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    times = {name: f"timestamp_millis({name})" for name in ("publish_time", "event_time")}
    return frame.selectExpr(*[f"{times.get(name, name)} as {name}" for name in kinds])


def add(spark, archive, frame):
    with Staging(archive.files) as staging:
        added = staging.place(write_rows(spark, staging, "messages", frame))
        return archive.commit(
            archive.load(),
            lambda _: ManifestEntry(
                number=0, attempt=staging.attempt, kind="archive", at_ms=NOW_MS, added=added
            ),
        )
