"""Micro-batches that wait for more messages: `minOffsetsPerTrigger`, `maxTriggerDelay`."""

import pyspark
import pytest

from partq.spark.read.trigger_delay import TriggerDelay
from tests.spark.live_queue import live_queue
from tests.spark.read.stream_steps import stream_steps

ADMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


def test_few_messages_wait_until_the_time_since_the_last_ones_is_over():
    now = [100.0]
    delay = TriggerDelay(10, 60.0, lambda: now[0])
    assert delay.is_due(1), "the first ones of a process"
    assert not delay.is_due(9)
    assert delay.is_due(10)
    now[0] += 59
    assert not delay.is_due(9)
    now[0] += 1
    assert delay.is_due(1)
    assert not delay.is_due(9)
    assert TriggerDelay(None, 0.0).is_due(1)


@pytest.mark.skipif(not ADMITS, reason="the reader takes no start, and no target")
def test_a_micro_batch_has_enough_messages_or_is_put_off():
    with live_queue(partitions=2) as queue:
        options = queue.options(
            startingOffsets="earliest", minOffsetsPerTrigger="20", maxOffsetsPerTrigger="30"
        )
        queue.publish(range(5))
        with stream_steps(options) as steps:
            start = steps.begin()
            first = steps.end(start)
            assert steps.read(start, first) == 5
            queue.publish(range(15))
            assert steps.end(first) == first
            queue.publish(range(20))
            second = steps.end(first)
            assert steps.read(first, second) == 30
            assert steps.end(second) == second, "5 are left"
            # What ends with what is there now takes them: they would never be read.
            steps.reader.prepareForTriggerAvailableNow()
            assert steps.read(second, steps.end(second)) == 5
