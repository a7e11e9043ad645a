"""Checks that the record is whole: numbered without a gap, linked, and as it was written."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from partq.pipeline.audit.findings import finding, findings, sentence

CHECK = "chain"

_NAMES = ("group", "member", "incarnation", "cause", "producer", "target", "flags")
_LINE = (
    *("kind", "group", "member", "incarnation", "flow", "epoch", "attempt", "first", "stop"),
    *("delivery", "cause", "append_broker_epoch", "producer", "number", "target", "flags"),
)
_SPECIAL = r"[\x00-\x1F%\x7F]"


def groups_of(record: DataFrame) -> DataFrame:
    """Return the groups of the record, one row each, and what each shows by itself.

    A group's hash is computed again from its records, whose bytes follow from their columns.
    """
    line = f.struct("place", _bytes_of_record().alias("data"))
    groups = record.groupBy("partition", "sequence", "chain").agg(
        f.first("previous").alias("previous"),
        f.first("at_ms").alias("at_ms"),
        f.first("broker").alias("broker"),
        f.first("broker_epoch").alias("broker_epoch"),
        f.count(f.lit(1)).alias("records"),
        f.sort_array(f.collect_set(line)).alias("lines"),
        f.min(f.when(f.col("kind") == "publish", f.col("first"))).alias("first"),
        f.max(f.when(f.col("kind") == "publish", f.col("stop"))).alias("stop"),
    )
    head = f.concat_ws(
        " ", f.lit("1"), "sequence", "at_ms", "broker_epoch", _escaped(f.col("broker"))
    )
    body = f.unhex(f.concat_ws("", f.transform("lines", lambda each: f.hex(each.data))))
    data = f.concat(f.encode(f.concat(f.col("previous"), head, f.lit("\n")), "UTF-8"), body)
    return groups.select(
        *("partition", "sequence", "chain", "previous", "at_ms", "first", "stop", "records"),
        f.size("lines").alias("places"),
        (f.element_at("lines", -1).place + 1).alias("last_place"),
        f.sha1(data).alias("computed"),
    )


def linked(groups: DataFrame) -> DataFrame:
    """Add to each group what stands around it, whether it counts, and its segment.

    Of several groups under one number the one counts that was written last: a store that had lost
    the others went on from there. A segment begins after each gap, and is judged by itself.
    """
    by_sequence = Window.partitionBy("partition").orderBy("sequence")
    rivals = Window.partitionBy("partition", "sequence")
    before, after = by_sequence.rangeBetween(-1, -1), by_sequence.rangeBetween(1, 1)
    earlier = by_sequence.rangeBetween(Window.unboundedPreceding, -1)
    up_to_here = by_sequence.rangeBetween(Window.unboundedPreceding, 0)
    best = rivals.orderBy(
        f.desc(f.array_contains("nexts", f.col("chain"))), f.desc("at_ms"), f.desc("chain")
    )
    counted = (
        groups.withColumns(
            {
                "rivals": f.count(f.lit(1)).over(rivals),
                "nexts": f.collect_set("previous").over(after),
                "befores": f.collect_set("chain").over(before),
                "last_before": f.max("sequence").over(earlier),
            }
        )
        .withColumn("rank", f.row_number().over(best))
        .withColumn("forks", f.sum((f.col("rivals") > 1).cast("long")).over(up_to_here))
    )
    written_to = f.max(f.when(f.col("rank") == 1, f.col("at_ms"))).over(earlier)
    # What a store had lost, and was archived before that, hangs behind the fork; it is older.
    is_left_over = (f.col("forks") > 0) & (f.col("at_ms") < written_to)
    is_gap = f.coalesce(f.col("sequence") > f.col("last_before") + 1, f.lit(False))
    return (
        counted.withColumn("counts", (f.col("rank") == 1) & ~f.coalesce(is_left_over, f.lit(False)))
        .withColumn("segment", f.sum(is_gap.cast("long")).over(up_to_here))
        .drop("nexts", "rank", "forks")
    )


def check_chain(
    groups: DataFrame, stops: DataFrame | None = None, *, is_from_start: bool = True
) -> DataFrame:
    """Return what is wrong with `linked` groups.

    Args:
        groups: as `linked` returns them.
        stops: how far the archive says that it has the record: `partition`, `record_stop`; None:
            as far as its last group.
        is_from_start: the record was read from its beginning, so that a missing one is a fault.
    """
    missing = "missing_range"
    shown = {
        missing: (
            f.expr("sequence > last_before + 1 and counts"),
            sentence(
                "groups %s to %s of the record are missing: what happened there is not judged",
                f.col("last_before") + 1,
                f.col("sequence") - 1,
            ),
        ),
        "missing_record": (
            f.expr("places < last_place"),
            sentence("group %s has %s of its %s records", "sequence", "places", "last_place"),
        ),
        "recorded_twice": (
            f.expr("records > places"),
            sentence("group %s is in the archive more than once", "sequence"),
        ),
        "changed_group": (
            f.expr("computed != chain and places >= last_place"),
            sentence(
                "group %s was written with hash %s, its records now give %s",
                "sequence",
                "chain",
                "computed",
            ),
        ),
        "forked_chain": (f.expr("not counts"), _of_fork()),
        "broken_link": (
            f.expr("counts and size(befores) > 0 and not array_contains(befores, previous)"),
            sentence(
                "group %s follows a group that ended with hash %s, which is not the one before it",
                "sequence",
                "previous",
            ),
        ),
    }
    result = findings(groups, CHECK, shown)
    if is_from_start:
        begins_late = groups.where("last_before is null and sequence > 0")
        text = "the record begins at group %s; groups 0 to %s are missing"
        result = result.union(
            finding(begins_late, CHECK, missing, sentence(text, "sequence", f.col("sequence") - 1))
        )
    if stops is None:
        return result
    ends = groups.groupBy("partition").agg(f.max("sequence").alias("sequence"))
    cut = stops.join(ends, "partition", "left").where("record_stop > coalesce(sequence, -1) + 1")
    return result.union(
        finding(
            cut,
            CHECK,
            missing,
            sentence(
                "groups %s to %s of the record are missing at its end",
                f.coalesce("sequence", f.lit(-1)) + 1,
                f.col("record_stop") - 1,
            ),
        )
    )


def _of_fork() -> Column:
    return f.when(
        f.col("first").isNotNull(),
        sentence(
            "another group under number %s is recorded; what this one tells was lost by "
            "the store, the messages from %s to %s among it",
            "sequence",
            "first",
            "stop",
        ),
    ).otherwise(
        sentence(
            "another group under number %s is recorded; the store has lost this one", "sequence"
        )
    )


def _bytes_of_record() -> Column:
    texts = [
        _escaped(f.col(name))
        if name in _NAMES
        else f.col(name)
        if name == "kind"
        else f.when(f.col(name) == -1, "").otherwise(f.col(name).cast("string"))
        for name in _LINE
    ]
    later = f.when(f.col("content_crc") >= 0, f.col("content_crc").cast("string"))
    line = f.concat(f.concat_ws("\t", *texts, later), f.lit("\n"))  # leaves out what is null
    return f.concat(f.encode(line, "UTF-8"), f.col("slots"))


def _escaped(name: Column) -> Column:
    """Return a name as it stands in the record: control characters and `%` as `%XX`."""
    escaped = f.array_join(
        f.transform(
            f.split(name, ""),
            lambda c: f.when(
                c.rlike(_SPECIAL), f.concat(f.lit("%"), f.lpad(f.hex(f.ascii(c)), 2, "0"))
            ).otherwise(c),
        ),
        "",
    )
    return f.when(name.rlike(_SPECIAL), escaped).otherwise(name)
