"""What happened to each offset of each group, as stretches of offsets of one history.

A stretch of `stretches_of` has how many deliveries, acks and so on cover it, and of those that
just one covers, its line and token.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partq.pipeline.audit.record import LINE, PART
from partq.pipeline.audit.sweep import cover, islands

NO_CAUSE = ("", "none")
LOST = "lost"
"""Flag of a dead letter whose message the log did not hold."""
LATER = ("sent", LOST)
"""Flags of a dead letter's second record: what became of it."""

_COUNTS = (
    "deliver",
    "ack",
    "nack",
    "dead_letter",
    "dropped",
    "expired",
    "before",
    "passed",
    "trim",
    "publish",
)


def stretches_of(lines: DataFrame) -> DataFrame:
    """Lay all ranges that concern a group over each other.

    Returns:
        `LINE`, `first`, `stop`; a count of each of: `deliver`, `ack`, `nack`, `dead_letter`,
        `dropped` (a dead letter that nobody could send), `expired`, `before` (done when the record
        began), `passed` (the cursor was moved over it), `trim` (freed), `publish`; of the
        deliveries the sums of line (`deliver_at`),
        `deliver_epoch`, `deliver_high`, `deliver_caused`; of the acks `ack_at`, `ack_epoch`,
        `ack_known`. `is_done`.
    """
    of = f.col("of")
    sums: dict[str, Column] = {name: (of == name).cast("long") for name in _COUNTS}
    for name in ("at", "epoch", "high", "caused"):
        sums[f"deliver_{name}"] = f.when(of == "deliver", f.col(name)).otherwise(0)
    for name in ("at", "epoch", "known"):
        sums[f"ack_{name}"] = f.when(of == "ack", f.col(name)).otherwise(0)
    done = " + ".join(("ack", "dead_letter", "expired", "before", "passed"))
    return cover(_spans(lines), LINE, sums).withColumn("is_done", f.expr(f"{done} > 0"))


def _spans(lines: DataFrame) -> DataFrame:
    kind, group = f.col("kind"), f.col("group")
    own = lines.where(group != "").where(~f.col("is_stray"))
    of = (
        f.when(kind.isin("deliver", "ack", "nack", "release", "expired"), kind)
        .when((kind == "dead_letter") & (f.col("flags") == LOST), "dropped")
        .when((kind == "dead_letter") & (f.col("flags") != "sent"), kind)
        .when(kind == "begin", "before")
        .when(
            (kind == "reset")
            & (f.col("number") < f.col("first"))
            # A claim did not choose: what it passed over is lost.
            & (f.col("cause") != "not_in_log"),
            "passed",
        )
    )
    first = f.when(of == "passed", f.col("number")).otherwise(f.col("first"))
    stop = (
        f.when(of == "passed", f.col("first"))
        .when(of == "release", f.greatest("stop", "high"))
        .otherwise(f.col("stop"))
    )
    told = own.select(
        *LINE,
        of.alias("of"),
        first.alias("first"),
        stop.alias("stop"),
        "at",
        "epoch",
        f.coalesce("high", f.lit(0)).alias("high"),
        (~f.col("cause").isin(*NO_CAUSE)).cast("long").alias("caused"),
        f.col("current").isNotNull().cast("long").alias("known"),
    ).where("of is not null")
    groups = lines.where("group != ''").groupBy(*LINE).agg(f.min("at").alias("group_at"))
    published = islands(
        cover(lines.where("kind = 'publish'"), PART, {"count": f.lit(1)}), PART
    ).select(*PART, "first", "stop", f.lit("publish").alias("of"), f.lit(-1).alias("at"))
    trimmed = lines.where("kind = 'trim'").select(
        *PART, "first", "stop", f.lit("trim").alias("of"), "at"
    )
    of_all = (
        published.unionByName(trimmed)
        .join(f.broadcast(groups), list(PART))
        .where("of = 'publish' or at > group_at")
        .drop("group_at")
    )
    return told.unionByName(of_all, allowMissingColumns=True)
