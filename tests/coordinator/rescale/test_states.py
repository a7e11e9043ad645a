"""States of keys in a change of the partition count, as the coordinator waits for them."""

import pytest

from partq.core.model import PartitionId
from partq.store.records.layout.seals import Seals
from tests.coordinator.rescale_stage import RescaleStage
from tests.store.record import flush


@pytest.fixture
async def stage(store, keys):
    stage = RescaleStage(store, keys)
    yield stage
    await stage.coordinator.close()


async def test_nothing_settles_before_states_of_keys_have_been_carried_over(stage):
    """The owner of the successor does that before it opens the gate."""
    await stage.make(2, "workers")
    await stage.look(2)
    giver, successor = PartitionId(1, 0), PartitionId(2, 2)
    await stage.publish(giver)
    await stage.make(3, "workers")
    await stage.until(lambda layout: layout.generation == 2)
    await stage.seal_and_open()
    ports, epoch = stage.ports, stage.broker.epochs[giver]
    await flush(ports.partitions, giver, epoch, "workers", 1, states={"k": b"s"})
    await stage.log.trim(giver, broker_epoch=epoch)
    assert giver in (await stage.look(3)).lineage[successor]
    gated = await ports.partitions.read_cursor(successor, "workers")
    await Seals(stage.store, stage.keys).open_gate(
        successor, "workers", broker_epoch=stage.broker.epochs[successor],
        born=gated.born, gate=gated.gate, passed={},
    )  # fmt: skip
    await stage.until(lambda layout: not layout.lineage)
