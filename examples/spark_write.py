"""Write a DataFrame and a stream to a queue, each row once, whatever fails in between.

In a checkout of partq, after `make setup` and with Java 17, in the environment .venv:

.venv/bin/pip install -e '.[spark]'
.venv/bin/partq dev up -f examples/queue.yaml --detach     # prints URL and tokens
.venv/bin/spark-submit examples/spark_write.py --url URL --token TOKEN --dir /tmp/orders
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

COUNT = 1000
CUSTOMERS = 10


def orders(spark: SparkSession, first: int, count: int) -> DataFrame:
    """Return made-up orders; those of a customer are in one task, in their order."""
    return (
        spark.range(first, first + count)
        .selectExpr("id AS number", f"concat('customer-', id % {CUSTOMERS}) AS customer")
        .repartition("customer")
        .sortWithinPartitions("number")
    )


def messages(frame: DataFrame) -> DataFrame:
    """Return the columns that make a message."""
    return frame.selectExpr("customer AS key", "to_json(struct(*)) AS value")


def write_once(spark: SparkSession, queue: dict[str, str], write_id: str) -> None:
    """Write a DataFrame; run again under the same id, it adds what is missing, if anything."""
    frame = messages(orders(spark, 0, COUNT))
    frame.write.format("partq").options(**queue).option("writeId", write_id).mode("append").save()


def stream_once(spark: SparkSession, queue: dict[str, str], directory: str) -> None:
    """Write what is new in a directory of files; the checkpoint knows what was written."""
    orders(spark, COUNT, COUNT).write.mode("append").parquet(f"{directory}/incoming")
    incoming = spark.readStream.schema("number long, customer string").parquet(
        f"{directory}/incoming"
    )
    query = (
        messages(incoming)
        .writeStream.format("partq")
        .options(**queue)
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main() -> None:
    """Read the arguments and write both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="of a broker")
    parser.add_argument("--token", required=True, help="with the role produce")
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--dir", required=True, help="for the stream's files and checkpoint")
    given = parser.parse_args()
    queue = {"url": given.url, "queue": given.queue, "token": given.token}
    spark = SparkSession.builder.appName("orders").getOrCreate()
    write_once(spark, queue, "orders-1")
    stream_once(spark, queue, given.dir)
    print(f"{2 * COUNT} orders are stored")


if __name__ == "__main__":
    main()
