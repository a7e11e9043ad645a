"""What became of each handoff: how long it took, what it cut, whether it ended."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from partq.pipeline.audit.findings import findings, sentence
from partq.pipeline.audit.record import LINE, PART
from partq.pipeline.audit.sweep import BLOCK, islands, on_grid

CHECK = "handoffs"
OPEN_MS = 600_000
"""A handoff may be under way for this long when the record ends: ten minutes."""

_ENDS = ("commit", "cancel", "lapse")


def handoffs_of(lines: DataFrame) -> DataFrame:
    """Return a row for each attempt: when it was paused, drained and ended, and how.

    Returns:
        `LINE`, `attempt`, `source`, `target`, `epoch` (the new one), `paused_ms`, `paused_at`,
        `drained_ms`, `ended_ms`, `outcome` (`commit`, `cancel`, `lapse`, `broker_change`,
        `under_way`, `no_end`, `gone`, `not_known`), `cause` (of a forced commit), `drain_cause`.
    """
    kind = f.col("kind")
    is_end = kind.isin(*_ENDS)

    def of(condition: Column, column: str) -> Column:
        return f.min_by(f.when(condition, f.col(column)), f.when(condition, f.col("at")))

    attempts = (
        lines.where(f.col("attempt") > 0)
        .where(kind.isin("pause", "drained", *_ENDS))
        .groupBy(*LINE, "attempt")
        .agg(
            of(kind.isin("pause", "commit"), "member").alias("source"),
            of(kind == "commit", "target").alias("target"),
            of(kind == "commit", "epoch").alias("epoch"),
            of(kind == "pause", "at_ms").alias("paused_ms"),
            of(kind == "pause", "at").alias("paused_at"),
            of(kind == "drained", "at_ms").alias("drained_ms"),
            of(kind == "drained", "cause").alias("drain_cause"),
            of(is_end, "at_ms").alias("ended_ms"),
            of(is_end, "at").alias("ended_at"),
            of(is_end, "kind").alias("ended"),
            of(kind == "commit", "cause").alias("cause"),
            f.max("sequence").alias("sequence"),
        )
    )
    parts = lines.groupBy(*PART).agg(
        f.max("at_ms").alias("part_ms"), f.max("claim_at").alias("last_claim_at")
    )
    ends = lines.groupBy("partition").agg(f.max("segment").alias("last_segment"))
    groups = (
        lines.where("group != ''")
        .groupBy(*LINE)
        .agg(
            f.max(f.when(kind == "deliver", f.col("at"))).alias("delivered_at"),
            f.max_by("attempt", f.when(kind.isin("pause", "commit"), f.col("at"))).alias(
                "last_attempt"
            ),
            f.max_by(kind == "end", "at").alias("is_over"),
        )
    )
    is_later = f.expr(
        "coalesce(delivered_at, -1) > paused_at or last_attempt > attempt "
        f"or part_ms - paused_ms > {OPEN_MS}"
    )
    outcome = f.coalesce(
        "ended",
        f.when(f.col("last_claim_at") > f.col("paused_at"), "broker_change")
        .when(f.col("is_over"), "gone")
        .when(f.col("segment") < f.col("last_segment"), "not_known")
        .when(is_later, "no_end")
        .otherwise("under_way"),
    )
    return (
        attempts.join(f.broadcast(parts), list(PART))
        .join(f.broadcast(ends), "partition")
        .join(f.broadcast(groups), list(LINE))
        .withColumn("outcome", outcome)
        .drop(
            "ended",
            "part_ms",
            "last_claim_at",
            "last_segment",
            "delivered_at",
            "last_attempt",
            "is_over",
        )
    )


def check_handoffs(handoffs: DataFrame) -> DataFrame:
    """Return the attempts that reached no end."""
    rows = handoffs.withColumnsRenamed({"source": "member", "paused_ms": "at_ms"})
    return findings(
        rows,
        CHECK,
        {
            "handoff_without_end": (
                f.expr("outcome = 'no_end'"),
                sentence(
                    "attempt %s paused %s and was neither committed nor cancelled, nor did it "
                    "lapse",
                    "attempt",
                    "member",
                ),
            ),
            "handoff_under_way": (
                f.expr("outcome = 'under_way'"),
                sentence("attempt %s was under way when the record ended", "attempt"),
            ),
        },
    )


def interrupted_keys(lines: DataFrame, messages: DataFrame) -> DataFrame:
    """Count, for each handoff, the keys whose messages lie on both sides of it.

    A message belongs to the owner who acknowledged it.

    Returns:
        `LINE`, `ended_at` (the line of the commit), `keys_continued`.
    """
    acked = lines.where("kind = 'ack' and not is_stray").select(
        *LINE, f.coalesce("commit_at", f.lit(-1)).alias("ended_at"), "first", "stop"
    )
    owned = on_grid(islands(acked, (*LINE, "ended_at")))
    block = f.floor(f.col("offset") / BLOCK)
    keyed = (
        messages.where("key is not null")
        .select("partition", "offset", f.xxhash64("key").alias("key"), block.alias("block"))
        .join(owned, ["partition", "block"])
        .where("offset >= first and offset < stop")
        .select(*LINE, "key", "ended_at")
        .distinct()
    )
    of_key = Window.partitionBy(*LINE, "key").orderBy("ended_at")
    return (
        keyed.withColumn("earlier", f.lag("ended_at").over(of_key))
        .where("earlier is not null")
        .groupBy(*LINE, "ended_at")
        .agg(f.count(f.lit(1)).alias("keys_continued"))
    )


def with_interruptions(
    handoffs: DataFrame, duplicates: DataFrame, continued: DataFrame | None
) -> DataFrame:
    """Add what each handoff cut: `messages_cut` were in flight, `keys_continued` as above."""
    cut = (
        duplicates.where("event = 'commit'")
        .groupBy(*LINE, "attempt")
        .agg(f.sum("messages").alias("messages_cut"))
    )
    result = handoffs.join(f.broadcast(cut), [*LINE, "attempt"], "left").withColumn(
        "messages_cut", f.coalesce("messages_cut", f.lit(0))
    )
    if continued is None:
        return result.withColumn("keys_continued", f.lit(None).cast("long"))
    return result.join(f.broadcast(continued), [*LINE, "ended_at"], "left")
