"""Checks that one broker, one member and one flow at a time had a partition (S1)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from partq.pipeline.audit.findings import ACKS, finding, findings, sentence
from partq.pipeline.audit.record import LINE, PART

CHECK = "owners"

_OUTCOMES = ("ack", "nack", "release")


def check_owners(lines: DataFrame) -> DataFrame:
    """Return deliveries and changes by somebody else than the owner, and epochs used twice."""
    strays = lines.where("is_stray and kind = 'deliver'")
    delivered = finding(
        strays,
        CHECK,
        "two_owners",
        sentence(
            "%s to %s were delivered to %s under (%s, %s), while (%s, %s) held, of %s",
            *("first", f.col("stop") - 1, "member", "broker_epoch", "epoch"),
            *("claimed", "current", "holder"),
        ),
    )
    written = finding(
        lines.where(
            "kind not in ('claim', 'begin', 'end', 'deliver', 'ack', 'nack', 'release')"
        ).where("broker_epoch != claimed"),
        CHECK,
        "two_brokers",
        sentence(
            "%s by broker %s under broker epoch %s, after %s had been claimed",
            "kind",
            "broker",
            "broker_epoch",
            "claimed",
        ),
    )
    flows = (
        lines.where("kind = 'deliver' and not is_stray")
        .groupBy(*LINE, "broker_epoch", "epoch")
        .agg(
            f.countDistinct("member", "incarnation", "flow").alias("flows"),
            f.min("member").alias("member"),
            f.min("first").alias("first"),
            f.max("stop").alias("stop"),
            f.min("at_ms").alias("at_ms"),
        )
        .where("flows > 1")
    )
    shared = finding(
        flows,
        CHECK,
        "two_flows",
        sentence(
            "%s flows were delivered to under the one token (%s, %s)",
            "flows",
            "broker_epoch",
            "epoch",
        ),
    )
    return (
        delivered.union(written)
        .union(shared)
        .union(_registered_while_held(lines))
        .union(_epochs_not_raised(lines))
    )


def check_stale_acks(lines: DataFrame) -> DataFrame:
    """Return outcomes that were accepted under a token that was not the current one."""
    return finding(
        lines.where(f.col("is_stray") & f.col("kind").isin(*_OUTCOMES)),
        ACKS,
        "stale_ack",
        sentence(
            "%s of %s to %s by %s was accepted under (%s, %s), while (%s, %s) held",
            *("kind", "first", f.col("stop") - 1, "member", "broker_epoch", "epoch"),
            *("claimed", "current"),
        ),
    )


def _registered_while_held(lines: DataFrame) -> DataFrame:
    """Return registrations of what another member held, and binds of what somebody else held."""
    kind, member = f.col("kind"), f.col("member")
    told = f.when(kind == "commit", f.col("target")).otherwise(member)
    # `begin`, too: a partition's holder may have changed while the record was turned off.
    taken = lines.where("group != '' and kind in ('begin', 'register', 'bind', 'commit')")
    taken = taken.withColumn("held_by", f.last(told).over(_before(*LINE)))
    by = f.when(f.col("held_by") == "", "nobody").otherwise(f.col("held_by"))
    return findings(
        taken,
        CHECK,
        {
            "registered_while_held": (
                (kind == "register") & ~f.col("held_by").isin("", member),
                sentence("%s registered what %s held", "member", "held_by"),
            ),
            "bind_not_held": (
                (kind == "bind") & (f.col("held_by") != member),
                sentence("a flow of %s took up what %s held", "member", by),
            ),
        },
    )


def _epochs_not_raised(lines: DataFrame) -> DataFrame:
    claims = lines.where("kind = 'claim'").withColumn(
        "before", f.max("broker_epoch").over(_before(*PART))
    )
    # A registration with an offset is two records in one group, `register` and `reset`: one epoch.
    renewals = lines.where("kind in ('bind', 'register', 'commit', 'reset')").withColumn(
        "before", f.max("epoch").over(_before(*LINE, order="sequence"))
    )
    text = "%s drew %s, which is not above %s"
    return finding(
        claims.where("broker_epoch <= before"),
        CHECK,
        "epoch_not_raised",
        sentence(text, "kind", "broker_epoch", "before"),
    ).union(
        finding(
            renewals.where("epoch <= before"),
            CHECK,
            "epoch_not_raised",
            sentence(text, "kind", "epoch", "before"),
        )
    )


def _before(*by: str, order: str = "at") -> WindowSpec:
    return Window.partitionBy(*by).orderBy(order).rangeBetween(Window.unboundedPreceding, -1)
