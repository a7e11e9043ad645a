"""Checks the log: each offset published once, under its own number, and archived once."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from partq.spark.pipeline.audit.findings import finding, sentence
from partq.spark.pipeline.audit.record import PART
from partq.spark.pipeline.audit.schema import INFORMATION, WARNING
from partq.spark.pipeline.audit.sweep import cover

CHECK = "log"
PRODUCERS = "producers"


def archived_runs(messages: DataFrame) -> DataFrame:
    """Return the archived offsets as ranges of one append broker epoch.

    An offset that is there twice begins a range of its own.
    """
    order = Window.partitionBy("partition").orderBy("offset")
    is_new = (f.col("offset") != f.coalesce(f.lag("offset").over(order) + 1, f.lit(-1))) | (
        f.col("append_broker_epoch") != f.lag("append_broker_epoch").over(order)
    )
    return (
        messages.select("partition", "offset", "append_broker_epoch")
        .withColumn("_new", is_new.cast("long"))
        .withColumn("_run", f.sum("_new").over(order.rowsBetween(Window.unboundedPreceding, 0)))
        .groupBy("partition", "append_broker_epoch", "_run")
        .agg(f.min("offset").alias("first"), (f.max("offset") + 1).alias("stop"))
        .drop("_run")
    )


def check_log(
    lines: DataFrame,
    runs: DataFrame | None,
    stops: DataFrame | None = None,
    gaps: DataFrame | None = None,
) -> DataFrame:
    """Compare what was published with itself and with the archive.

    Args:
        lines: of the record.
        runs: as `archived_runs` returns them; None: the messages are not looked at.
        stops: how far the archive says that it is: `partition`, `archive_stop`; None: as far as
            its last message.
        gaps: what the archive says that it lacks: `partition`, `first`, `stop`.
    """
    published = lines.where("kind = 'publish'")
    areas = (
        lines.groupBy(*PART)
        .agg(f.min("base").alias("first"), f.max("published_to").alias("stop"))
        .where("first is not null and stop > first")
    )
    ranges = _range(published, "published", f.col("append_broker_epoch")).unionByName(
        _range(areas, "area", f.lit(0))
    )
    if runs is not None:
        ranges = ranges.unionByName(_range(runs, "archived", f.col("append_broker_epoch")))
    if gaps is not None:
        ranges = ranges.unionByName(_range(gaps, "gap", f.lit(0)))
    stretches = cover(
        ranges,
        ["partition"],
        {
            name: f.when(f.col("of") == name, 1).otherwise(0)
            for name in ("published", "area", "archived", "gap")
        }
        | {
            f"{name}_epoch": f.when(f.col("of") == name, f.col("epoch")).otherwise(0)
            for name in ("published", "archived")
        },
    ).where("area > 0")
    result = finding(
        stretches.where("published > 1"),
        CHECK,
        "published_twice",
        sentence(
            "offsets %s to %s were published %s times", "first", f.col("stop") - 1, "published"
        ),
    ).union(
        finding(
            stretches.where("published = 0 and archived = 0"),
            CHECK,
            "no_publish",
            sentence(
                "no record tells of the publishing of offsets %s to %s", "first", f.col("stop") - 1
            ),
        )
    )
    return result if runs is None else result.union(_check_archive(stretches, runs, stops))


def check_numbers(lines: DataFrame) -> DataFrame:
    """Return batches whose producer's numbers were stored before, in the same partition."""
    order = Window.partitionBy("partition", "producer").orderBy("number", "at")
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    end = f.col("number") + f.col("stop") - f.col("first")
    repeated = (
        lines.where("kind = 'publish' and producer != '' and number >= 0")
        .select(
            "partition",
            "sequence",
            "at",
            "at_ms",
            "first",
            "stop",
            "producer",
            "number",
            "broker_epoch",
        )
        .withColumn("stored_to", f.max(end).over(before))
        .where("number < stored_to")
    )
    return finding(
        repeated,
        PRODUCERS,
        "number_stored_twice",
        sentence(
            "numbers %s to %s of producer %s were stored before; now at offsets %s to %s",
            *("number", f.least(end, f.col("stored_to")) - 1, "producer", "first"),
            f.col("stop") - 1,
        ),
    )


def _check_archive(stretches: DataFrame, runs: DataFrame, stops: DataFrame | None) -> DataFrame:
    bounds = runs.groupBy("partition").agg(
        f.min("first").alias("archive_first"), f.max("stop").alias("archive_stop")
    )
    if stops is not None:
        bounds = stops.join(bounds.drop("archive_stop"), "partition", "left")
    placed = stretches.join(f.broadcast(bounds), "partition", "left")
    lacks = placed.where("published > 0 and archived = 0 and gap = 0")
    offsets: tuple[str | Column, str | Column] = ("first", f.col("stop") - 1)
    return (
        finding(
            placed.where("published = 0 and archived > 0"),
            CHECK,
            "archived_not_published",
            sentence(
                "offsets %s to %s are archived; no record tells of their publishing", *offsets
            ),
        )
        .union(
            finding(
                placed.where("archived > 1"),
                CHECK,
                "archived_twice",
                sentence("offsets %s to %s are in the archive %s times", *offsets, "archived"),
            )
        )
        .union(
            finding(
                placed.where(
                    "published = 1 and archived = 1 and published_epoch != archived_epoch"
                ),
                CHECK,
                "other_archived",
                sentence(
                    "offsets %s to %s were stored under broker epoch %s; archived are those "
                    "of %s, which the store had lost",
                    *offsets,
                    "published_epoch",
                    "archived_epoch",
                ),
            )
        )
        .union(
            finding(
                lacks.where("first >= coalesce(archive_first, 0) and first < archive_stop"),
                CHECK,
                "not_archived",
                sentence("offsets %s to %s were published and are not in the archive", *offsets),
            )
        )
        .union(
            finding(
                placed.where("published > 0 and archived = 0 and gap > 0"),
                CHECK,
                "archive_gap",
                sentence(
                    "offsets %s to %s were gone from the queue before they could be archived",
                    *offsets,
                ),
                severity=WARNING,
            )
        )
        .union(
            finding(
                lacks.where("archive_stop is null or first >= archive_stop"),
                CHECK,
                "archive_behind",
                sentence(
                    "offsets %s to %s were published; the archive has not come that far", *offsets
                ),
                severity=WARNING,
            )
        )
        .union(
            finding(
                lacks.where("first < archive_first"),
                CHECK,
                "archive_begins_late",
                sentence("offsets %s to %s were published before the archive begins", *offsets),
                severity=INFORMATION,
            )
        )
    )


def _range(ranges: DataFrame, of: str, epoch: Column) -> DataFrame:
    return ranges.select("partition", "first", "stop", f.lit(of).alias("of"), epoch.alias("epoch"))
