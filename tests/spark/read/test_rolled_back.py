"""A store that was put back to an older copy: it is noticed, or gone on from, and said."""

import json
import logging
import shutil

import pytest

from partq.errors import RolledBackError
from partq.pipeline.failures import as_ours
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import to_json
from partq.spark.read.options import read_options
from partq.spark.read.read_planner import ReadPlanner
from tests.spark.live_queue import live_queue
from tests.spark.stream_run import Run

KEPT, LOST, SINCE = range(40), range(1000, 1060), range(2000, 2100)
EARLIEST = {"startingOffsets": "earliest"}
SENTENCE = r"its store was rolled back, or the queue was deleted and created again"


def plan_of(log, queue, **more):
    return ReadPlanner(log, read_options(queue.options() | more, is_stream=False))


@pytest.fixture(scope="module")
def queue(spark, tmp_path_factory):
    """A queue that has forgotten `LOST`, and has stored `SINCE` at the same offsets and above.

    Two queries have read both before: `checkpoint` is at their end, `planned` in a micro-batch that
    was not finished.
    """
    copy = tmp_path_factory.mktemp("copy") / "redis"
    with live_queue(partitions=2) as running:
        running.publish(KEPT, max_batch_count=7)
        shutil.copytree(running.broker.runtime.data_dir / "redis", copy)
        running.publish(LOST, max_batch_count=7)
        with LogThread(read_options(running.options(), is_stream=False).connection) as log:
            running.before = to_json(plan_of(log, running).latest())
        running.checkpoint = tmp_path_factory.mktemp("checkpoint")
        first = Run(spark, running, running.checkpoint, **EARLIEST)()
        assert first.values == [*KEPT, *LOST]
        running.planned = tmp_path_factory.mktemp("planned")
        with pytest.raises(Exception, match="CrashError"):
            Run(spark, running, running.planned, **EARLIEST)(crash_in=0)
        running.roll_back(copy)
        running.publish(SINCE, max_batch_count=7)
        yield running


def test_a_plan_goes_on_with_what_was_stored_since_and_warns(queue, caplog):
    start = {"startingOffsets": json.dumps(queue.before)}
    with LogThread(read_options(queue.options(), is_stream=False).connection) as log:
        with pytest.raises(RolledBackError, match=SENTENCE):
            plan_of(log, queue, **start).start()
        with caplog.at_level(logging.WARNING, "partq.spark"):
            found = plan_of(log, queue, failOnDataLoss="false", **start).start()
        kept = log.positions("earliest")
        ends = log.positions("latest")
    assert sum(ends[each].offset - at.offset for each, at in found.items()) == len(SINCE)
    assert found.keys() == kept.keys()
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == len(found)
    for partition in found:
        assert any(f"partition {partition}: startingOffsets is at" in each for each in warnings)
    assert all("the query continues, for failOnDataLoss is false" in each for each in warnings)


def test_a_batch_from_a_place_that_is_gone_is_refused_or_goes_on(spark, queue):
    source = spark.read.format("partq").options(
        **queue.options(startingOffsets=json.dumps(queue.before), columns="value")
    )
    with pytest.raises(Exception, match=SENTENCE) as caught:
        source.load().count()
    assert isinstance(as_ours(caught.value), RolledBackError)
    rows = source.option("failOnDataLoss", "false").load().collect()
    assert sorted(int(row.value) for row in rows) == list(SINCE)


def test_a_query_from_a_checkpoint_that_is_gone_is_refused_or_goes_on(spark, queue):
    with pytest.raises(Exception, match=SENTENCE) as caught:
        Run(spark, queue, queue.checkpoint)()
    assert isinstance(as_ours(caught.value), RolledBackError)
    loose = Run(spark, queue, queue.checkpoint, failOnDataLoss="false")
    loose()
    assert loose.values == list(SINCE)


def test_a_micro_batch_that_was_planned_before_ends_with_what_is_left_of_it(spark, queue):
    """The driver died in it, and the log was rolled back to its middle."""
    loose = Run(spark, queue, queue.planned, failOnDataLoss="false", **EARLIEST)
    loose()
    assert loose.batches[0] == list(KEPT)
    while len(loose.values) < len(KEPT) + len(SINCE):  # before Spark 4.2 a run is one micro-batch
        loose()
    assert loose.values == [*KEPT, *SINCE]
