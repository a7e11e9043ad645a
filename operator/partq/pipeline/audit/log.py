"""Checks the log: each offset published once, under its own number, and archived once."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from partq.pipeline.audit.findings import finding, findings, of_range, sentence
from partq.pipeline.audit.record import PART
from partq.pipeline.audit.sweep import cover

CHECK = "log"
PRODUCERS = "producers"


def archived_runs(messages: DataFrame) -> DataFrame:
    """Return the archived offsets as ranges of one append broker epoch.

    An offset that is there twice begins a separate range.
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
    kinds = {
        "published_twice": (
            f.expr("published > 1"),
            sentence(
                "offsets %s to %s were published %s times", "first", f.col("stop") - 1, "published"
            ),
        ),
        "no_publish": (
            f.expr("published = 0 and archived = 0"),
            of_range("no record shows the publishing of offsets %s to %s"),
        ),
    }
    if runs is not None:
        bounds = runs.groupBy("partition").agg(
            f.min("first").alias("archive_first"), f.max("stop").alias("archive_stop")
        )
        if stops is not None:
            bounds = stops.join(bounds.drop("archive_stop"), "partition", "left")
        stretches = stretches.join(f.broadcast(bounds), "partition", "left")
        kinds |= _of_archive()
    return findings(stretches, CHECK, kinds)


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


def _of_archive() -> dict[str, tuple[Column, Column]]:
    """Return what stretches show that were laid beside the archive's bounds."""
    lacks = "published > 0 and archived = 0 and gap = 0"
    return {
        "archived_not_published": (
            f.expr("published = 0 and archived > 0"),
            of_range("offsets %s to %s are archived; no record shows their publishing"),
        ),
        "archived_twice": (
            f.expr("archived > 1"),
            of_range("offsets %s to %s are in the archive %s times", "archived"),
        ),
        "other_archived": (
            f.expr("published = 1 and archived = 1 and published_epoch != archived_epoch"),
            of_range(
                "offsets %s to %s were stored under broker epoch %s; archived are those of %s, "
                "which the store had lost",
                "published_epoch",
                "archived_epoch",
            ),
        ),
        "not_archived": (
            f.expr(f"{lacks} and first >= coalesce(archive_first, 0) and first < archive_stop"),
            of_range("offsets %s to %s were published and are not in the archive"),
        ),
        "archive_gap": (
            f.expr("published > 0 and archived = 0 and gap > 0"),
            of_range("offsets %s to %s were gone from the queue before they could be archived"),
        ),
        "archive_behind": (
            f.expr(f"{lacks} and (archive_stop is null or first >= archive_stop)"),
            of_range("offsets %s to %s were published; the archive has not come that far"),
        ),
        "archive_begins_late": (
            f.expr(f"{lacks} and first < archive_first"),
            of_range("offsets %s to %s were published before the archive begins"),
        ),
    }


def _range(ranges: DataFrame, of: str, epoch: Column) -> DataFrame:
    return ranges.select("partition", "first", "stop", f.lit(of).alias("of"), epoch.alias("epoch"))
