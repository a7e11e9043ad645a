"""`spark.read.format("partq")` on a real queue."""

import json
import os
import runpy
from pathlib import Path

import psutil
import pyspark
import pytest

from partq import PartitionId
from partq.errors import BadRequestError, DataLossError
from partq.pipeline.failures import as_ours
from partq.spark.read.batch_reader import BatchReader
from partq.spark.read.options import read_options
from partq.spark.read.schema import source_schema
from partq.spark.source import PartqDataSource, register
from tests.spark.live_queue import live_queue

COUNT = 1000
PUSHES = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=3, groups=["workers", "other"]) as running:
        running.places = running.publish(range(COUNT), max_batch_count=50)
        yield running


@pytest.fixture
def pushing(spark):
    """Have Spark hand filters over, which it does not by default."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def read(spark, where, /, **more):
    """Read with the options that lead there, and more; what is None is left out."""
    options = {name: value for name, value in (where.options() | more).items() if value is not None}
    return spark.read.format("partq").options(**options).load()


def values(frame):
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_everything_is_read_with_its_place(spark, queue):
    rows = read(spark, queue, includeHeaders="true").collect()
    assert {(row.partition, row.offset): int(row.value) for row in rows} == {
        (str(place.partition), place.offset): number for number, place in enumerate(queue.places)
    }
    schema = read(spark, queue, includeHeaders="true").schema
    assert {field.name for field in schema if field.nullable} == {
        *("key", "headers", "event_time", "redeliveries")
    }
    assert not schema["headers"].dataType.valueContainsNull
    for row in rows:
        number = int(row.value)
        assert row.key == f"key-{number % 10}"
        assert row.headers == {"n": str(number)}
        assert (row.queue, row.redeliveries) == ("orders", None)
        assert f"{row.generation}.{row.partition_index}" == row.partition
        assert tuple(row.token) == (row.generation, row.append_broker_epoch, 0, row.offset)
        assert 0 < row.append_broker_epoch <= row.publish_time.timestamp() * 1000


def test_a_read_is_cut_into_as_many_tasks_as_asked_for(spark, queue):
    frame = read(spark, queue, minPartitions="5", columns="value")
    assert frame.rdd.getNumPartitions() == 5
    assert values(frame) == list(range(COUNT))
    sizes = read(spark, queue, maxRecordsPerPartition="90", columns="value").rdd.glom().map(len)
    assert max(sizes.collect()) <= 90


def test_partitions_share_tasks_in_their_order(spark, queue):
    frame = read(spark, queue, maxTasks="2", columns="partition,offset")
    tasks = frame.rdd.glom().collect()
    assert len(tasks) == 2
    found = [[(row.partition, row.offset) for row in task] for task in tasks]
    assert sorted(found[0] + found[1]) == sorted(
        (str(place.partition), place.offset) for place in queue.places
    )
    assert all(task == sorted(task) for task in found)
    assert not {name for name, _ in found[0]} & {name for name, _ in found[1]}


@pytest.mark.skipif(not PUSHES, reason="Spark 4.0 keeps the source that it has found by its name")
def test_a_registered_source_makes_one_task_for_each_core(spark, queue):
    register(spark)
    cores = spark.sparkContext.defaultParallelism
    assert cores < 3
    assert read(spark, queue, columns="value").rdd.getNumPartitions() == cores


def test_reads_of_the_same_messages_share_a_pin(queue, caplog):
    """A partition has 16 of them, and each lasts ten minutes longer than its read."""
    schema = source_schema(with_headers=False)
    tasks = [
        BatchReader(read_options(queue.options(), is_stream=False), schema).partitions()
        for _ in range(20)
    ]
    assert len({task.pin for each in tasks for task in each}) == 1
    assert "without a pin" not in caplog.text


def test_offsets_say_what_is_read(spark, queue):
    ends = {str(each.partition): each.offset + 1 for each in queue.places}
    start = {"1.0": 7, "1.1": -2, "1.2": -1}
    end = {"1.0": 19, "1.1": 3}
    frame = read(spark, queue, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    found = {(row.partition, row.offset) for row in frame.select("partition", "offset").collect()}
    assert found == {("1.0", n) for n in range(7, 19)} | {("1.1", n) for n in range(3)}
    assert ends["1.2"] > 0, "and it begins and ends at its end"


def test_times_say_what_is_read(spark, queue):
    times = sorted(
        {row.publish_time for row in read(spark, queue).select("publish_time").collect()}
    )
    after = read(spark, queue, startingTimestamp=str(to_ms(times[-1])), columns="publish_time")
    before = read(
        spark,
        queue,
        startingOffsetsByTimestamp=json.dumps({"1.0": 0, "1.1": 0}),
        endingTimestamp=str(to_ms(times[-1])),
    )
    assert {row.publish_time for row in after.collect()} == {times[-1]}
    assert {row.publish_time for row in before.collect()} <= set(times[:-1])
    assert after.count() + before.count() == COUNT


def test_a_group_says_where_to_begin_and_is_not_moved(spark, queue):
    assert read(spark, queue, group="workers").count() == COUNT
    assert set(queue.cursors("workers").values()) == {0}


def test_a_schema_may_leave_columns_out_and_no_body_is_opened_for_the_rest(spark, queue):
    source = spark.read.format("partq").options(**queue.options())
    frame = source.schema("offset bigint, partition string").load()
    assert {(row.partition, row.offset) for row in frame.collect()} == {
        (str(place.partition), place.offset) for place in queue.places
    }


@pytest.mark.skipif(not PUSHES, reason="Spark 4.0 hands no filters over")
def test_filters_leave_out_tasks_and_messages(spark, queue, pushing):
    table = read(spark, queue, maxRecordsPerPartition="10").select("partition", "offset")
    one = table.where("partition = '1.1' and offset >= 10 and offset < 30")
    assert sorted(map(len, one.rdd.glom().collect())) == [10, 10]
    some = table.where("offset in (3, 5) and generation = 1 and partition_index != 2")
    assert {tuple(row) for row in some.collect()} == {
        (partition, offset) for partition in ("1.0", "1.1") for offset in (3, 5)
    }
    times = sorted(row.publish_time for row in read(spark, queue).collect())
    last = times[-1]
    late = read(spark, queue, columns="publish_time").where(f"publish_time >= '{last}'")
    early = read(spark, queue, columns="publish_time").where(f"publish_time < '{last}'")
    assert late.count() == times.count(last)
    assert early.count() == COUNT - times.count(last)


def test_filters_hold_where_spark_hands_none_over(spark, queue):
    frame = read(spark, queue).where("partition = '1.1' and offset >= 10 and offset < 30")
    assert frame.count() == 20


BAD = [
    ({"url": "localhost:7411"}, "option url: 'localhost:7411'; expected http://HOST:PORT"),
    ({"url": ""}, "option url is missing"),
    ({"url": "http://127.0.0.1:1", "timeoutSeconds": "0.1"}, "no broker answers: http://127.0.0.1"),
    ({"token": "wrong"}, "unknown token"),
    ({"token": ""}, "option token is empty"),
    ({"token": None, "tokenFile": "/nowhere"}, "option tokenFile: /nowhere"),
    ({"queue": "nothing"}, "queue default/nothing: this broker serves default/orders only"),
    ({"group": "nobody"}, "option group: group nobody: queue orders "),
    ({"topic": "orders"}, "option 'topic' is not an option of reads; there are url, queue"),
    ({"startingOffsets": '{"1.9": 4}'}, "queue 'orders' has no partition 1.9; it has 1.0, 1.1"),
    ({"columns": "key,colour"}, "columns: there is no 'colour'; there are queue, partition"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "sentence"), BAD)
def test_what_is_wrong_is_said_at_once_in_one_sentence(spark, queue, options, sentence):
    with pytest.raises(Exception, match=r"partq\.errors") as caught:
        read(spark, queue, **options)
    first, second, *rest = str(caught.value).splitlines()
    assert sentence in first
    assert second.strip().startswith("SQLSTATE")
    assert not rest
    assert sentence in as_ours(caught.value).message


def test_a_token_that_may_not_read_is_refused_at_once(spark, queue):
    with pytest.raises(Exception, match=r"partq\.errors\.ForbiddenError") as caught:
        read(spark, queue, token=queue.broker.tokens.produce)
    assert "produce" in as_ours(caught.value).message


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({}, "key int", "schema: column 'key' as int; it is string: read it so, and cast"),
        ({}, "name string", "schema: there is no column 'name'; there are queue, partition"),
        ({"startingOffsets": "latest"}, "offset bigint", "a batch from latest is empty"),
        ({"maxOffsetsPerTrigger": "5"}, "offset bigint", "a batch has no trigger"),
        ({"startingOffsets": '{"1.0": 5000}'}, "offset bigint", "ends at"),
    ],
)
def test_what_is_wrong_with_a_batch_is_said_when_it_is_planned(
    spark, queue, options, schema, sentence
):
    source = spark.read.format("partq").options(**(queue.options() | options))
    with pytest.raises(Exception, match=r"partq\.errors") as caught:
        source.schema(schema).load().count()
    assert sentence in str(caught.value).splitlines()[0]


def test_what_was_trimmed_is_refused_or_left_out(spark):
    with live_queue(partitions=1, groups=["workers"]) as queue:
        queue.publish(range(100), max_batch_count=10)
        table = read(spark, queue, startingOffsets=json.dumps({"1.0": 5}))
        loose = read(spark, queue, startingOffsets=json.dumps({"1.0": 5}), failOnDataLoss="false")
        first = queue.trim_to(PartitionId(1, 0), 50)
        assert first > 5
        with pytest.raises(Exception, match=r"partq\.errors") as caught:
            table.count()
        ours = as_ours(caught.value)
        assert isinstance(ours, DataLossError)
        assert f"startingOffsets is at 5, and what is stored begins at {first}" in ours.message
        assert values(loose) == list(range(first, 100))


def test_a_killed_worker_loses_and_repeats_nothing(spark, tmp_path):
    """Python processes of a task are killed while it still reads: Spark tries it again."""
    marker = tmp_path / "killed"
    with live_queue(partitions=2) as queue:
        queue.publish(range(120), size=200_000)
        table = read(spark, queue, columns="value")

        def kill_the_reader(rows):
            for row in rows:
                if not marker.exists():
                    marker.touch()
                    me = psutil.Process()
                    others = [each for each in me.parent().children() if each.pid != os.getpid()]
                    for each in others:
                        each.kill()
                yield int(row.value)

        found = table.rdd.mapPartitions(kill_the_reader).collect()
        assert sorted(found) == list(range(120))
        assert marker.exists()


def test_the_example_reads_every_order_once(spark, queue, tmp_path):
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "spark_read.py"))
    counts = example["orders_per_customer"](spark, queue.options()).collect()
    assert {row.key: row["count"] for row in counts} == {f"key-{n}": COUNT // 10 for n in range(10)}
    for _ in range(2):
        example["follow"](spark, queue.options(), "other", str(tmp_path))
        assert values(spark.read.parquet(str(tmp_path / "table"))) == list(range(COUNT))


def test_load_refuses_an_offset_above_the_end(queue):
    for name in ("startingOffsets", "endingOffsets"):
        source = PartqDataSource(queue.options(**{name: '{"1.0": 5000}'}))
        with pytest.raises(BadRequestError, match=f"{name}: partition 1.0 .* ends at"):
            source.schema()


def to_ms(instant):
    return int(instant.timestamp() * 1000)
