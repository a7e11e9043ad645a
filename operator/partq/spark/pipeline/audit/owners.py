"""Checks that one broker, one member and one flow at a time had a partition (S1)."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from partq.spark.pipeline.audit.findings import ACKS, finding, sentence
from partq.spark.pipeline.audit.record import LINE, PART

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
    return delivered.union(written).union(shared).union(_epochs_not_raised(lines))


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


def _epochs_not_raised(lines: DataFrame) -> DataFrame:
    claims = lines.where("kind = 'claim'").withColumn(
        "before", f.max("broker_epoch").over(_before(*PART))
    )
    renewals = lines.where("kind in ('bind', 'commit', 'reset')").withColumn(
        "before", f.max("epoch").over(_before(*LINE))
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


def _before(*by: str) -> WindowSpec:
    return Window.partitionBy(*by).orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
