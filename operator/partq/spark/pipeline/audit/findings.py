"""Builds findings out of the rows that show them."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from partq.spark.pipeline.audit.schema import FAULT, FINDINGS


def finding(
    rows: DataFrame, check: str, what: str | Column, detail: Column, *, severity: str = FAULT
) -> DataFrame:
    """Return a finding for each row; columns of `FINDINGS` that rows have are taken over."""
    given = {
        "check": f.lit(check),
        "what": f.lit(what) if isinstance(what, str) else what,
        "severity": f.lit(severity),
        "detail": detail,
    }
    return rows.select(
        *(
            given.get(field.name, f.col(field.name) if field.name in rows.columns else f.lit(None))
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
