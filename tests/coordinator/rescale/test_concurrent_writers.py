"""A change of the partition count while somebody else changes the queue, too."""

from dataclasses import replace

import pytest

from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import RescaleEvent, commit
from partq.errors import UnknownQueueError
from tests.coordinator.rescale_stage import RescaleStage


@pytest.fixture
async def stage(store, keys):
    stage = RescaleStage(store, keys)
    yield stage
    await stage.coordinator.close()


async def test_a_coordinator_that_was_replaced_between_read_and_write_changes_nothing(stage):
    """It was about to commit, when the next one aborted the change, and began another."""
    await stage.make(2, "workers")
    await stage.look(2)
    await stage.want(3)
    prepared = await stage.until(lambda layout: layout.next is not None)
    deposed = stage.coordinator._rescaler
    stage.coordinator = stage.new_coordinator()
    await stage.want(4)
    layout = await stage.until(lambda layout: layout.partition_count == 4)
    assert await deposed._write(commit(prepared, 1), RescaleEvent.COMMITTED) == layout
    assert await deposed.plan(prepared, 2) == layout, "nor does it abort"
    assert await stage.layout() == layout
    assert ("Committed", 2, 3) not in stage.events
    await deposed.close()


async def test_a_queue_that_is_deleted_in_the_middle_is_changed_no_more(stage):
    await stage.make(2, "workers")
    await stage.look(2)
    stage.broker.refuses = {PartitionId(2, 2)}
    await stage.make(3, "workers")
    prepared = await stage.look(2)
    await stage.ports.layouts.bury()
    stage.broker.refuses = set()
    assert await stage.look(3) == prepared
    with pytest.raises(UnknownQueueError):
        await stage.ports.layouts.write(commit(prepared, 1))


@pytest.mark.parametrize("step", ["before its first cursor", "after its first cursor"])
async def test_a_group_made_while_a_change_is_committed_has_all_its_cursors(stage, step):
    await stage.make(2, "workers")
    await stage.look(2)
    await stage.want(3)
    partitions = stage.records.partitions
    done = []

    class ChangedMeanwhile:
        def __getattr__(self, name):
            return getattr(partitions, name)

        async def add_group(self, *args, **kwargs):
            if not done:
                done.append(1)
                if step.startswith("after"):
                    await partitions.add_group(*args, **kwargs)
                await stage.until(lambda layout: layout.partition_count == 3)
            await partitions.add_group(*args, **kwargs)

    stage.records = replace(stage.records, partitions=ChangedMeanwhile())
    await stage.make(3, "workers", "late")
    layout = await stage.layout()
    found = await partitions.read_many(layout.all_partitions())
    assert layout.generation == 2
    assert all("late" in record.groups for record in found.values())
    assert set((await stage.ports.configs.read_queue()).groups) == {"workers", "late"}
