"""A group that is removed and created again is another one: nothing of the first counts for it."""

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.errors import ConflictError, UnknownGroupError
from partq.store.records.dead_letters import Outboxes
from tests.store.record import GROUP, NOTHING, born, commit, write

LETTERS = [(4, DeadLetterReason.EXPIRED, 0)]


async def make_again(partitions, partition):
    """Remove the group and make it again; return when the first one began, and the second."""
    before = await born(partitions, partition, GROUP)
    await partitions.remove_group(partition, GROUP, born=before)
    await partitions.add_group(partition, GROUP, start="Earliest")
    return before, await born(partitions, partition, GROUP)


async def test_each_begins_later_than_those_before_it(
    partitions, partition, broker_epoch, store, keys
):
    births = [await born(partitions, partition, GROUP)]
    for _ in range(3):
        births.append((await make_again(partitions, partition))[1])
    ahead = 2**53 - 10  # above every clock, as after it was set back
    await store.run("write_fields", [keys.meta(partition)], [1, "born", ahead])
    births.append((await make_again(partitions, partition))[1])
    assert births == sorted(set(births))
    assert births[-1] == ahead + 1


async def test_its_numbers_are_above_those_before_it(
    partitions, partition, broker_epoch, ten_messages, store, keys
):
    """The clock of Redis may have been set back since, as the first one's numbers say here."""
    ahead = 2**53 - 100
    numbers = ["epoch", ahead, "outbox_number", ahead + 1]
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [2, *numbers])
    _, began = await make_again(partitions, partition)
    record = await partitions.read_cursor(partition, GROUP)
    assert record.epoch > ahead, "who knows the earlier epoch takes it for the newer one"
    place = {"broker_epoch": broker_epoch, "born": began}
    epoch = await commit(partitions, partition, **place, epoch=record.epoch, target="m-0")
    assert epoch > record.epoch
    outbox = await Outboxes(store, keys).add(
        partition, GROUP, **write(began), broker_epoch=broker_epoch, letters=LETTERS
    )
    assert outbox[0].number > ahead + 1, "its target takes a lower one for a repeat"


@pytest.mark.parametrize("name", ["epoch", "outbox_number"])
async def test_it_begins_above_each_number_that_one_before_it_has_drawn(
    partitions, partition, broker_epoch, store, keys, name
):
    """Either may be the highest, and above Redis's clock, if that was set back."""
    ahead = 2**53 - 10
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [1, name, ahead])
    _, began = await make_again(partitions, partition)
    assert began == ahead + 1


async def test_a_removal_takes_nothing_from_what_others_have_drawn(
    partitions, partition, broker_epoch, store, keys
):
    """The floor is one for all groups of the partition."""
    ahead = 2**53 - 10
    await store.run("write_fields", [keys.meta(partition)], [1, "born", ahead])
    await partitions.remove_group(partition, GROUP, born=await born(partitions, partition, GROUP))
    await partitions.add_group(partition, "late", start="Earliest")
    assert await born(partitions, partition, "late") == ahead + 1


async def test_it_begins_above_one_whose_cursor_is_lost(
    partitions, partition, broker_epoch, store, keys
):
    """Deleted by hand, say: what that one has drawn can be read nowhere else."""
    ahead = 2**53 - 10
    await store.run("write_fields", [keys.meta(partition)], [1, "born", ahead])
    before = (await make_again(partitions, partition))[1]
    await store.read("DEL", keys.cursor(partition, GROUP))
    await partitions.remove_group(partition, GROUP, born=0)
    await partitions.add_group(partition, GROUP, start="Earliest")
    assert await born(partitions, partition, GROUP) == before + 1


async def test_each_fence_is_above_those_before_it(partitions, partition, store, keys):
    """Also if Redis's clock was set back: else an addition from before would count again."""
    await partitions.create(partition)
    ahead = 2**53 - 10
    await store.run("write_fields", [keys.meta(partition)], [1, "groups_fence", ahead])
    await partitions.fence_groups(partition)
    assert (await partitions.read(partition)).groups_fence == ahead + 1


async def test_a_fence_voids_what_was_decided_before(partitions, partition, broker_epoch):
    seen = (await partitions.read(partition)).groups_fence
    await partitions.fence_groups(partition)
    with pytest.raises(ConflictError, match="check whether group late is still wanted"):
        await partitions.add_group(partition, "late", start="Earliest", fence=seen)
    record = await partitions.read(partition)
    assert record.groups_fence > seen
    assert record.groups == {GROUP}
    await partitions.add_group(partition, "late", start="Earliest", fence=record.groups_fence)
    assert "late" in (await partitions.read(partition)).groups


CALLS = {
    "bind": {"member": "m-0", "incarnation": "x"},
    "flush": {**NOTHING, "cursor": 7},
    "reset": {"epoch": 0, "offset": 7},
    "commit": {
        "source": None, "epoch": 0, "attempt": 1, "target": "m-0", "cause": 0,
        **NOTHING, "cursor": 7,
    },
    "add": {"letters": LETTERS},
    "remove": {"letter": 5},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("is_born", [True, False])
async def test_what_speaks_of_the_one_before_it_writes_nothing(
    partitions, partition, broker_epoch, ten_messages, store, keys, name, is_born
):
    """Also where an earlier version has made it, which does not say when it began."""
    before, _ = await make_again(partitions, partition)
    if not is_born:
        await store.run("write_fields", [keys.cursor(partition, GROUP)], [0, "born"])
    record = await store.read("HGETALL", keys.cursor(partition, GROUP))
    meta = await store.read("HGETALL", keys.meta(partition))
    call = getattr(Outboxes(store, keys) if name in ("add", "remove") else partitions, name)
    with pytest.raises(UnknownGroupError):
        await call(partition, GROUP, **write(before), broker_epoch=broker_epoch, **CALLS[name])
    assert await store.read("HGETALL", keys.cursor(partition, GROUP)) == record
    assert await store.read("HGETALL", keys.meta(partition)) == meta


async def test_a_late_removal_takes_nothing_of_it(partitions, partition, broker_epoch):
    before, began = await make_again(partitions, partition)
    await partitions.remove_group(partition, GROUP, born=before)
    assert await born(partitions, partition, GROUP) == began
    assert GROUP in (await partitions.read(partition)).groups


async def test_a_group_that_an_earlier_version_made_goes_on(
    partitions, partition, broker_epoch, ten_messages, store, keys
):
    """Its cursor does not say when it began: that counts as 0."""
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [0, "born", "flushed"])
    await store.run("write_fields", [keys.meta(partition)], [0, "born"])
    place = {"broker_epoch": broker_epoch}
    assert await partitions.births([(partition, GROUP)]) == {(partition, GROUP): 0}
    await commit(partitions, partition, broker_epoch, target="m-0", born=0)
    await partitions.bind(partition, GROUP, **write(0), member="m-0", incarnation="x", **place)
    await partitions.flush(partition, GROUP, **write(0), **place, **{**NOTHING, "cursor": 3})
    assert (await partitions.read_cursor(partition, GROUP)).cursor == 3
    outboxes = Outboxes(store, keys)
    (letter,) = await outboxes.add(partition, GROUP, **write(0), letters=LETTERS, **place)
    await outboxes.remove(partition, GROUP, **write(0), letter=letter.number, **place)
    before, began = await make_again(partitions, partition)
    assert (before, began > 0) == (0, True)


async def test_a_group_without_a_cursor_has_no_birth(partitions, partition, broker_epoch):
    assert await partitions.births([(partition, "strangers")]) == {}
