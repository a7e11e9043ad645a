"""Counts what the checks found: from frames of any size to a verdict of a few lines."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partq.pipeline.audit.checks import AuditEvidence
from partq.pipeline.audit.stretches import LATER
from partq.pipeline.audit.verdict import (
    AuditTotals,
    AuditVerdict,
    Duplicates,
    FindingCount,
    HandoffCount,
)

MAX_GROUPS = 1_000
"""Lines of each table of the verdict."""


def summarize(evidence: AuditEvidence, findings: DataFrame) -> AuditVerdict:
    """Count the stored findings and what else was looked at."""
    return AuditVerdict(
        totals=_totals(evidence),
        found=[
            FindingCount(row["check"], row["what"], row["severity"], row["count"])
            for row in findings.groupBy("check", "what", "severity")
            .count()
            .orderBy("severity", f.desc("count"), "what")
            .limit(MAX_GROUPS)
            .collect()
        ],
        duplicates=_duplicates(evidence.duplicates),
        handoffs=_handoffs(evidence.handoffs),
    )


def _totals(evidence: AuditEvidence) -> AuditTotals:
    length = f.col("stop") - f.col("first")

    def sum_of(*kinds: str) -> Column:
        is_one = f.col("kind").isin(*kinds) & ~f.col("flags").isin(*LATER)
        return f.coalesce(f.sum(f.when(is_one, length)), f.lit(0))

    row = evidence.lines.agg(
        f.count_distinct("partition").alias("partitions"),
        f.count(f.lit(1)).alias("records"),
        sum_of("publish").alias("published"),
        sum_of("deliver").alias("delivered"),
        sum_of("ack").alias("acknowledged"),
        sum_of("dead_letter").alias("dead_lettered"),
        sum_of("expired").alias("expired"),
        f.coalesce(f.min("at_ms"), f.lit(0)).alias("from_ms"),
        f.coalesce(f.max("at_ms"), f.lit(0)).alias("until_ms"),
    ).collect()[0]
    archived = None
    if evidence.runs is not None:
        archived = evidence.runs.agg(f.coalesce(f.sum(length), f.lit(0))).collect()[0][0]
    return AuditTotals(archived=archived, **row.asDict())


def _duplicates(rows: DataFrame) -> list[Duplicates]:
    counted = (
        rows.groupBy("group", "cause", f.coalesce("event", f.lit("")).alias("event"))
        .agg(f.count("event_at").alias("events"), f.sum("messages").alias("messages"))
        .orderBy("group", f.desc("messages"))
        .limit(MAX_GROUPS)
    )
    return [Duplicates(**row.asDict()) for row in counted.collect()]


def _handoffs(rows: DataFrame) -> list[HandoffCount]:
    pause = f.col("ended_ms") - f.col("paused_ms")
    counted = (
        rows.groupBy("group", "outcome", (f.coalesce("cause", f.lit("")) != "").alias("is_forced"))
        .agg(
            f.count(f.lit(1)).alias("count"),
            f.percentile_approx(pause, 0.5).alias("median_pause_ms"),
            f.max(pause).alias("longest_pause_ms"),
            f.sum("messages_cut").alias("messages_cut"),
            f.sum("keys_continued").alias("keys_continued"),
        )
        .orderBy("group", "outcome", "is_forced")
        .limit(MAX_GROUPS)
    )
    return [HandoffCount(**row.asDict()) for row in counted.collect()]
