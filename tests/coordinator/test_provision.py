"""Operators that die or stand still while they make a queue, and those that follow them."""

import asyncio

import pytest

from partq.errors import ConflictError
from tests.coordinator.provisioned import PARTITIONS, CutShortError, births_of

WRITES = ("write_queue", "write_group", "erase_group", "remove_group", "add_group")


class DiesAt:
    """A store's part whose process dies at one of its writes, before it or after it."""

    def __init__(self, target, steps):
        self._target, self._steps = target, steps

    def __getattr__(self, name):
        call = getattr(self._target, name)
        if name not in WRITES:
            return call

        async def step(*args, **kwargs):
            if next(self._steps) is None:
                raise CutShortError
            return await call(*args, **kwargs)

        return step


async def test_a_replacement_that_is_cut_short_anywhere_is_carried_out(configs, partitions, make):
    """Whichever write is the last one of the process, nothing of the older group is left."""
    for number in range(100):
        old, new = f"old{number}", f"new{number}"
        await make("first", "second", second=old)
        before = await births_of(partitions, "second")
        steps = iter([*range(number), None])
        try:
            await make(
                "first",
                "second",
                second=new,
                configs=DiesAt(configs, steps),
                cursors=DiesAt(partitions, steps),
            )
        except (CutShortError, RuntimeError):
            await make("first", "second", second=new)
        else:
            break
        after = await births_of(partitions, "second")
        assert len(after) == len(PARTITIONS)
        assert all(after[each] > before[each] for each in before), f"died at write {number}"
        assert (await configs.read_group("second")).spec["uid"] == new
        assert set((await configs.read_queue()).groups) == {"first", "second"}
    assert number > 10


async def test_a_group_whose_removal_is_cut_short_anywhere_leaves_nothing_to_the_next(
    configs, partitions, make
):
    """Whichever write is the last one of the process, another resource has another group."""
    for number in range(100):
        await make("first", "second", second=f"old{number}")
        before = await births_of(partitions, "second")
        steps = iter([*range(number), None])
        try:
            await make("first", configs=DiesAt(configs, steps), cursors=DiesAt(partitions, steps))
        except (CutShortError, RuntimeError):
            await make("first", "second", second=f"new{number}")
        else:
            break
        after = await births_of(partitions, "second")
        assert len(after) == len(PARTITIONS)
        assert all(after[each] > before[each] for each in before), f"died at write {number}"
        assert (await configs.read_group("second")).spec["uid"] == f"new{number}"
        assert set((await configs.read_queue()).groups) == {"first", "second"}
    assert number > 1


class LateAt:
    """Configs of a process that stands still before one of its writes."""

    def __init__(self, configs, name):
        self._configs, self._name = configs, name
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name):
        call = getattr(self._configs, name)
        if name != self._name:
            return call

        async def late(*args, **kwargs):
            self.reached.set()
            await self.go_on.wait()
            return await call(*args, **kwargs)

        return late


@pytest.mark.parametrize("write", ["erase_group", "write_queue"])
@pytest.mark.parametrize("again", [{}, {"second": "u3"}])
async def test_a_late_write_takes_nothing_of_a_group_that_was_made_again(
    configs, partitions, make, write, again
):
    """Of an operator that has lost the lead while it removed the group, with or without uids."""
    await make("first", "second", **(again and {"second": "u2"}))
    late = LateAt(configs, write)
    removal = asyncio.create_task(make("first", configs=late))
    await late.reached.wait()
    await make("first")
    await make("first", "second", **again)
    config, births = await configs.read_queue(), await births_of(partitions, "second")
    spec = await configs.read_group("second")
    late.go_on.set()
    with pytest.raises(ConflictError, match=r"changed meanwhile|not erased"):
        await removal
    assert await configs.read_group("second") == spec is not None
    assert await configs.read_queue() == config
    assert await births_of(partitions, "second") == births


async def test_a_late_spec_does_not_replace_that_of_another_resource(configs, partitions, make):
    """The late one is of a change of the group that had the name."""
    await make("first", second="u1")
    await make("first", "second", second="u1")
    late = LateAt(configs, "write_group")
    change = asyncio.create_task(make("first", "second", first="f1", second="u1", configs=late))
    await late.reached.wait()
    await make("second", second="u1")
    await make("first", "second", first="f2", second="u1")
    late.go_on.set()
    with pytest.raises(ConflictError):
        await change
    assert (await configs.read_group("first")).spec["uid"] == "f2"


async def overtaken(configs, make, write):
    """Have a group made and removed while somebody else, at one of the writes, is making it."""
    await make("first")
    late = LateAt(configs, write)
    creation = asyncio.create_task(make("first", "second", configs=late))
    await late.reached.wait()
    await make("first", "second")
    await make("first")
    late.go_on.set()
    with pytest.raises(ConflictError):
        await creation
    assert await configs.read_group("second") is None


async def test_a_late_first_spec_of_a_group_that_was_removed_is_not_written(configs, make):
    """A coordinator would take it for a group that is being made, and drop none of its cursors."""
    await overtaken(configs, make, "write_group")
    await make("first", "second")
    assert await configs.read_group("second") is not None


async def test_a_group_that_came_and_went_before_it_is_begun_is_not_written(configs, make):
    await overtaken(configs, make, "begin_group")


async def test_a_late_config_does_not_replace_that_of_the_next_leader(configs, make):
    await make("first")
    late = LateAt(configs, "write_queue")
    change = asyncio.create_task(make("first", configs=late, spec={"messageTTLSeconds": 60}))
    await late.reached.wait()
    await make("first", "second", spec={"messageTTLSeconds": 600})
    config = await configs.read_queue()
    late.go_on.set()
    with pytest.raises(ConflictError):
        await change
    assert await configs.read_queue() == config
    assert config.spec["messageTTLSeconds"] == 600
