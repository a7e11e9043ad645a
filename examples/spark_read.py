"""Read a queue as a table, and follow it as a stream whose progress a group shows.

In a checkout of partq, after `make setup` and with Java 17, in the environment .venv:

.venv/bin/pip install -e '.[spark]'
.venv/bin/partq dev up -f examples/lake.yaml --detach      # prints URL and tokens
.venv/bin/spark-submit examples/spark_read.py --url URL --token TOKEN --group lake --dir /tmp/orders
"""

import argparse

from pyspark.sql import DataFrame, SparkSession


def orders_per_customer(spark: SparkSession, queue: dict[str, str]) -> DataFrame:
    """Return how many orders each customer has, as of now."""
    table = spark.read.format("partq").options(**queue).option("columns", "key").load()
    return table.groupBy("key").count().orderBy("key")


def follow(spark: SparkSession, queue: dict[str, str], group: str, directory: str) -> None:
    """Append what has come since the last run to Parquet files, each message once."""
    stream = (
        spark.readStream.format("partq")
        .options(**queue)
        .option("group", group)
        .option("maxOffsetsPerTrigger", 100_000)
        .load()
    )
    query = (
        stream.selectExpr("partition", "offset", "key", "CAST(value AS string) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/table")
    )
    query.awaitTermination()


def main() -> None:
    """Read the arguments, show the table, follow the stream."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="of a broker")
    parser.add_argument("--token", required=True, help="with the role consume")
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--group", required=True, help="a group without members")
    parser.add_argument("--dir", required=True, help="for the stream's files and checkpoint")
    given = parser.parse_args()
    queue = {"url": given.url, "queue": given.queue, "token": given.token}
    spark = SparkSession.builder.appName("orders").getOrCreate()
    orders_per_customer(spark, queue).show()
    follow(spark, queue, given.group, given.dir)
    print(f"{spark.read.parquet(f'{given.dir}/table').count()} orders are in {given.dir}/table")


if __name__ == "__main__":
    main()
