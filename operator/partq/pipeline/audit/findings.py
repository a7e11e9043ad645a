"""Builds findings out of the rows that show them."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partq.errors import InternalError
from partq.pipeline.audit.schema import FINDINGS, KINDS

ORDER = "order"
ACKS = "acks"
"""Checks that several modules are parts of."""


def finding(rows: DataFrame, check: str, what: str, detail: Column) -> DataFrame:
    """Return a finding for each row; arguments and errors as `findings`."""
    return findings(rows, check, {what: (f.lit(True), detail)})


def findings(rows: DataFrame, check: str, kinds: Mapping[str, tuple[Column, Column]]) -> DataFrame:
    """Return the findings that rows show, in one pass; a row may show several, or none.

    Args:
        rows: their columns that `FINDINGS` has are taken over.
        check: which found it.
        kinds: of `KINDS`, which says how severe each is → when a row shows it, and a sentence.

    Raises:
        InternalError: there is no such kind.
    """
    if unknown := kinds.keys() - KINDS.keys():
        raise InternalError(f"findings {unknown}: expected some of KINDS; add them there")
    shown = f.array(
        *(
            f.when(
                condition,
                f.struct(
                    f.lit(what).alias("what"),
                    f.lit(KINDS[what]).alias("severity"),
                    detail.alias("detail"),
                ),
            )
            for what, (condition, detail) in kinds.items()
        )
    )
    own = [name for name in FINDINGS.fieldNames() if name in rows.columns]
    each = (
        rows.select(*own, f.explode(shown).alias("_shown"))
        .where("_shown is not null")
        .select(*own, f.lit(check).alias("check"), "_shown.*")
    )
    return each.select(
        *(
            (f.col(field.name) if field.name in each.columns else f.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in FINDINGS
        )
    )


def sentence(template: str, *columns: str | Column) -> Column:
    """Return a text with columns in the place of `%s`; one that is null is shown as `?`."""
    return f.format_string(
        template,
        *(
            f.coalesce((f.col(each) if isinstance(each, str) else each).cast("string"), f.lit("?"))
            for each in columns
        ),
    )


def of_range(template: str, *columns: str) -> Column:
    """Return a sentence whose first `%s` are the first and the last offset of the finding."""
    return sentence(template, "first", f.col("stop") - 1, *columns)


def with_keys(findings: DataFrame, messages: DataFrame) -> DataFrame:
    """Fill in the key of the first message of each finding that has offsets and no key."""
    wanted = findings.where("first is not null and key is null")
    places = wanted.select("partition", f.col("first").alias("offset")).distinct()
    keys = (
        messages.select("partition", "offset", "key")
        .join(f.broadcast(places), ["partition", "offset"])
        .groupBy("partition", "offset")
        .agg(f.first("key").alias("found"))
        .withColumnRenamed("offset", "first")
    )
    return (
        findings.join(f.broadcast(keys), ["partition", "first"], "left")
        .withColumn("key", f.coalesce("key", "found"))
        .select(*FINDINGS.fieldNames())
    )
