"""Checks what a group got: nothing lost (S2), in order (S3), acknowledged as delivered."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from partq.pipeline.audit.findings import ACKS, ORDER, finding, findings, of_range, sentence
from partq.pipeline.audit.record import LINE
from partq.pipeline.audit.sweep import islands

LOSS = "loss"

_EPOCHS = ("deliver_epoch", "ack_epoch")


def reached(lines: DataFrame) -> DataFrame:
    """Return how far each group had come: in all, and under the token that it was last served by.

    Returns:
        `LINE`, `reached`, `last_epoch`, `last_reached`, `is_late`, and `is_over`: the group was
        removed.
    """
    delivered = lines.where("kind = 'deliver' and not is_stray")
    tokens = delivered.groupBy(*LINE, "epoch").agg(
        f.max("stop").alias("stop"), f.max("at").alias("at")
    )
    groups = tokens.groupBy(*LINE).agg(
        f.max("stop").alias("reached"),
        f.max_by("epoch", "at").alias("last_epoch"),
        f.max_by("stop", "at").alias("last_reached"),
    )
    ends = (
        lines.where("group != ''")
        .groupBy(*LINE)
        .agg(
            f.max_by(f.col("kind") == "end", "at").alias("is_over"),
            f.max("is_late").alias("is_late"),
        )
    )
    return ends.join(groups, list(LINE), "left")


def check_loss(stretches: DataFrame, groups: DataFrame) -> DataFrame:
    """Return published offsets that nobody is done with, and that will not be delivered any more.

    And those of dead letters whose message the log did not hold: nobody has it.

    Args:
        stretches: as `stretches_of` returns them.
        groups: as `reached` returns them.
    """
    open_ones = (
        stretches.where("publish > 0 and (not is_done or dropped > 0)")
        .join(f.broadcast(groups), list(LINE))
        .where("not is_over")
    )
    skipped = f.expr("deliver = 0 and stop <= reached")
    left_behind = f.expr(
        "deliver = 1 and nack = 0 and deliver_epoch < last_epoch and stop <= last_reached"
    )
    freed, dropped = f.col("trim") > 0, f.col("dropped") > 0
    lost = open_ones.where(skipped | left_behind | freed | dropped).withColumns(
        {"freed": freed, "skipped": skipped, "was_dropped": dropped}
    )
    return finding(
        islands(lost, (*LINE, "freed", "skipped", "was_dropped")),
        LOSS,
        "lost",
        f.when(
            f.col("was_dropped"),
            of_range("offsets %s to %s were dead letters that the log did not hold any more"),
        )
        .when(
            f.col("freed"),
            of_range("offsets %s to %s were freed before the group was done with them"),
        )
        .when(
            f.col("skipped"),
            of_range("offsets %s to %s were never delivered; later ones were"),
        )
        .otherwise(
            of_range(
                "offsets %s to %s were delivered to an earlier owner alone; its successor "
                "was sent later ones without them"
            )
        ),
    )


def check_order(stretches: DataFrame, groups: DataFrame) -> DataFrame:
    """Return offsets whose one delivery came after that of a higher offset."""
    late = (
        stretches.where("deliver = 1 and first < deliver_high")
        .join(f.broadcast(groups.select(*LINE, "is_late")), list(LINE))
        # What a record that begins late does not know of may have gone out before.
        .where("not (is_late and deliver_caused = 1)")
    )
    return finding(
        islands(late, (*LINE, "deliver_high")),
        ORDER,
        "out_of_order",
        sentence(
            "offsets %s to %s were delivered first after offset %s had been",
            "first",
            f.col("stop") - 1,
            f.col("deliver_high") - 1,
        ),
    )


def check_unpublished(lines: DataFrame) -> DataFrame:
    """Return deliveries of offsets that were not published yet, as far as the record tells."""
    early = lines.where("kind = 'deliver' and base is not null").where(
        "stop > greatest(base, coalesce(published_to, base))"
    )
    return finding(
        early,
        LOSS,
        "delivered_unpublished",
        sentence(
            "offsets %s to %s were delivered; published was up to %s",
            "first",
            f.col("stop") - 1,
            f.coalesce("published_to", "base"),
        ),
    )


def check_acks(stretches: DataFrame) -> DataFrame:
    """Return acks of what was not delivered under their token, or not yet."""
    is_single = "ack = 1 and deliver = 1"
    wrong = f.expr(
        f"""case
            when deliver = 0 then 'ack_not_delivered'
            when {is_single} and ack_at < deliver_at then 'ack_before_delivery'
            when {is_single} and ack_epoch != deliver_epoch and nack = 0 then 'ack_of_other_token'
        end"""
    )
    known = (
        stretches.where("ack > 0 and ack_known = ack and before = 0")
        .withColumn("wrong", wrong)
        .where("wrong is not null")
    )
    # Where just one delivery and one ack cover a stretch, sums of epochs are their epochs.
    token = (f.when(f.col("wrong") == "ack_of_other_token", f.col(each)) for each in _EPOCHS)
    spans = islands(
        known.withColumns(dict(zip(_EPOCHS, token, strict=True))), (*LINE, "wrong", *_EPOCHS)
    )
    texts = {
        "ack_not_delivered": of_range("offsets %s to %s were acknowledged and never delivered"),
        "ack_before_delivery": of_range(
            "offsets %s to %s were acknowledged before they were delivered"
        ),
        "ack_of_other_token": of_range(
            "offsets %s to %s were delivered under epoch %s and acknowledged under %s", *_EPOCHS
        ),
    }
    return findings(
        spans, ACKS, {what: (f.col("wrong") == what, text) for what, text in texts.items()}
    )
