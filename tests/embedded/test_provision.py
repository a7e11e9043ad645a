"""How many partitions a queue is to have that is there already."""

import pytest

from partq.embedded.provision import provision
from partq.errors import SettingsError
from partq.resources import group_document, queue_document, resources_of
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


def file_of(partitions, **group):
    group = [group_document("workers", "orders", **group)] if group else []
    return resources_of(queue_document("orders", partitions=partitions), *group)


@pytest.mark.parametrize(
    ("group", "named"),
    [
        ({"type": "KeyShared", "keyShared": {"parts": 64}}, "group workers would have 64 parts"),
        ({"type": "KeyShared", "keyShared": {"parts": 8}}, "expected 64: a group keeps the parts"),
        ({}, "orders: partitions: got 1025, of which group workers would have 64 parts"),
    ],
)
async def test_what_is_refused_changes_no_number_and_says_so_alone(store, caplog, group, named):
    before = file_of(1024, type="KeyShared", keyShared={"parts": 64})
    await provision(store, before.queues[0], before, uid=UID)
    after = file_of(1025, **group)
    with pytest.raises(SettingsError, match=named):
        await provision(store, after.queues[0], after, uid=UID)
    assert "it is changed" not in caplog.text
    keys = Keys(store.prefix, *after.queues[0].key, UID)
    assert (await Configs(store, keys).read_queue()).spec["partitions"] == 1024
