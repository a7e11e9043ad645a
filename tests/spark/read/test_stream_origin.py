"""Whose offsets a checkpoint has: those of another queue are refused, whatever they fit."""

import json

import pytest

from partq.core.model import PartitionId
from partq.errors import ConflictError, RolledBackError
from partq.spark.read.offsets import from_json
from tests.spark.live_queue import live_queue
from tests.spark.read.stream_steps import stream_steps

EARLIEST = {"startingOffsets": "earliest"}
LOOSE = {"failOnDataLoss": "false"}


@pytest.fixture(scope="module")
def checkpoint():
    """Of a query that has read all of the queue `orders`."""
    with live_queue(partitions=2) as queue:
        queue.publish(range(30))
        with stream_steps(queue.options(**EARLIEST)) as steps:
            start = steps.begin()
            end = steps.end(start)
            assert steps.read(start, end) == 30
            yield end


@pytest.fixture(scope="module")
def other():
    with live_queue(queue="payments", partitions=2) as queue:
        queue.publish(range(40))
        yield queue


@pytest.fixture(scope="module")
def again():
    """The queue `orders`, deleted and created again with fewer partitions."""
    with live_queue(partitions=1) as queue:
        queue.publish(range(50))
        yield queue


def test_a_checkpoint_names_its_queue(checkpoint):
    origin = checkpoint["queue"]
    assert (origin["namespace"], origin["queue"]) == ("default", "orders")
    assert origin["uid"]
    assert origin["query"]


@pytest.mark.parametrize("more", [{}, LOOSE])
def test_that_of_another_queue_is_refused_in_any_case(checkpoint, other, more):
    uid = checkpoint["queue"]["uid"]
    with stream_steps(other.options(**more)) as steps:
        with pytest.raises(ConflictError) as caught:
            steps.read(checkpoint, checkpoint)
        assert f"the checkpoint is of queue default/orders (uid {uid}), and this query reads" in (
            caught.value.message
        )
        assert "default/payments (uid " in caught.value.message
        assert "failOnDataLoss" not in caught.value.message


def test_that_of_a_queue_that_was_created_again_is_refused_or_goes_on(checkpoint, again):
    with (
        stream_steps(again.options()) as steps,
        pytest.raises(RolledBackError, match="the queue was deleted and created again"),
    ):
        steps.read(checkpoint, checkpoint)
    with stream_steps(again.options(**LOOSE)) as steps:
        assert steps.read(checkpoint, checkpoint) == 0, "what was planned of the old one is gone"
        end = steps.end(checkpoint)
        assert steps.read(checkpoint, end) == 50
        assert end["queue"]["uid"] != checkpoint["queue"]["uid"]
        assert end["queue"]["query"]


def test_offsets_may_be_copied_from_a_checkpoint_of_this_queue_alone(checkpoint, other):
    with (
        stream_steps(other.options(startingOffsets=json.dumps(checkpoint))) as steps,
        pytest.raises(ConflictError, match="startingOffsets is of queue default/orders"),
    ):
        steps.begin()
    with stream_steps(other.options(**EARLIEST)) as steps:
        end = steps.end(steps.begin())
    with stream_steps(other.options(startingOffsets=json.dumps(end))) as steps:
        assert from_json(steps.begin()) == from_json(end)


def test_one_that_names_no_queue_is_read_and_gets_the_name(other):
    with stream_steps(other.options(**EARLIEST)) as steps:
        start = steps.begin()
        old = {name: place for name, place in start.items() if name != "queue"}
        end = steps.end(old)
        assert end["queue"] == start["queue"]
        assert steps.read(old, end) == 40


def test_one_that_names_no_queue_and_has_other_partitions_is_told_as_that(checkpoint, again):
    old = {name: place for name, place in checkpoint.items() if name != "queue"}
    assert PartitionId(1, 1) in from_json(old)
    with (
        stream_steps(again.options()) as steps,
        pytest.raises(RolledBackError, match=r"partition 1\.1, and the queue has 1\.0") as caught,
    ):
        steps.read(old, old)
    assert "the checkpoint is of another queue" in caught.value.message
