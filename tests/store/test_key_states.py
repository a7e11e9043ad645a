"""States of keys as they are stored: with the acks, and only with them."""

import pytest

from partq.errors import FencedError, KeptStatesError, SupersededError
from partq.store.key_states import FIRST_PAGE, SCAN_COUNT, KeyStates
from partq.store.records.layout.seals import Seals
from tests.store.record import GROUP, NOTHING, write


@pytest.fixture
def key_states(store, keys):
    return KeyStates(store, keys)


@pytest.fixture
def flush(partitions, partition, broker_epoch):
    """Write the group's book with states; return how many there are."""

    async def flush(states, **changes):
        call = {**write(), **NOTHING, "broker_epoch": broker_epoch, **changes}
        return await partitions.flush(partition, GROUP, states=states, **call)

    return flush


async def stored(key_states, partition):
    return {k: s async for part in key_states.scan(partition, GROUP) for k, s in part.items()}


async def size(partitions, partition):
    cursor = await partitions.read_cursor(partition, GROUP)
    return cursor.state_count, (await partitions.read(partition)).state_bytes


async def test_states_are_counted_with_their_bytes(flush, key_states, partitions, partition):
    assert await flush({"a": b"12345", "b": b""}) == 2
    assert await size(partitions, partition) == (2, 7)
    assert await flush({"a": b"1", "b": None, "c": b"\x00="}) == 2
    assert await stored(key_states, partition) == {"a": b"1", "c": b"\x00="}
    assert await size(partitions, partition) == (2, 5)
    assert await key_states.read(partition, GROUP, "b") is None
    assert [await key_states.count_without(partition, GROUP, key) for key in "ab"] == [1, 2]
    assert await flush({"a": None, "c": None}) == 0
    assert await size(partitions, partition) == (0, 0)
    assert await flush({}) is None


async def test_what_is_refused_or_comes_late_writes_no_state(flush, key_states, partition):
    late = write()
    await flush({"a": b"new"})
    with pytest.raises(SupersededError):
        await flush({"a": b"old"}, **late)
    with pytest.raises(FencedError):
        await flush({"a": b"old"}, broker_epoch=1)
    assert await stored(key_states, partition) == {"a": b"new"}


async def test_a_repeat_of_a_write_has_no_news(flush, key_states, partition):
    numbered = write()
    assert await flush({"a": b"1"}, **numbered) == 1
    assert await flush({"a": b"1"}, **numbered) is None


async def test_many_states_come_in_pages(flush, key_states, partition):
    wanted = {f"key-{number}": b"s" * 100 for number in range(3 * SCAN_COUNT)}
    await flush(wanted)
    page = await key_states.read_page(partition, GROUP, FIRST_PAGE)
    assert page.next
    assert len(page.states) < len(wanted)
    assert await stored(key_states, partition) == wanted


@pytest.mark.parametrize(
    ("states", "left"), [("keep", {"a": b"1"}), ("clear", {}), ("none", KeptStatesError)]
)
async def test_a_reset_keeps_or_clears_states_or_is_refused(
    flush, key_states, partitions, partition, broker_epoch, states, left
):
    await flush({"a": b"1"})
    before = await partitions.read_cursor(partition, GROUP)
    call = {**write(), "broker_epoch": broker_epoch, "epoch": before.epoch, "offset": 0}
    if left is KeptStatesError:
        with pytest.raises(KeptStatesError, match="nothing was moved"):
            await partitions.reset(partition, GROUP, states=states, **call)
        left = {"a": b"1"}
        assert (await partitions.read_cursor(partition, GROUP)).epoch == before.epoch
    else:
        await partitions.reset(partition, GROUP, states=states, **call)
    assert await stored(key_states, partition) == left
    assert (await size(partitions, partition))[0] == len(left)


async def test_states_go_with_their_group_and_their_partition(
    flush, key_states, partitions, partition, store, keys
):
    await flush({"a": b"1"})
    born = (await partitions.read_cursor(partition, GROUP)).born
    await partitions.remove_group(partition, GROUP, born=born)
    assert await stored(key_states, partition) == {}
    assert (await partitions.read(partition)).state_bytes == 0
    await partitions.add_group(partition, GROUP, start="Earliest")
    born = (await partitions.read_cursor(partition, GROUP)).born
    await flush({"a": b"2"}, born=born)
    await Seals(store, keys).erase(partition)
    assert await stored(key_states, partition) == {}
