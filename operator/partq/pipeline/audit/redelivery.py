"""Checks what was delivered more than once: a cause for each, and the order kept (S3)."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from partq.pipeline.audit.findings import ACKS, ORDER, finding, findings, sentence
from partq.pipeline.audit.record import LINE
from partq.pipeline.audit.stretches import NO_CAUSE
from partq.pipeline.audit.sweep import islands, overlapping

CHECK = "duplicates"

_OF_LINE = (*LINE, "at", "sequence", "at_ms", "member", "broker_epoch", "epoch")
"""What the parts of one delivery have in common."""
_IN_PLACE = ("nack", "ack_timeout")
"""Causes of what may be sent out of its turn, where the group asks for no order."""


def redeliveries(lines: DataFrame, stretches: DataFrame) -> DataFrame:
    """Return what happened to the stretches that were delivered more than once, line by line.

    Returns:
        the lines of deliveries, acks, nacks and releases, each with the stretch as `first` and
        `stop`, and before it: `prior_at` and `prior_epoch` of the last delivery, `released_at`,
        `acked_at`, `taken_back_at`. `event_at`: the line that the cause of a redelivery points to;
        null: no such line since the delivery before.
    """
    kind = f.col("kind")
    wanted = (
        lines.where(kind.isin("deliver", "ack", "nack", "release") & ~f.col("is_stray"))
        .withColumn(
            "stop", f.when(kind == "release", f.greatest("stop", "high")).otherwise(f.col("stop"))
        )
        .select(
            *LINE,
            "first",
            "stop",
            "at",
            "sequence",
            "at_ms",
            "kind",
            "cause",
            "member",
            "epoch",
            "broker_epoch",
            "attempt",
            "high",
            "token_high",
            "claim_at",
            "current_at",
            "commit_at",
            "reset_at",
            "nack_at",
            "is_late",
        )
    )
    history = overlapping(stretches.where("deliver > 1"), wanted, LINE)
    before = (
        Window.partitionBy(*LINE, "first").orderBy("at").rowsBetween(Window.unboundedPreceding, -1)
    )

    def last(column: str, *kinds: str) -> Column:
        return f.last(f.when(kind.isin(*kinds), f.col(column)), ignorenulls=True).over(before)

    cause = f.col("cause")
    event = (
        f.when(cause.isin("broker_change", "store_rolled_back"), f.col("claim_at"))
        .when(cause == "forced_commit", f.col("commit_at"))
        .when(cause == "flow_lost", f.col("current_at"))
        .when(cause == "reset", f.col("reset_at"))
        .when(cause.isin(*_IN_PLACE), f.col("nack_at"))
    )
    return history.withColumns(
        {
            "prior_at": last("at", "deliver"),
            "prior_epoch": last("epoch", "deliver"),
            "released_at": last("at", "release"),
            "acked_at": last("at", "ack"),
            "taken_back_at": last("at", "nack"),
        }
    ).withColumn("event_at", f.when(event > f.col("prior_at"), event))


def repeats(history: DataFrame) -> DataFrame:
    """Return the deliveries that repeat one which the application may have begun."""
    return history.where(
        "kind = 'deliver' and prior_at is not null and coalesce(released_at, -1) < prior_at"
    )


def check_causes(history: DataFrame) -> DataFrame:
    """Return what was delivered again with no cause, with one that nothing bears out, or acked."""
    is_bare = f.col("cause").isin(*NO_CAUSE)
    again = repeats(history).withColumn(
        "is_acked", f.expr("acked_at is not null and acked_at > coalesce(reset_at, -1)")
    )
    what = (
        f.when(f.col("is_acked"), "delivered_after_ack")
        .when(is_bare, "duplicate_without_cause")
        .when(f.col("event_at").isNull(), "unfounded_cause")
    )
    wrong = again.withColumn("wrong", what).where("wrong is not null")
    texts = {
        "delivered_after_ack": "offsets %s to %s were redelivered after they were acknowledged",
        "duplicate_without_cause": "offsets %s to %s were redelivered, and no cause is recorded",
        "unfounded_cause": "offsets %s to %s were redelivered for %s; nothing of that kind had "
        "happened since they were last delivered",
    }
    offsets = ("first", f.col("stop") - 1)
    return findings(
        islands(wrong, (*_OF_LINE, "cause", "wrong")),
        CHECK,
        {
            what: (f.col("wrong") == what, sentence(text, *offsets, "cause"))
            for what, text in texts.items()
        },
    )


def check_redelivery_order(history: DataFrame, lines: DataFrame) -> DataFrame:
    """Return redeliveries out of turn, and owners who were sent later messages without them."""
    delivered = history.where("kind = 'deliver'")
    first_time = delivered.where(
        "prior_at is null and first < high and not (is_late and cause not in ('', 'none'))"
    )
    out_of_turn = (
        repeats(history).where("first < token_high").where(~f.col("cause").isin(*_IN_PLACE))
    )
    tokens = (
        lines.where("kind = 'deliver' and not is_stray")
        .groupBy(*LINE, f.col("epoch").alias("between"))
        .agg(f.max("stop").alias("token_stop"))
    )
    passed_over = (
        repeats(history)
        .where("prior_epoch < epoch and coalesce(taken_back_at, -1) < prior_at")
        .join(f.broadcast(tokens), list(LINE))
        .where("between > prior_epoch and between < epoch and token_stop > stop")
    )
    offsets = ("first", f.col("stop") - 1)
    return (
        finding(
            islands(first_time, (*_OF_LINE, "high")),
            ORDER,
            "out_of_order",
            sentence(
                "offsets %s to %s were delivered first after offset %s had been",
                *offsets,
                f.col("high") - 1,
            ),
        )
        .union(
            finding(
                islands(out_of_turn, (*_OF_LINE, "token_high")),
                ORDER,
                "redelivered_out_of_order",
                sentence(
                    "offsets %s to %s were redelivered after offset %s, under the same token",
                    *offsets,
                    f.col("token_high") - 1,
                ),
            )
        )
        .union(
            finding(
                islands(passed_over, (*_OF_LINE, "prior_epoch", "between")),
                ORDER,
                "skipped_ahead",
                sentence(
                    "offsets %s to %s were in flight under epoch %s; epoch %s was sent later "
                    "ones without them",
                    *offsets,
                    "prior_epoch",
                    "between",
                ),
            )
        )
    )


def check_acks_of_repeats(history: DataFrame) -> DataFrame:
    """Return acks under another token than that of the last delivery."""
    acks = history.where("kind = 'ack' and coalesce(taken_back_at, -1) < prior_at")
    return finding(
        islands(acks.where("prior_epoch != epoch"), (*_OF_LINE, "prior_epoch")),
        ACKS,
        "ack_of_other_token",
        sentence(
            "offsets %s to %s were delivered under epoch %s and acknowledged under %s",
            "first",
            f.col("stop") - 1,
            "prior_epoch",
            "epoch",
        ),
    )


def duplicates(history: DataFrame, lines: DataFrame) -> DataFrame:
    """Count what was delivered again, by group, cause, and the event that it goes back to.

    Returns:
        `LINE`, `cause` (`none`: no cause), `event_at`, `messages`; of the event `event`
        (its kind), `event_ms`, `attempt`, `broker`, `member`, `target`: null where it has none.
    """
    counted = (
        repeats(history)
        .withColumn("cause", f.when(f.col("cause") == "", "none").otherwise(f.col("cause")))
        .groupBy(*LINE, "cause", "event_at")
        .agg(f.sum(f.col("stop") - f.col("first")).alias("messages"))
    )
    events = lines.where("kind in ('claim', 'bind', 'register', 'commit', 'reset', 'nack')").select(
        "partition",
        "segment",
        f.col("at").alias("event_at"),
        f.col("kind").alias("event"),
        f.col("at_ms").alias("event_ms"),
        "attempt",
        "broker",
        "member",
        "target",
    )
    return events.join(f.broadcast(counted), ["partition", "segment", "event_at"], "right")
