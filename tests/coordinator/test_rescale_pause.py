"""What the coordinator tells of the pause of publishing when a change has opened."""

import pytest

from partq.core.model import PartitionId
from tests.coordinator.rescale_stage import RescaleStage

NEW = PartitionId(2, 2)


@pytest.fixture
async def stage(store, keys):
    """Yield the queue at a change from 2 to 3 partitions that has just opened."""
    stage = RescaleStage(store, keys)
    await stage.make(2)
    await stage.look(2)
    await stage.make(3)
    await stage.until(lambda layout: layout.partition_count == 3)
    await stage.seal_and_open()
    yield stage
    await stage.coordinator.close()


async def test_brokers_that_were_asked_before_the_opening_are_asked_again(stage):
    await stage.look()
    assert stage.events[-1] == ("Committed", 2, 3), "the broker had not opened it when it was asked"
    stage.broker.pauses_ms = {NEW: 34}
    await stage.look()
    assert (stage.events[2], stage.pause_ms) == (("Opened", 2, 3), 34)


async def test_the_pause_is_not_told_where_no_broker_knows_it(stage):
    """Another one has opened it, and was replaced."""
    await stage.look(2)
    assert (stage.events[2], stage.pause_ms) == (("Opened", 2, 3), None)
