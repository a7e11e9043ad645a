"""Reads the history of lag, and how fast consumers were, from the audit record."""

from dataclasses import dataclass

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody names it

from partq.pipeline.watch import JobWatch

BUSY = 0.5
"""A window tells how fast consumers are when at least this part of what they did still waits."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a consumer group was behind."""

    group: str
    most_messages: int
    """That waited at the end of a window."""
    most_at_ms: int
    """When that window ended, in unix ms."""
    behind_s: int
    """How long, in all, messages waited at the ends of windows."""
    last_messages: int
    """That waited at the end of the record."""
    consumer_per_s: float | None
    """Messages per second and consumer in windows in which work was waiting: the median; None:
    there was none, so what they could do is unknown."""


def lag_history(audit: DataFrame, window_s: int, watch: JobWatch) -> list[GroupLag]:
    """Return the lag of each group, by its name.

    What was stored before the record begins is not counted: it is the lag that came since.

    Args:
        audit: the archived record.
        window_s: length of a window in seconds.
        watch: may end the job.
    """
    window = F.floor(F.col("at_ms") / (window_s * 1000)).alias("window")
    size = F.sum(F.col("stop") - F.col("first")).alias("messages")
    watch.check()
    stored = audit.where("kind = 'publish'").groupBy(window).agg(size).collect()
    watch.check()
    acked = audit.where("kind = 'ack'").groupBy("group", window).agg(size).collect()
    watch.check()
    busy = (
        audit.where("kind = 'deliver' and member != ''")
        .groupBy("group", window)
        .agg(F.count_distinct("member").alias("members"))
        .collect()
    )
    seen = [row["window"] for row in [*stored, *acked]]
    if not seen:
        return []
    begin, end = min(seen), max(seen) + 1
    came = np.zeros(end - begin)
    for row in stored:
        came[row["window"] - begin] = row["messages"]
    found = []
    for group in sorted({row["group"] for row in acked} | {row["group"] for row in busy}):
        done, members = np.zeros(end - begin), np.zeros(end - begin)
        for row in acked:
            if row["group"] == group:
                done[row["window"] - begin] = row["messages"]
        for row in busy:
            if row["group"] == group and begin <= row["window"] < end:
                members[row["window"] - begin] = row["members"]
        lag = np.maximum(0.0, np.cumsum(came) - np.cumsum(done))
        # The first window of a stretch may have begun idle, so it tells nothing of the speed.
        before = np.concatenate([[0.0], lag[:-1]])
        working = (lag >= BUSY * done) & (before > 0) & (done > 0) & (members > 0)
        rates = done[working] / members[working] / window_s
        most = int(lag.argmax())
        found.append(
            GroupLag(
                group,
                int(lag[most]),
                (begin + most + 1) * window_s * 1000,
                int((lag > 0).sum()) * window_s,
                int(lag[-1]),
                float(np.median(rates)) if rates.size else None,
            )
        )
    return found
