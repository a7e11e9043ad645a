"""`spark.read.format("partq")` on a real queue."""

import pytest

from tests.spark.live_queue import live_queue

COUNT = 1000


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=3, groups=["workers", "other"]) as running:
        running.places = running.publish(range(COUNT), max_batch_count=50)
        yield running


def read(spark, queue, **more):
    return spark.read.format("partq").options(**queue.options(**more)).load()


def values(frame):
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_everything_is_read_with_its_place(spark, queue):
    frame = read(spark, queue, includeHeaders="true")
    rows = frame.collect()
    assert {(row.partition, row.offset): int(row.value) for row in rows} == {
        (str(place.partition), place.offset): number for number, place in enumerate(queue.places)
    }
    for row in rows:
        number = int(row.value)
        assert row.key == f"key-{number % 10}"
        assert row.headers == {"n": str(number)}
        assert (row.queue, row.redeliveries) == ("orders", None)
        assert f"{row.generation}.{row.partition_index}" == row.partition
        assert tuple(row.token) == (row.generation, row.append_broker_epoch, 0, row.offset)
        assert 0 < row.append_broker_epoch <= row.publish_time.timestamp() * 1000
