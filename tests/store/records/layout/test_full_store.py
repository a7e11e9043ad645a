"""A change of the partition count on a full Redis: each of its steps is taken."""

import pytest

from partq.core.model import PartitionId
from partq.errors import QuotaExceededError
from partq.store.keys import Keys
from tests.coordinator.rescale_stage import UID, RescaleStage


async def test_a_change_is_made_from_its_preparation_to_its_end(own_store, key_prefix):
    stage = RescaleStage(own_store, Keys(key_prefix, "ns", "orders", UID))
    await stage.make(3, "workers")
    await stage.look(2)
    old = [PartitionId(1, index) for index in range(3)]
    for partition in old:
        await stage.publish(partition)
    await own_store.read("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(QuotaExceededError):
        await stage.publish(old[0])
    await stage.want(2)
    layout = await stage.until(lambda layout: layout.partition_count == 2)
    await stage.seal_and_open()
    for partition in old:
        await stage.pass_by(partition, "workers")
    for partition in layout.lineage:
        cursor = await stage.ports.partitions.read_cursor(partition, "workers")
        await stage.ports.seals.open_gate(
            partition, "workers", broker_epoch=stage.broker.epochs[partition],
            born=cursor.born, gate=cursor.gate, passed={},
        )  # fmt: skip
    await stage.until(lambda layout: not layout.lineage and not layout.retired)
    await stage.look(2)
    assert not [name for name in await stage.names() if "#1." in name and "removal" not in name]
    assert [kind for kind, *_ in stage.events] == ["Started", "Committed", "Opened", "Settled"]
    await stage.coordinator.close()
