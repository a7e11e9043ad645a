"""What the page shows, taken from frames of any size in amounts that a page can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from partq.pipeline.audit.checks import AuditEvidence
from partq.pipeline.audit.stretches import LATER
from partq.pipeline.audit.verdict import AuditTotals

MAX_FINDINGS = 200
MAX_HANDOFFS = 20
MAX_LANES = 32
MAX_SPELLS = 2_000
MAX_PAUSES = 10_000
BUCKETS = 160


@dataclass(frozen=True, slots=True)
class Spell:
    """A member held a partition of a group for some time."""

    lane: str
    member: str
    from_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class PaceSeries:
    """What happened per bucket of time, and what was still open after it."""

    from_ms: int
    bucket_ms: int
    published: Sequence[int]
    delivered: Sequence[int]
    done: Sequence[int]
    lag: Mapping[str, Sequence[int]]
    """Group → messages published and not done with."""


@dataclass(frozen=True, slots=True)
class HandoffPause:
    """How long a partition was paused for a handoff that went through."""

    length_ms: int
    is_forced: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything on the page that is not in the verdict."""

    pace: PaceSeries
    spells: Sequence[Spell]
    lanes: int
    """Partitions that a member of a group has held; `spells` has the first `MAX_LANES` at most."""
    claims: Sequence[tuple[int, str]]
    """When a broker claimed a partition again, and which broker."""
    pauses: Sequence[HandoffPause]
    findings: Sequence[Row]
    slowest: Sequence[Row]
    """The handoffs with the longest pauses."""


def draw_figures(evidence: AuditEvidence, findings: DataFrame, totals: AuditTotals) -> Figures:
    """Take from the evidence what the page shows."""
    # A group that only moves its cursor, an archive's say, holds no partition.
    held = evidence.lines.where("kind in ('bind', 'register', 'commit') and holder != ''")
    lanes = held.select("partition", "group").distinct()
    names = [(row["partition"], row["group"]) for row in lanes.limit(10_000).collect()]
    names.sort(key=lambda lane: (lane[1], *map(int, lane[0].split("."))))
    committed = evidence.handoffs.where("outcome = 'commit' and paused_ms is not null")
    length = f.col("ended_ms") - f.col("paused_ms")
    pauses = committed.select(
        length.alias("length_ms"), (f.coalesce("cause", f.lit("")) != "").alias("is_forced")
    )
    severity = f.expr("case severity when 'fault' then 0 when 'warning' then 1 else 2 end")
    return Figures(
        pace=_pace(evidence.lines, totals),
        spells=_spells(evidence.lines, names[:MAX_LANES], totals.until_ms),
        lanes=len(names),
        claims=[
            (row["at_ms"], row["broker"])
            for row in evidence.lines.where("kind = 'claim'")
            .orderBy("at_ms")
            .limit(MAX_SPELLS)
            .collect()
        ],
        pauses=[HandoffPause(**row.asDict()) for row in pauses.limit(MAX_PAUSES).collect()],
        findings=findings.orderBy(severity, "partition", "sequence", "first")
        .limit(MAX_FINDINGS)
        .collect(),
        slowest=committed.orderBy(f.desc(length)).limit(MAX_HANDOFFS).collect(),
    )


def _spells(lines: DataFrame, lanes: Sequence[tuple[str, str]], until_ms: int) -> list[Spell]:
    """Return who held what, changes of a member to itself left out."""
    order = Window.partitionBy("partition", "group").orderBy("segment", "at")
    wanted = f.struct("partition", "group").isin(
        *(f.struct(f.lit(partition), f.lit(group)) for partition, group in lanes)
    )
    if not lanes:
        return []
    changes = (
        lines.where("kind in ('bind', 'register', 'commit') and holder is not null")
        .where(wanted)
        .withColumn("before", f.lag("holder").over(order))
        .where("before is null or before != holder")
        .withColumn("until_ms", f.lead("at_ms").over(order))
        .select("partition", "group", "holder", "at_ms", "until_ms")
        .orderBy("at_ms")
        .limit(MAX_SPELLS)
    )
    several = len({group for _, group in lanes}) > 1
    return [
        Spell(
            f"{row['partition']} {row['group']}" if several else row["partition"],
            row["holder"],
            row["at_ms"],
            until_ms if row["until_ms"] is None else row["until_ms"],
        )
        for row in changes.collect()
        if row["holder"]
    ]


def _pace(lines: DataFrame, totals: AuditTotals) -> PaceSeries:
    bucket_ms = max(1, -(-(totals.until_ms - totals.from_ms + 1) // BUCKETS))
    place = f.floor((f.col("at_ms") - totals.from_ms) / bucket_ms).cast("int")
    rows = (
        lines.where("kind in ('publish', 'deliver', 'ack', 'dead_letter', 'expired')")
        .where(~f.col("flags").isin(*LATER) & ~f.col("is_stray"))
        .groupBy(place.alias("place"), "kind", "group")
        .agg(f.sum(f.col("stop") - f.col("first")).alias("messages"))
        .collect()
    )
    groups = sorted({row["group"] for row in rows} - {""})
    published, delivered, done = ([0] * BUCKETS for _ in range(3))
    finished = {group: [0] * BUCKETS for group in groups}
    for row in rows:
        at = max(0, min(BUCKETS - 1, row["place"]))
        if row["kind"] == "publish":
            published[at] += row["messages"]
        elif row["kind"] == "deliver":
            delivered[at] += row["messages"]
        else:
            done[at] += row["messages"]
            finished[row["group"]][at] += row["messages"]
    lag = {}
    for group, steps in finished.items():
        open_ones, series = 0, []
        for came, went in zip(published, steps, strict=True):
            open_ones += came - went
            series.append(max(0, open_ones))
        lag[group] = series
    return PaceSeries(totals.from_ms, bucket_ms, published, delivered, done, lag)
