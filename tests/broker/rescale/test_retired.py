"""Partitions that lost all slots: read to their end, while their successors wait."""

from dataclasses import replace

import pytest

from partq.core.model import PartitionId
from partq.testing import eventually
from tests.broker.conftest import open_flow, open_producer
from tests.broker.moved_clocks import AheadWatch, put_watch
from tests.broker.queue_ttl import set_ttl
from tests.broker.rescale.change import ChangeByHand, keys_of, outcome

__all__ = ["set_ttl"]

RETIRED = PartitionId(1, 0)
QUEUE = "/v1/queues/orders"


def group_of(running, partition):
    """Return what the broker knows of the group in a partition."""
    return running.broker.owned[partition].groups["workers"]


def successors(layout):
    """Return the partitions that wait for 1.0."""
    return [each for each, givers in layout.lineage.items() if RETIRED in givers]


@pytest.fixture
async def layout(running, scene):
    """Three partitions take the place of four. Three messages of 1.0 are in flight."""
    layout = await ChangeByHand(running).change(3)
    assert sorted(layout.retired) == [PartitionId(1, index) for index in range(4)]
    return layout


async def test_it_is_delivered_again_and_acknowledged(running, scene, layout):
    """A member that is lost: the next one gets the same messages, still before the successors."""
    waiting = [group_of(running, each) for each in successors(layout)]
    await scene.source.close()
    flow = await open_flow(running, "m", "other")
    frame, values = await flow.deliver()
    assert (frame.generation, frame.partition, values) == (1, 0, ["a", "b", "c"])
    assert all(each.is_gated for each in waiting)
    assert await flow.nack(frame, [(1, 3)], delay_ms=200) == ""
    assert await flow.ack(frame, 1) == ""
    await eventually(
        lambda: all([hold.messages for hold in each.holds] == [2] for each in waiting),
        "what was given back is waited for",
    )
    assert (await flow.take(2)) == ["b", "c"]
    await eventually(lambda: not any(each.is_gated for each in waiting), "the gates are open")


async def test_status_browse_and_pins_name_it(running, scene, layout):
    after = successors(layout)[0]
    producer = await open_producer(running, "q")
    keys = keys_of((layout, after))
    assert await outcome(producer, after, 0, *keys) == ("stored", 0)
    _, status = await running.call("GET", f"{QUEUE}/status")
    assert {"1.0", str(after)} <= status["partitions"].keys()
    workers = status["groups"]["workers"]
    assert workers["partitions"]["1.0"]["lag"] == 3
    (member,) = [each for each in workers["members"] if each["member"] == "m"]
    assert (member["state"], member["partitions"], member["retired"]) == ("Active", 0, 1)
    _, picture = await running.call("GET", f"{QUEUE}/groups/workers/picture")
    assert picture["succession"]["retired"] == [f"1.{index}" for index in range(4)]
    code, page = await running.call("POST", f"{QUEUE}/browse", json={"max_messages": 100})
    assert code == 200, page
    assert [each["value"] for each in page["messages"]] == ["a", "b", "c", *keys]


async def test_what_has_expired_is_done_with(running, scene, set_ttl):
    """Nobody acknowledges it, and the successors wait no longer."""
    await set_ttl(3600)
    layout = await ChangeByHand(running).change(3)
    await scene.source.close()
    watch = put_watch(running.broker, AheadWatch())
    watch.ahead_ms = 7_200_000
    running.clock.ahead_s += 61
    after = successors(layout)
    await eventually(
        lambda: not any(group_of(running, each).is_gated for each in after), "the gates are open"
    )
    record = await running.broker.partitions.read_cursor(RETIRED, "workers")
    assert record.cursor == 3


async def test_nothing_is_trimmed_before_each_group_of_the_queue_has_a_cursor(
    running, scene, monkeypatch
):
    """The cursors of a group are made one by one: one that is missing still holds the log."""
    trimmer = running.broker.trimmer
    monkeypatch.setattr(trimmer, "_groups", lambda: frozenset({"workers", "late"}))
    assert await scene.source.ack(scene.held, 3) == ""
    await trimmer.trim()
    assert (await running.broker.partitions.read(RETIRED)).trimmed == 0
    monkeypatch.undo()

    async def trimmed():
        await trimmer.trim()
        return (await running.broker.partitions.read(RETIRED)).trimmed == 3

    await eventually(trimmed, "it is trimmed")


async def test_nothing_of_it_is_retained(running, scene, layout, monkeypatch):
    """The change would not end before `retentionSeconds`."""
    monkeypatch.setattr(
        running.broker, "_config", replace(running.broker.config, retention_s=86_400.0)
    )
    trimmer, owned = running.broker.trimmer, running.broker.owned[RETIRED]
    assert (await trimmer._retention.find(owned, None)).first == 3
    assert await scene.source.ack(scene.held, 3) == ""

    async def trimmed():
        await trimmer.trim()
        return (await running.broker.partitions.read(RETIRED)).trimmed == 3

    await eventually(trimmed, "it is trimmed")
