"""The recipes of docs/spark.md for lakes: each message once, whatever was repeated."""

import pytest

from tests.examples.pages import program_blocks
from tests.spark.live_queue import live_queue
from tests.spark.stream_run import Run

COUNT = 60
HEADING = "Into a lake, each message once"


@pytest.fixture(scope="module")
def recipes():
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg.catalog.sql")
    found = {}
    for block in program_blocks("spark.md", HEADING):
        exec(block.partition("\nquery =")[0], found)
    return found


def test_each_message_is_in_each_lake_once(spark, recipes, tmp_path):
    from deltalake import DeltaTable
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog(
        "lake", uri=f"sqlite:///{tmp_path}/catalog", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("shop")
    delta = str(tmp_path / "delta")
    lakes = [
        recipes["to_parquet"](str(tmp_path / "parquet")),
        recipes["to_delta"](delta, "orders-to-lake"),
        recipes["to_iceberg"](catalog, "shop.orders", "orders-to-lake"),
    ]

    class LakeRun(Run):
        def take(self, rows, number):
            for write in lakes:
                write(rows, number)
            super().take(rows, number)

    with live_queue(partitions=2, groups=["lake"]) as queue:
        queue.publish(range(COUNT), max_batch_count=7)
        run = LakeRun(
            spark, queue, tmp_path / "checkpoint", group="lake", maxOffsetsPerTrigger="40"
        )
        with pytest.raises(Exception, match="CrashError"):
            run(crash_in=0)
        queue.publish(range(COUNT, 2 * COUNT))
        while sum(map(len, run.batches.values())) < 2 * COUNT:
            run()
    expected = [b"%d" % number for number in range(2 * COUNT)]
    tables = {
        "parquet": spark.read.parquet(str(tmp_path / "parquet")).select("value").toArrow(),
        "delta": DeltaTable(delta).to_pyarrow_table(columns=["value"]),
        "iceberg": catalog.load_table("shop.orders").scan().to_arrow(),
    }
    for name, table in tables.items():
        assert sorted(table["value"].to_pylist(), key=int) == expected, name
