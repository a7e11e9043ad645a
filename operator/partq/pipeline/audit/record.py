"""The record in its order, with what held at each of its lines: owner, token, how far it had come.

Columns that are added; all are null while the record has not told:

- `segment`: counts the gaps before the line. Each segment is judged by itself.
- `at`: place of the line in the record, as one number that grows.
- `base`: offsets from here on have a record of their publish in this segment.
- `is_late`: the segment does not begin with the partition's record.
- `claimed`, `claim_at`: the broker epoch of the last claim, and its line.
- `published_to`: the end of what had been published.
- of a group: `current` and `current_at`, the epoch of the last bind, registration, commit or reset;
  `holder`, the member that it was for; `commit_at`, `reset_at`, `nack_at`: the last line of that
  kind.
- `is_stray`: an outcome or a delivery that is not of the token and member that held.
- `era`: how often the cursor was moved; `high`: the end of what had been delivered in it;
  `token_high`: of what had been delivered under the same token and delivery number.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

PART: Final = ("partition", "segment")
LINE: Final = (*PART, "group")

_SHIFT: Final = 20
_KEPT: Final = (
    *("partition", "sequence", "place", "at_ms", "kind", "broker", "broker_epoch", "group"),
    *("member", "incarnation", "flow", "epoch", "attempt", "first", "stop", "delivery", "cause"),
    *("append_broker_epoch", "producer", "number", "target", "flags"),
)


def prepare(record: DataFrame, groups: DataFrame) -> DataFrame:
    """Return the lines of the groups that count, with the columns that this module describes."""
    # A record of few groups in many lines: what does not count, and the gaps, are small.
    dropped = groups.where("not counts").select("partition", "sequence", "chain")
    gaps = (
        groups.where("sequence > last_before + 1 and counts")
        .groupBy("partition")
        .agg(f.sort_array(f.collect_set("sequence")).alias("gaps"))
    )
    starts = groups.groupBy("partition").agg(f.min("sequence").alias("starts"))
    lines = (
        record.join(f.broadcast(dropped), ["partition", "sequence", "chain"], "left_anti")
        .select(*_KEPT)
        .join(f.broadcast(gaps), "partition", "left")
        .join(f.broadcast(starts), "partition", "left")
        .withColumns(
            {
                "segment": f.coalesce(
                    f.size(f.filter("gaps", lambda gap: gap <= f.col("sequence"))), f.lit(0)
                ),
                "at": f.shiftleft("sequence", _SHIFT) + f.col("place"),
            }
        )
        .withColumn("segment", f.greatest("segment", f.lit(0)))
        .withColumn("is_late", (f.col("segment") > 0) | (f.col("starts") > 0))
        .drop("gaps", "starts")
    )
    return _of_groups(_of_partitions(lines))


def _of_partitions(lines: DataFrame) -> DataFrame:
    order = Window.partitionBy(*PART).orderBy("at")
    whole = Window.partitionBy(*PART)
    begins = (f.col("kind") == "begin") & (f.col("group") == "")
    shown = f.when(f.col("kind") == "publish", f.col("first")).when(
        begins | (f.col("kind") == "claim"), f.col("stop")
    )
    return (
        lines.withColumns(
            {
                # A record that is in the archive twice is a separate fault, and counts once.
                "is_copy": f.coalesce(f.lag("at").over(order) == f.col("at"), f.lit(False)),
                "base": f.min(shown).over(whole),
                "claimed": _last("broker_epoch", f.col("kind") == "claim").over(order),
                "claim_at": _last("at", f.col("kind") == "claim").over(order),
                "published_to": f.max(
                    f.when((f.col("kind") == "publish") | begins, f.col("stop"))
                ).over(order),
            }
        )
        .where("not is_copy")
        .drop("is_copy")
    )


def _of_groups(lines: DataFrame) -> DataFrame:
    order = Window.partitionBy(*LINE).orderBy("at")
    kind = f.col("kind")
    renews = kind.isin("bind", "register", "commit", "reset")
    with_token = lines.withColumns(
        {
            "current": f.max(f.when(renews, f.col("epoch"))).over(order),
            "current_at": _last("at", renews).over(order),
            "holder": f.last(
                f.when(kind.isin("bind", "register"), f.col("member")).when(
                    kind == "commit", f.col("target")
                ),
                ignorenulls=True,
            ).over(order),
            "commit_at": _last("at", kind == "commit").over(order),
            "reset_at": _last("at", kind == "reset").over(order),
            "nack_at": _last("at", kind == "nack").over(order),
            "era": f.sum((kind == "reset").cast("long")).over(order),
        }
    )
    is_flows = kind.isin("deliver", "ack", "nack", "release")
    judged = with_token.withColumn("is_stray", is_flows & f.coalesce(wrong_token(), f.lit(False)))
    delivered = f.when((kind == "deliver") & ~f.col("is_stray"), f.col("stop"))
    era = Window.partitionBy(*LINE, "era").orderBy("at")
    token = Window.partitionBy(*LINE, "broker_epoch", "epoch", "delivery").orderBy("at")
    rows_before = (Window.unboundedPreceding, -1)
    return judged.withColumns(
        {
            "high": f.max(delivered).over(era.rowsBetween(*rows_before)),
            "token_high": f.max(delivered).over(token.rowsBetween(*rows_before)),
        }
    )


def wrong_token() -> Column:
    """Return whether a line of a flow is not of the claim, epoch and member that held."""
    return (
        f.coalesce(f.col("broker_epoch") != f.col("claimed"), f.lit(False))
        | f.coalesce(f.col("epoch") != f.col("current"), f.lit(False))
        | f.coalesce(
            (f.col("kind") == "deliver") & (f.col("member") != f.col("holder")), f.lit(False)
        )
    )


def _last(column: str, condition: Column) -> Column:
    return f.last(f.when(condition, f.col(column)), ignorenulls=True)
