"""Members that choose their partitions, while the partition count changes."""

import pytest

from partq.core.model import PartitionId
from partq.testing import eventually
from partq.wire import frames
from tests.broker.rescale.change import ChangeByHand, keys_of, outcome

NEW = PartitionId(2, 4)


async def names(members):
    """Return the partitions that members may choose from."""
    return list((await members.call("GET", "/partitions"))["partitions"])


@pytest.mark.req("TUB-22")
async def test_a_new_partition_is_registered_at_once_and_delivers_after_the_old_ones(
    running, members, producer, peers
):
    await producer.publish("a", "b")
    flow = await peers.open_flow(running, "m")
    await members.register("m", "1.0")
    held, _ = await flow.deliver()
    rescaler = ChangeByHand(running)
    await rescaler.prepare(5)
    assert "2.4" not in await names(members), "it is only prepared"
    layout = await rescaler.commit()
    await running.broker.refresh()
    assert await names(members) == ["1.0", "1.1", "1.2", "1.3", "2.4"]
    owned = running.broker.owned[NEW]
    await eventually(lambda: owned.layout.is_open, "it takes messages")
    assert (await members.register("m", "2.4"))["is_new"]
    await flow.find(frames.Assigned)
    keys = keys_of((layout, NEW))
    assert await outcome(await peers.open_producer(running, "q"), NEW, 0, *keys) == ("stored", 0)
    consumed = owned.groups["workers"]
    await eventually(
        lambda: (
            [each.text for each in consumed.holds]
            == ["1.0: 2 messages before offset 2, at member m"]
        ),
        "it waits for what the member has in 1.0",
    )
    assert consumed.book.in_flight == 0
    assert await flow.ack(held, 2) == ""
    frame, values = await flow.deliver()
    assert (frame.generation, frame.partition, values) == (2, 4, keys)


async def test_a_partition_without_slots_is_chosen_until_it_is_gone(
    running, members, producer, peers
):
    """Somebody has to read what it has left."""
    await producer.publish("a")
    await ChangeByHand(running).change(3)
    assert await names(members) == ["1.0", "1.1", "1.2", "1.3", "2.0", "2.1", "2.2"]
    flow = await peers.open_flow(running, "m")
    registered = await members.register("m", "1.0")
    assert (registered["is_new"], registered["cursor"]) == (True, 0)
    assert (await flow.deliver())[1] == ["a"]
