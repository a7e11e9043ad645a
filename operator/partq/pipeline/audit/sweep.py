"""Ranges of offsets laid over each other: what covers each stretch, with no row per offset.

Each range becomes two points, where it begins and where it ends. In the order of offsets, running
sums over the points tell how many ranges of each kind cover the stretch up to the next point, and
the sum of a number over them: where just one covers, the sum is that one's number.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

BLOCK = 1024
"""Offsets of a block of the grid on which ranges find each other."""


def cover(ranges: DataFrame, by: Sequence[str], sums: Mapping[str, Column]) -> DataFrame:
    """Return the stretches between the ends of `ranges` that at least one of them covers.

    Args:
        ranges: rows with `first` and `stop`; those that are empty count for nothing.
        by: columns that tell one line of offsets from another.
        sums: what to sum over the ranges that cover a stretch, each a whole number.

    Returns:
        `by`, `first`, `stop`, and the sums; stretches are cut wherever a range begins or ends.
    """
    hidden = "_ranges"
    all_sums = {**sums, hidden: f.lit(1)}
    points = ranges.where("stop > first").select(
        *by,
        *(value.cast("long").alias(name) for name, value in all_sums.items()),
        f.explode(
            f.array(
                f.struct(f.col("first").alias("at"), f.lit(1).alias("step")),
                f.struct(f.col("stop").alias("at"), f.lit(-1).alias("step")),
            )
        ).alias("_end"),
    )
    line = Window.partitionBy(*by).orderBy("at")
    return (
        points.groupBy(*by, f.col("_end.at").alias("at"))
        .agg(*(f.sum(f.col(name) * f.col("_end.step")).alias(name) for name in all_sums))
        .select(
            *by,
            f.col("at").alias("first"),
            f.lead("at").over(line).alias("stop"),
            *(f.sum(name).over(line).alias(name) for name in all_sums),
        )
        .where(f"{hidden} > 0")
        .drop(hidden)
    )


def islands(ranges: DataFrame, by: Sequence[str]) -> DataFrame:
    """Join stretches that touch and do not overlap into as few as possible: `by`, first, stop."""
    line = Window.partitionBy(*by).orderBy("first")
    is_new = f.col("first") != f.coalesce(f.lag("stop").over(line), f.lit(-1))
    return (
        ranges.select(*by, "first", "stop", is_new.cast("long").alias("_new"))
        .select(*by, "first", "stop", f.sum("_new").over(line).alias("_island"))
        .groupBy(*by, "_island")
        .agg(f.min("first").alias("first"), f.max("stop").alias("stop"))
        .drop("_island")
    )


def on_grid(ranges: DataFrame) -> DataFrame:
    """Repeat each range for each block that it touches, named in `block`."""
    block = f.sequence(
        f.floor(f.col("first") / BLOCK), f.floor((f.col("stop") - 1) / BLOCK), f.lit(1)
    )
    return ranges.where("stop > first").withColumn("block", f.explode(block))


def overlapping(few: DataFrame, many: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return each pair of a stretch of `few` and a range of `many` that covers all of it.

    `few` has `by`, `first` and `stop` alone and is small; a range of `many` covers the whole of a
    stretch or nothing of it. The columns of `many` are kept, but for its own first and stop: these
    are the stretch's.
    """
    wanted = f.broadcast(on_grid(few.select(*by, "first", "stop")))
    wide = on_grid(many).withColumnsRenamed({"first": "_first", "stop": "_stop"})
    return (
        wide.join(wanted, [*by, "block"])
        # A stretch that lies in several blocks is met in each: the first one counts.
        .where(f"_first <= first and _stop >= stop and block = floor(first / {BLOCK})")
        .drop("_first", "_stop", "block")
    )
