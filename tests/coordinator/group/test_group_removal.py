"""One group is removed where no operator does it: through crashes, repeats and late writes."""

import asyncio

import pytest

from partq.coordinator.provision import provision, remove_group
from partq.coordinator.record_sync import RecordSync
from partq.errors import ConflictError, UnknownGroupError, UnknownQueueError
from tests.coordinator.provisioned import LAYOUT, PARTITIONS, CutShortError, births_of
from tests.coordinator.test_provision import DiesAt, LateAt


async def remove(configs, group="second", *, is_dry_run=False):
    await remove_group(configs, group, is_dry_run=is_dry_run)


async def sync(configs, partitions):
    """Look after the cursors, as a coordinator does that begins."""
    config = await configs.read_queue()
    specs = [await configs.read_group(group) for group in config.groups]
    assert None not in specs, "of a group without a spec no coordinator removes a cursor"
    starts = dict.fromkeys(config.groups, "Earliest")
    await RecordSync(partitions, None, configs).sync(LAYOUT, starts, config.resource_generation)


async def test_its_place_goes_everywhere_and_the_others_stay(configs, partitions, make):
    await make("first", "second")
    before = await births_of(partitions, "first")
    await remove(configs)
    await sync(configs, partitions)
    assert await births_of(partitions, "second") == {}
    assert (await configs.read_queue()).groups == ("first",)
    assert await configs.read_group("second") is None
    assert await births_of(partitions, "first") == before
    await remove(configs)  # a repeat that comes late finds nothing
    assert (await configs.read_queue()).groups == ("first",)


async def test_a_dry_run_writes_nothing(configs, make):
    await make("first", "second")
    before = await configs.read_queue()
    await remove(configs, is_dry_run=True)
    assert await configs.read_queue() == before
    assert await configs.read_group("second") is not None


@pytest.mark.parametrize("is_dry_run", [False, True])
async def test_the_group_of_a_resource_on_kubernetes_is_left_to_it(configs, make, is_dry_run):
    await make("first", "second", second="u1")
    with pytest.raises(ConflictError, match="kubectl delete consumergroup second"):
        await remove(configs, is_dry_run=is_dry_run)
    assert (await configs.read_queue()).groups == ("first", "second")
    assert await configs.read_group("second") is not None


async def test_a_queue_that_nobody_has_created(configs):
    with pytest.raises(UnknownQueueError, match="create it"):
        await remove(configs)


@pytest.mark.parametrize("way", ["repeat", "file without it", "file with it"])
async def test_a_removal_that_is_cut_short_anywhere_is_carried_out(
    records, configs, partitions, make, way
):
    """By a repeat, or by the next start of `partq dev up`, whose file may still have the group."""

    async def start(*groups):
        return await provision(
            records,
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
            await remove(DiesAt(configs, steps))
        except (CutShortError, RuntimeError):
            pass
        else:
            break
        if way == "repeat":
            await remove(configs)
        elif way == "file without it":
            kept = await start("first")
            if await configs.read_group("second") is not None:
                assert (number, kept) == (0, ("second",)), "before its first write nothing is done"
                continue
            assert kept == ()
        else:
            await start("first", "second")
        await sync(configs, partitions)
        after = await births_of(partitions, "second")
        if way == "file with it":
            is_another = all(after[each] > before[each] for each in before)
            assert is_another == (number > 0), f"died at write {number}"
            assert len(after) == len(PARTITIONS)
        else:
            assert after == {}, f"died at write {number}"
            assert (await configs.read_queue()).groups == ("first",)
    assert number > 1


@pytest.mark.parametrize("write", ["erase_group", "write_queue"])
async def test_a_late_write_takes_nothing_of_a_group_that_was_made_again(
    configs, partitions, make, write
):
    """The broker stands still in the middle; somebody else removes the group and makes it again."""
    await make("first", "second")
    late = LateAt(configs, write)
    removal = asyncio.create_task(remove(late))
    await late.reached.wait()
    await remove(configs)
    await make("first", "second")
    config, births = await configs.read_queue(), await births_of(partitions, "second")
    spec = await configs.read_group("second")
    late.go_on.set()
    with pytest.raises(ConflictError, match=r"changed meanwhile|not erased"):
        await removal
    assert await configs.read_group("second") == spec is not None
    assert await configs.read_queue() == config
    assert await births_of(partitions, "second") == births


async def test_a_late_repeat_spares_the_group_that_was_made_again_under_the_name(
    configs, partitions, make
):
    """It names the group that it means; who names none means whichever has the name."""
    await make("first", "second")
    born = (await configs.read_group("second")).born
    for _ in range(2):  # and a repeat that is not late
        await remove_group(configs, "second", is_dry_run=False, born=born)
    await make("first", "second")
    config, births = await configs.read_queue(), await births_of(partitions, "second")
    spec = await configs.read_group("second")
    for is_dry_run in (True, False):
        with pytest.raises(UnknownGroupError, match="nothing was removed: to remove it, ask again"):
            await remove_group(configs, "second", is_dry_run=is_dry_run, born=born)
    assert await configs.read_group("second") == spec is not None
    assert await configs.read_queue() == config
    assert await births_of(partitions, "second") == births
    await remove(configs)
    assert (await configs.read_queue()).groups == ("first",)


async def test_two_at_once_do_what_one_does(configs, partitions, make):
    await make("first", "second")
    await asyncio.gather(remove(configs), remove(configs))
    await sync(configs, partitions)
    assert await births_of(partitions, "second") == {}
    assert (await configs.read_queue()).groups == ("first",)


async def test_what_a_cut_off_start_has_begun_is_removed(configs, partitions, make):
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
    await remove(configs)
    await sync(configs, partitions)
    assert await births_of(partitions, "second") == {}
