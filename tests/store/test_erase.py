"""What is left of a queue when it is deleted: nothing of its life, everything of the others."""

from dataclasses import replace

import pytest

from partq.core.model import MemberId
from partq.errors import ConflictError
from partq.store.erase import erase_queue
from partq.store.records.layouts import ENDED_KEEP_MS, Layouts
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions


async def make_queue(store, keys, partitions):
    await Layouts(store, keys).create_queue({1: 4})
    await Layouts(store, keys).write_group_config("workers", {}, resource_generation=1)
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
    layouts, members = Layouts(store, keys), Members(store, keys)
    await layouts.write_group_config("workers-2", {}, resource_generation=1)

    await layouts.erase_group("workers", born=(await layouts.read_group_config("workers")).born)
    assert await layouts.read_group_config("workers") is None
    assert (await members.read("workers")).members == {}
    assert await layouts.read_group_config("workers-2") is not None


async def test_a_late_erasure_takes_nothing_of_a_group_that_was_made_again(store, keys, partition):
    """Nor does a repeat of one that has erased."""
    await make_queue(store, keys, [partition])
    layouts, members = Layouts(store, keys), Members(store, keys)
    before = (await layouts.read_group_config("workers")).born
    for _ in range(2):
        await layouts.erase_group("workers", born=before)
    await layouts.write_group_config("workers", {}, resource_generation=1)
    await members.list_member("workers", MemberId("m"), "10.0.0.1")
    for born in (before, 0):
        with pytest.raises(ConflictError, match="group workers of queue ns/orders: not erased"):
            await layouts.erase_group("workers", born=born)
    assert (await layouts.read_group_config("workers")).born > before
    assert list((await members.read("workers")).members) == ["m"]


async def test_a_group_that_an_earlier_version_made_is_erased(store, keys):
    """Its spec does not say when it was made: that counts as 0, until it is written again."""
    layouts, key = Layouts(store, keys), keys.group_config("workers")
    await store.run("write_fields", [key], [2, "resource_generation", "1", "json", "{}"])
    assert (await layouts.read_group_config("workers")).born == 0
    await layouts.erase_group("workers", born=0)
    assert await layouts.read_group_config("workers") is None
    await store.run("write_fields", [key], [2, "resource_generation", "1", "json", "{}"])
    assert await layouts.write_group_config("workers", {"a": 1}, resource_generation=2, born=0)
    with pytest.raises(ConflictError):
        await layouts.erase_group("workers", born=0)


async def test_a_life_that_is_given_up_makes_room_for_the_next(store, keys):
    layouts = Layouts(store, keys)
    await layouts.register("aaaa")
    await layouts.release("cccc", keeps_data=False)
    assert (await layouts.register("bbbb")).current == "aaaa"

    await layouts.release("aaaa", keeps_data=True)
    assert (await layouts.register("bbbb")).current == "bbbb"
    lives = await store.read("HKEYS", keys.lives())
    assert set(lives) == {b"uid:aaaa", b"uid:bbbb", b"current"}

    await layouts.release("bbbb", keeps_data=False)
    assert await store.read("HKEYS", keys.lives()) == [b"uid:aaaa"]


@pytest.mark.parametrize("keeps_data", [False, True])
async def test_a_life_that_was_given_up_does_not_take_its_name_again(store, keys, keeps_data):
    """A process that stood still since before the deletion registers it late."""
    layouts = Layouts(store, keys)
    await layouts.register("aaaa")
    await layouts.release("aaaa", keeps_data=keeps_data)
    before = await store.read("HGETALL", keys.lives())
    assert (await layouts.register("aaaa")).current is None
    assert await store.read("HGETALL", keys.lives()) == before
    assert (await layouts.register("bbbb")).current == "bbbb"
    left_ms = await store.read("PTTL", keys.ended_life("aaaa"))
    assert ENDED_KEEP_MS - 60_000 < left_ms <= ENDED_KEEP_MS, "nothing stays for ever"
    await layouts.release("bbbb", keeps_data=False)
    await store.read("DEL", keys.ended_life("aaaa"))
    assert (await layouts.register("aaaa")).current == "aaaa", "as a restored backup wants it"
