"""Looks at partitions that lie on several servers, of which one may be silent."""

import asyncio
from types import SimpleNamespace

import pytest

from partq.broker.ownership.server_looks import ServerLooks
from partq.errors import StoreUnavailableError


@pytest.fixture
async def scene():
    """Two servers with a partition each; a look at `b` lasts until it is told."""
    owned = {name: SimpleNamespace(id=name) for name in ("a", "b")}
    scene = SimpleNamespace(seen=[], go_on=asyncio.Event(), error=None)
    async with asyncio.TaskGroup() as tasks:
        looks = ServerLooks(
            "looking",
            owned,
            SimpleNamespace(server_of=lambda partition: partition),
            lambda work, name: tasks.create_task(work, name=name),
        )

        async def look(number):
            async def work(partitions):
                (each,) = partitions
                if each.id == "b":
                    await scene.go_on.wait()
                if scene.error is not None:
                    raise scene.error
                scene.seen.append((each.id, number))

            await looks.look(work)

        scene.look = look
        yield scene
        scene.go_on.set()


async def test_a_silent_server_holds_up_its_own_partitions_alone(scene):
    for number in range(3):
        with pytest.raises(StoreUnavailableError, match="Redis at b is silent"):
            await scene.look(number)
    assert scene.seen == [("a", 0), ("a", 1), ("a", 2)]


async def test_a_look_that_waits_for_its_turn_is_the_newest(scene):
    """It goes by what is known last, and however many are asked for, one waits."""
    looks = [asyncio.create_task(scene.look(number)) for number in range(3)]
    await asyncio.gather(*looks, return_exceptions=True)
    scene.go_on.set()
    await scene.look(3)
    assert [number for name, number in scene.seen if name == "b"] == [0, 3]


async def test_what_a_look_has_met_is_told_and_the_next_one_is_free_of_it(scene):
    scene.go_on.set()
    scene.error = StoreUnavailableError("no answer")
    with pytest.raises(StoreUnavailableError, match="no answer"):
        await scene.look(0)
    scene.error = None
    await scene.look(1)
    assert sorted(scene.seen) == [("a", 1), ("b", 1)]
