"""The lives of a queue's name: one is current, and one that was given up stays so."""

import pytest

from partq.store.records.lives import ENDED_KEEP_MS, Lives


async def test_the_first_life_is_the_current_one(store, keys):
    lives = Lives(store, keys)
    assert await lives.current_uid() is None
    assert (await lives.register("aaaa")).current == "aaaa"
    assert (await lives.register("bbbb")).current == "aaaa"
    assert await lives.current_uid() == "aaaa"


async def test_a_life_that_is_given_up_makes_room_for_the_next(store, keys):
    lives = Lives(store, keys)
    await lives.register("aaaa")
    await lives.release("cccc", keeps_data=False)
    assert (await lives.register("bbbb")).current == "aaaa"

    await lives.release("aaaa", keeps_data=True)
    assert (await lives.register("bbbb")).current == "bbbb"
    stored = await store.read("HKEYS", keys.lives())
    assert set(stored) == {b"uid:aaaa", b"uid:bbbb", b"current"}

    await lives.release("bbbb", keeps_data=False)
    assert await store.read("HKEYS", keys.lives()) == [b"uid:aaaa"]


@pytest.mark.parametrize("keeps_data", [False, True])
async def test_a_life_that_was_given_up_does_not_take_its_name_again(store, keys, keeps_data):
    """A process that stood still since before the deletion registers it late."""
    lives = Lives(store, keys)
    await lives.register("aaaa")
    await lives.release("aaaa", keeps_data=keeps_data)
    before = await store.read("HGETALL", keys.lives())
    assert (await lives.register("aaaa")).current is None
    assert await store.read("HGETALL", keys.lives()) == before
    assert (await lives.register("bbbb")).current == "bbbb"
    left_ms = await store.read("PTTL", keys.ended_life("aaaa"))
    assert 0 < left_ms <= ENDED_KEEP_MS, "nothing stays for ever"
    await lives.release("bbbb", keeps_data=False)
    await store.read("DEL", keys.ended_life("aaaa"))
    assert (await lives.register("aaaa")).current == "aaaa", "as a restored backup wants it"
