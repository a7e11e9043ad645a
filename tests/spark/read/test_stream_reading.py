"""`spark.readStream.format("partq")` on a real queue: restarts, brokers that die, lost messages."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from partq import Consumer, PartitionId
from partq.errors import ConflictError, RolledBackError
from partq.pipeline.failures import as_ours
from partq.spark.read.log_thread import LogThread
from partq.spark.read.options import read_options
from tests.spark.live_queue import live_queue
from tests.spark.stream_run import WAIT_S, Run, run_to_end

ADMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
"""Before, `availableNow` runs one micro-batch, and what it has read is told with the next start."""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=1) as running:
        yield running


def is_free(log, group):
    try:
        log.check_group(group, "another", log.layout().current_partitions[0])
    except ConflictError:
        return False
    return True


def test_a_query_goes_on_where_it_ended_even_inside_a_batch(spark, tmp_path):
    with live_queue(partitions=2, groups=["workers", "lake"]) as queue:
        queue.publish(range(100), max_batch_count=7)
        run = Run(spark, queue, tmp_path, group="lake", maxOffsetsPerTrigger="40", maxTasks="1")
        first = run().values
        if ADMITS:
            assert list(map(len, run.batches.values())) == [40, 40, 20]
            assert sum(queue.cursors("lake").values()) == 100
        queue.publish(range(100, 150))
        number = max(run.batches) + 1
        with pytest.raises(Exception, match="CrashError"):
            run(crash_in=number)
        crashed = run.batches[number]
        # What comes after the crash is not in the micro-batch that was planned before it.
        queue.publish(range(150, 200))
        for _ in range(10):
            run()
            if len(run.values) == 200:
                break
        assert run.batches[number] == crashed
        assert crashed
        assert not set(crashed) & set(first)
        assert run.values == list(range(200))
        assert set(queue.cursors("workers").values()) == {0}
        # Spark has stopped it, so its group is free for another one, soon.
        with LogThread(read_options(queue.options(), is_stream=True).connection) as log:
            while not is_free(log, "lake"):
                pass


def test_a_broker_dies_and_members_come_and_go_while_a_query_reads(spark, tmp_path):
    with live_queue(partitions=4, groups=["workers", "lake"], broker_count=2) as queue:
        queue.publish(range(200))
        consumers = []

        async def join():
            consumer = Consumer(
                queue.broker.url,
                queue="orders",
                group="workers",
                token=queue.broker.tokens.consume,
            )
            consumers.append(await consumer.__aenter__())

        async def leave():
            await consumers.pop().__aexit__(None, None, None)

        def disturb(number):
            if number == 0:
                queue.run(queue.broker.queue.brokers[0].kill())
            queue.run(join() if number % 2 == 0 else leave())

        run = Run(spark, queue, tmp_path, group="lake", maxOffsetsPerTrigger="70")
        try:
            while len(run.values) < 200:  # Spark 4.0 ends after each micro-batch
                run(then=disturb)
        finally:
            while consumers:
                queue.run(leave())
        assert run.values == list(range(200))


def test_a_group_with_a_member_is_refused(spark, tmp_path):
    with live_queue(partitions=1, groups=["lake"]) as queue:
        queue.publish(range(10))

        async def consume_one():
            consumer = Consumer(
                queue.broker.url, queue="orders", group="lake", token=queue.broker.tokens.consume
            )
            await consumer.__aenter__()
            await anext(aiter(consumer))
            return consumer

        consumer = queue.run(consume_one())
        try:
            run = Run(spark, queue, tmp_path, group="lake", startingOffsets="latest")
            with pytest.raises(Exception, match="lake") as caught:
                run()
        finally:
            queue.run(consumer.__aexit__(None, None, None))
        ours = as_ours(caught.value)
        assert isinstance(ours, ConflictError)
        assert "give Spark a separate group" in ours.message


def test_another_queue_of_the_same_name_is_noticed(spark, tmp_path):
    with live_queue(partitions=1) as queue:
        queue.publish(range(30))
        first = Run(spark, queue, tmp_path, startingOffsets="earliest")()
        assert len(first.values) == 30
    with live_queue(partitions=1) as queue:
        queue.publish(range(1000, 1050))
        with pytest.raises(Exception, match=r"partq\.errors") as caught:
            Run(spark, queue, tmp_path)()
        ours = as_ours(caught.value)
        assert isinstance(ours, RolledBackError)
        assert "the queue was deleted and created again" in ours.message
        again = Run(spark, queue, tmp_path, failOnDataLoss="false")()
        assert again.values == list(range(1000, 1050))


@pytest.mark.skipif(not ADMITS, reason="the first micro-batch has no limit, so there is no second")
def test_a_killed_driver_loses_and_repeats_nothing(spark, tmp_path):
    with live_queue(partitions=2, groups=["lake"]) as queue:
        queue.publish(range(60), max_batch_count=5)
        options = {"group": "lake", "maxOffsetsPerTrigger": "40"}
        process = subprocess.run(
            [sys.executable, "-m", "tests.spark.stream_driver", str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"PARTQ_READ": json.dumps(queue.options(**options))},
            timeout=10 * WAIT_S,  # the limit of a test is what ends it
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert process.returncode == -signal.SIGKILL, process.stderr[-2000:]
        first, second = (json.loads((tmp_path / f"rows-{n}.json").read_text()) for n in (0, 1))
        assert len(first) == 40
        queue.publish(range(60, 90))
        run = Run(spark, queue, tmp_path / "checkpoint", **options)
        while len(run.values) < 50:
            run()
        assert run.batches[1] == second, "the same messages under the same number"
        assert sorted([*first, *run.values]) == list(range(90))


def test_what_was_trimmed_ends_a_query_or_is_passed_over(spark, tmp_path):
    with live_queue(partitions=1, groups=["workers"]) as queue:
        queue.publish(range(40), max_batch_count=10)
        start = {"startingOffsets": json.dumps({"1.0": 3})}
        first = queue.trim_to(PartitionId(1, 0), 25)
        with pytest.raises(Exception, match="what is stored begins at"):
            Run(spark, queue, tmp_path / "strict", **start)()
        loose = Run(spark, queue, tmp_path / "loose", failOnDataLoss="false", **start)()
        assert loose.values == list(range(first, 40))


@pytest.mark.parametrize(
    ("options", "schema", "sentence"),
    [
        ({}, "colour string", "schema: there is no column 'colour'; there are queue, partition"),
        ({"endingOffsets": "latest"}, "offset bigint", "option endingOffsets: a stream has no end"),
        ({"token": "wrong"}, "offset bigint", "unknown token"),
    ],
)
def test_what_is_wrong_with_a_stream_is_said_in_the_first_line(
    spark, tmp_path, queue, options, schema, sentence
):
    source = spark.readStream.format("partq").options(**(queue.options() | options))
    writer = source.schema(schema).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(Exception, match=r"partq\.errors") as caught:
        run_to_end(writer.start)
    assert sentence in str(caught.value).splitlines()[0]
    assert sentence in as_ours(caught.value).message
