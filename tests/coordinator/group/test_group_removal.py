"""One group is removed where no operator does it: through crashes, repeats and late writes."""

import asyncio

import pytest

from partq.coordinator.provision import provision, remove_group
from partq.coordinator.record_sync import RecordSync
from partq.errors import ConflictError, UnknownQueueError
from tests.coordinator.provisioned import PARTITIONS, CutShortError, births_of
from tests.coordinator.test_provision import DiesAt, LateAt


async def remove(layouts, group="second", *, is_dry_run=False):
    await remove_group(layouts, group, is_dry_run=is_dry_run)


async def sync(layouts, partitions):
    """Look after the cursors, as a coordinator does that begins."""
    config = await layouts.read_config()
    specs = [await layouts.read_group_config(group) for group in config.groups]
    assert None not in specs, "of a group without a spec no coordinator removes a cursor"
    starts = dict.fromkeys(config.groups, "Earliest")
    await RecordSync(partitions, layouts).sync(PARTITIONS, starts, config.resource_generation)


async def test_its_place_goes_everywhere_and_the_others_stay(layouts, partitions, make):
    await make("first", "second")
    before = await births_of(partitions, "first")
    await remove(layouts)
    await sync(layouts, partitions)
    assert await births_of(partitions, "second") == {}
    assert (await layouts.read_config()).groups == ("first",)
    assert await layouts.read_group_config("second") is None
    assert await births_of(partitions, "first") == before
    await remove(layouts)  # a repeat that comes late finds nothing
    assert (await layouts.read_config()).groups == ("first",)


async def test_a_dry_run_writes_nothing(layouts, make):
    await make("first", "second")
    before = await layouts.read_config()
    await remove(layouts, is_dry_run=True)
    assert await layouts.read_config() == before
    assert await layouts.read_group_config("second") is not None


@pytest.mark.parametrize("is_dry_run", [False, True])
async def test_the_group_of_a_resource_on_kubernetes_is_left_to_it(layouts, make, is_dry_run):
    await make("first", "second", second="u1")
    with pytest.raises(ConflictError, match="kubectl delete consumergroup second"):
        await remove(layouts, is_dry_run=is_dry_run)
    assert (await layouts.read_config()).groups == ("first", "second")
    assert await layouts.read_group_config("second") is not None


async def test_a_queue_that_nobody_has_created(layouts):
    with pytest.raises(UnknownQueueError, match="create it"):
        await remove(layouts)


@pytest.mark.parametrize("way", ["repeat", "file without it", "file with it"])
async def test_a_removal_that_is_cut_short_anywhere_is_carried_out(layouts, partitions, make, way):
    """By a repeat, or by the next start of `partq dev up`, whose file may still have the group."""

    async def start(*groups):
        return await provision(
            layouts,
            partitions,
            name="ns/orders",
            uid="0f3a9c1e",
            partition_count=4,
            spec={},
            groups={group: {"start": "Earliest"} for group in groups},
            keeps_others=True,
            repairs=False,
        )

    for number in range(100):
        await make("first", "second")
        before = await births_of(partitions, "second")
        steps = iter([*range(number), None])
        try:
            await remove(DiesAt(layouts, steps))
        except (CutShortError, RuntimeError):
            pass
        else:
            break
        if way == "repeat":
            await remove(layouts)
        elif way == "file without it":
            kept = await start("first")
            if await layouts.read_group_config("second") is not None:
                assert (number, kept) == (0, ("second",)), "before its first write nothing is done"
                continue
            assert kept == ()
        else:
            await start("first", "second")
        await sync(layouts, partitions)
        after = await births_of(partitions, "second")
        if way == "file with it":
            is_another = all(after[each] > before[each] for each in before)
            assert is_another == (number > 0), f"died at write {number}"
            assert len(after) == len(PARTITIONS)
        else:
            assert after == {}, f"died at write {number}"
            assert (await layouts.read_config()).groups == ("first",)
    assert number > 1


@pytest.mark.parametrize("write", ["erase_group", "write_config"])
async def test_a_late_write_takes_nothing_of_a_group_that_was_made_again(
    layouts, partitions, make, write
):
    """The broker stands still in the middle; somebody else removes the group and makes it again."""
    await make("first", "second")
    late = LateAt(layouts, write)
    removal = asyncio.create_task(remove(late))
    await late.reached.wait()
    await remove(layouts)
    await make("first", "second")
    config, births = await layouts.read_config(), await births_of(partitions, "second")
    spec = await layouts.read_group_config("second")
    late.go_on.set()
    with pytest.raises(ConflictError, match=r"changed meanwhile|not erased"):
        await removal
    assert await layouts.read_group_config("second") == spec is not None
    assert await layouts.read_config() == config
    assert await births_of(partitions, "second") == births


async def test_two_at_once_do_what_one_does(layouts, partitions, make):
    await make("first", "second")
    await asyncio.gather(remove(layouts), remove(layouts))
    await sync(layouts, partitions)
    assert await births_of(partitions, "second") == {}
    assert (await layouts.read_config()).groups == ("first",)


async def test_what_a_cut_off_start_has_begun_is_removed(layouts, partitions, make):
    """The queue has never named the group, and its cursors hold the log."""
    await make("first")

    class Dies:
        def __getattr__(self, name):
            return getattr(partitions, name)

        async def add_group(self, partition, group, **call):
            await partitions.add_group(partition, group, **call)
            raise CutShortError

    with pytest.raises(CutShortError):
        await make("first", "second", cursors=Dies())
    assert await births_of(partitions, "second") != {}
    await remove(layouts)
    await sync(layouts, partitions)
    assert await births_of(partitions, "second") == {}
