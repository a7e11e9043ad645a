"""Numbers that stand for the same messages at each attempt, while slots leave a partition."""

import pytest

from partq.core.model import PartitionId
from partq.testing.frame_peers import ProducerPeer
from partq.wire import frames
from tests.broker.rescale.change import ChangeByHand, answer, keys_for_five, offer, outcome, values

OLD, NEW, OTHER = PartitionId(1, 0), PartitionId(2, 4), PartitionId(1, 1)


@pytest.fixture
def rescaler(running):
    return ChangeByHand(running)


async def attempt(running, peers, layout):
    """Open the connection of an attempt whose numbers were counted for a layout."""
    path = "/v1/queues/orders/publish"
    peer = await peers.connect_as(
        ProducerPeer, running, path, peers.PRODUCE, layout=running.broker.config.layout
    )
    await peer.send(frames.ProducerHello("task", layout=layout))
    await peer.expect(frames.ProducerWelcome)
    return peer


async def due(running, peers, producer="task"):
    _, found = await running.call(
        "GET", f"/v1/queues/orders/producers/{producer}", token=peers.PRODUCE
    )
    return found


async def test_a_partition_stores_numbers_of_its_own_layout_alone(running, rescaler, peers):
    """A speculative attempt that is still alive repeats itself, and adds nothing."""
    moves, stays = keys_for_five(await rescaler.layout())
    slow = await attempt(running, peers, 1)
    assert await outcome(slow, OLD, 0, moves, stays) == ("stored", 0)
    early = await attempt(running, peers, 2)
    assert await outcome(early, OLD, 0, stays) == ("not_stored", -1)
    assert "layouts" not in await due(running, peers)
    await rescaler.change(5)

    found = await due(running, peers)
    assert found["layouts"] == {"1.0": 2, "1.1": 2, "1.2": 2, "1.3": 2, "2.4": 2}
    assert found["due"]["1.0"] == 2
    assert await outcome(slow, OLD, 0, moves, stays) == ("duplicate", 0)
    assert (await outcome(slow, OLD, 2, stays))[0] == "stale_generation"
    assert await outcome(early, OLD, 0, stays) == ("stored", 2)
    assert await outcome(early, NEW, 0, moves) == ("stored", 0)
    assert await values(running, OLD) == [moves, stays, stays]
    assert (await due(running, peers, "task@2"))["due"] == {
        "1.0": 1, "1.1": 0, "1.2": 0, "1.3": 0, "2.4": 1,
    }  # fmt: skip
    assert (await due(running, peers))["due"]["1.0"] == 2


async def test_what_waits_when_the_seal_comes_is_of_the_earlier_layout(running, rescaler, peers):
    _, stays = keys_for_five(await rescaler.layout())
    slow, other = await attempt(running, peers, 1), await peers.open_producer(running)
    await rescaler.prepare(5)
    gate = peers.Gate(running.broker.log, "append")
    await offer(other, OLD, 0, stays)
    await gate.is_reached()
    await offer(slow, OLD, 0, stays)
    appender = running.broker.owned[OLD].appender
    await peers.eventually(lambda: len(appender._pending) == 1, "the attempt's batch waits")
    await rescaler.commit()
    await running.broker.refresh()
    gate.opened.set()
    assert (await answer(slow))[0] == "stale_generation"
    assert await answer(other) == ("stored", 0)


async def test_a_layout_that_cannot_be_is_refused(running, peers):
    path = "/v1/queues/orders/publish"
    peer = await peers.connect(running, path, peers.PRODUCE)
    await peer.send(frames.ProducerHello("task", layout=-1))
    failed, _ = await peer.expect(frames.Failed)
    assert failed.code == "bad_request"
