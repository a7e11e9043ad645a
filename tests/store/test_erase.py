"""What is left of a queue when it is deleted: nothing of its life, everything of the others."""

from dataclasses import replace

import pytest

from partq.core.model import MemberId
from partq.errors import ConflictError
from partq.store.erase import erase_queue
from partq.store.records.configs import Configs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions


async def make_queue(store, keys, partitions):
    await Layouts(store, keys).create_queue({1: 4})
    await Configs(store, keys).write_group("workers", {}, resource_generation=1)
    await Members(store, keys).list_member("workers", MemberId("m"), "10.0.0.1")
    own = Partitions(store, keys)
    for partition in partitions:
        await own.create(partition)
        await own.add_group(partition, "workers", start="Earliest")


async def names(store, key_prefix):
    found = set()
    for node in store.nodes():
        cursor = b"0"
        while True:
            command = ["SCAN", cursor, "MATCH", f"{key_prefix}:*", "COUNT", 100]
            cursor, page = await node.read(command)
            found |= set(page)
            if cursor == b"0":
                break
    return found


async def test_only_this_life_goes(store, keys, key_prefix, partition):
    neighbours = (
        replace(keys, uid="ffffffff"),
        replace(keys, queue="orders-2"),
        replace(keys, namespace="ns-2"),
    )
    for each in neighbours:
        await make_queue(store, each, [partition])
    others = await names(store, key_prefix)
    ids = [partition, partition._replace(index=1)]
    await make_queue(store, keys, ids)
    mine = await names(store, key_prefix) - others

    assert await erase_queue(store, keys) == len(mine) > 0
    assert await names(store, key_prefix) == others
    assert await erase_queue(store, keys) == 0


async def test_a_group_goes_without_its_neighbours(store, keys, partition):
    await make_queue(store, keys, [partition])
    configs, members = Configs(store, keys), Members(store, keys)
    await configs.write_group("workers-2", {}, resource_generation=1)

    await configs.erase_group("workers", born=(await configs.read_group("workers")).born)
    assert await configs.read_group("workers") is None
    assert (await members.read("workers")).members == {}
    assert await configs.read_group("workers-2") is not None


async def test_a_late_erasure_takes_nothing_of_a_group_that_was_made_again(store, keys, partition):
    """Nor does a repeat of one that has erased."""
    await make_queue(store, keys, [partition])
    configs, members = Configs(store, keys), Members(store, keys)
    before = (await configs.read_group("workers")).born
    for _ in range(2):
        await configs.erase_group("workers", born=before)
    await configs.write_group("workers", {}, resource_generation=1)
    await members.list_member("workers", MemberId("m"), "10.0.0.1")
    for born in (before, 0):
        with pytest.raises(ConflictError, match="group workers of queue ns/orders: not erased"):
            await configs.erase_group("workers", born=born)
    assert (await configs.read_group("workers")).born > before
    assert list((await members.read("workers")).members) == ["m"]


async def test_a_group_that_an_earlier_version_made_is_erased(store, keys):
    """Its spec does not say when it was made: that counts as 0, until it is written again."""
    configs, key = Configs(store, keys), keys.group_config("workers")
    await store.run("write_fields", [key], [2, "resource_generation", "1", "json", "{}"])
    assert (await configs.read_group("workers")).born == 0
    await configs.erase_group("workers", born=0)
    assert await configs.read_group("workers") is None
    await store.run("write_fields", [key], [2, "resource_generation", "1", "json", "{}"])
    assert await configs.write_group("workers", {"a": 1}, resource_generation=2, born=0)
    with pytest.raises(ConflictError):
        await configs.erase_group("workers", born=0)
