"""Spark on a queue whose partition count changes twice: each row once, each key in its order."""

import threading
from collections import defaultdict
from contextlib import contextmanager

import pytest
from pyspark.errors import StreamingQueryException

from partq import Producer
from partq.spark.source import register
from partq.testing import eventually
from tests.client.test_change_with_brokers import change
from tests.spark.live_queue import live_queue
from tests.spark.stream_run import Run
from tests.spark.write.test_sink import (
    ARROW_ROWS,
    COUNT,
    by_key,
    expected,
    failing_value,
    run_stream,
)

KEYS = 10


@pytest.fixture
def queue():
    """A queue that keeps all: one of its groups has no members."""
    with live_queue(partitions=2, groups=["lake", "workers"], broker_count=2) as running:
        yield running


def change_to(queue, count, generation):
    """Change the partition count, and wait until that is in force."""
    queue.run(change(queue.broker, count))

    async def wait(reader):
        async def is_in_force():
            return (await reader.layout()).generation == generation

        await eventually(is_in_force, "the change is in force")

    queue.reading(wait)


class Publishing:
    """Publishes numbers in a thread, as many as it is told to."""

    def __init__(self, queue):
        self.count = 0
        """How many there are."""
        self._most = 0
        self._queue = queue
        self._is_over = False
        self._thread = threading.Thread(target=lambda: queue.run(self._publish(), None))

    async def _publish(self):
        queue = self._queue
        async with Producer(
            queue.broker.url, queue=queue.name, token=queue.broker.tokens.produce,
            max_batch_count=3, max_pending_messages=10,
        ) as producer:  # fmt: skip
            while not self._is_over:
                await eventually(lambda: self._is_over or self.count < self._most, "more is due")
                while self.count < self._most:
                    await producer.send(b"%d" % self.count, key=f"key-{self.count % KEYS}")
                    self.count += 1

    def start(self):
        self._thread.start()

    def more(self, count=60):
        """Let more be published; wait until half of it is, so that the rest is under way."""
        half = self._most + count // 2
        self._most += count

        async def wait():
            await eventually(lambda: self.count >= half, "half of it is published")

        self._queue.run(wait())

    def stop(self):
        """Wait until all is stored."""
        self._is_over = True
        self._thread.join()


@contextmanager
def publishing(queue):
    """Publish until the end of the `with`."""
    running = Publishing(queue)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def numbers_by_key(rows):
    """Return the numbers of each key, in the order that the document tells to sort by."""
    found = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.generation, row.offset)):
        found[row.key].append(int(row.value))
    return found


def all_of(count):
    return {f"key-{key}": list(range(key, count, KEYS)) for key in range(min(KEYS, count))}


class KeyedRun(Run):
    """A query whose micro-batches keep their rows by key."""

    COLUMNS = ("key", "value", "generation", "offset")

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.rows = {}

    def take(self, frame, number):
        """Keep what a micro-batch holds; one that comes again has the same rows."""
        rows = frame.collect()
        self.rows[number] = rows
        self.batches[number] = sorted(int(row.value) for row in rows)

    def by_key(self):
        """Return the numbers of each key: those of a later micro-batch behind earlier ones."""
        found = defaultdict(list)
        for number in sorted(self.rows):
            for key, numbers in numbers_by_key(self.rows[number]).items():
                found[key] += numbers
        return found


def test_a_query_and_reads_have_each_row_once_and_each_key_in_order(spark, queue, tmp_path):
    """The query runs over the first change, and is started again from its checkpoint twice."""
    run = KeyedRun(spark, queue, tmp_path, group="lake", maxOffsetsPerTrigger="60")

    def read():
        frame = spark.read.format("partq").options(**queue.options()).load()
        return numbers_by_key(frame.select(*run.COLUMNS).collect())

    with publishing(queue) as published:
        published.more()
        seen = []

        def disturb(number):
            if not seen:
                change_to(queue, 3, 2)
                published.more()
            seen.append(number)

        run(then=disturb)
        published.more()
        run()
        between = read()
        change_to(queue, 2, 3)
        published.more()
    count = published.count
    while len(run.values) < count:
        run()
    assert run.values == list(range(count))
    assert run.by_key() == all_of(count)
    assert {row.generation for rows in run.rows.values() for row in rows} == {1, 2, 3}
    found = read()
    assert {key: numbers[: len(between[key])] for key, numbers in found.items()} == between
    assert found == all_of(count)


def test_a_stream_into_the_queue_that_dies_between_changes_writes_each_row_once(
    spark, queue, tmp_path
):
    register(spark)
    options = queue.options(queue.broker.tokens.produce)
    spark.conf.set(ARROW_ROWS, "10")
    try:
        spark.range(0, COUNT, 1, 1).write.parquet(str(tmp_path / "in"))
        for count, generation in ((3, 2), (2, 3)):
            with pytest.raises(StreamingQueryException, match="planted"):
                run_stream(spark, options, tmp_path, "k-", failing_value(queue, "k-", attempts=4))
            assert 0 < sum(map(len, by_key(queue, "k-").values())) < COUNT
            change_to(queue, count, generation)
        run_stream(spark, options, tmp_path, "k-")
    finally:
        spark.conf.unset(ARROW_ROWS)
    assert by_key(queue, "k-") == expected("k-", COUNT)
