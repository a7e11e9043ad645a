"""How many partitions a queue is to have that is there already."""

import pytest

from partq.embedded.provision import provision
from partq.resources import queue_document, resources_of
from partq.store.keys import Keys
from partq.store.records.configs import Configs
from partq.store.records.layout.layouts import Layouts

UID = "0f3a9c1e-0000-4000-8000-000000000000"


async def wanted_after(store, *counts, keeps):
    """Provision a queue by files with these numbers, and return how many it is to have, and has."""
    for count in counts:
        resources = resources_of(queue_document("orders", partitions=count))
        (queue,) = resources.queues
        await provision(store, queue, resources, uid=UID, keeps_partition_count=keeps)
    keys = Keys(store.prefix, *queue.key, UID)
    config = await Configs(store, keys).read_queue()
    layout = (await Layouts(store, keys).read()).layout
    return config.spec["partitions"], layout.partition_count


@pytest.mark.parametrize(("keeps", "wanted"), [(False, 3), (True, 2)])
async def test_another_number_of_partitions_is_wanted_unless_the_stored_one_holds(
    store, keeps, wanted, caplog
):
    assert await wanted_after(store, 2, 3, keeps=keeps) == (wanted, 2)
    told = "orders has 2 partitions and is to have 3: it is changed"
    assert (told in caplog.text) is not keeps
