"""A group of order Key on partition 1.0, whose one member speaks frames."""

from partq.testing.frame_peers import FlowPeer
from partq.wire import batch, frames
from tests.broker.conftest import CONSUME, connect_as, open_producer

SLOTS = {"a": 11, "b": 22, "c": 33, "d": 44, "e": 55}
"""Of the keys, which are the first letters of texts: all of partition 1.0."""
DAY_MS = 86_400_000
KEY_ORDER = {"order": "Key", "delaySeconds": 0.0, "backoff": None}


class KeyedPeer(FlowPeer):
    """A member's flow that knows masks."""

    async def bind(self, member="m", incarnation="i", *, credit=1000, **more):
        await self.send(frames.Bind(member, incarnation, credit, takes_lanes=True, **more))
        bound, _ = await self.expect(frames.Bound)
        assert bound.takes_lanes

    async def give_back(self, asked, *ranges):
        """Answer an AskBack."""
        place = (asked.generation, asked.partition, asked.broker_epoch, asked.epoch)
        await self.send(frames.Returned(*place, asked.notice, list(ranges)))

    async def asked(self):
        """Return the next AskBack; frames before it are dropped."""
        asked, _ = await self.find(frames.AskBack)
        return asked

    async def finish_alone(self, value):
        """Take a message that has failed, which comes without the later ones of its key; ack it."""
        held, values = await self.deliver()
        assert values == [value]
        assert await self.ack(held, ranges=[(held.start, held.start + 1)]) == ""

    async def values(self, count):
        """Return so many texts, in the order of their deliveries."""
        values = []
        while len(values) < count:
            _, some = await self.deliver()
            values += some
        return values


def keyed_batch(values):
    """Return a batch of texts, each of the key that is its first letter."""
    messages = [batch.encode_message(batch.Message(each[0], each.encode())) for each in values]
    return batch.encode(messages, [SLOTS[each[0]] for each in values])


async def publish(producer, *values):
    """Publish a batch into partition 1.0; return once it is stored."""
    await producer.send(frames.Publish(1, 1, 0, producer.due[0]), keyed_batch(values))
    await producer.expect(frames.Published)
    producer.due[0] += len(values)


async def open_keyed(running, member="m", incarnation="i", **more):
    """Open a member's flow that knows masks."""
    path = "/v1/queues/orders/groups/workers/flow"
    peer = await connect_as(KeyedPeer, running, path, CONSUME)
    await peer.bind(member, incarnation, **more)
    return peer


async def follow(running, **changes):
    """Change the group's spec, as an operator does, and have the broker follow."""
    configs = running.broker.configs
    stored = await configs.read_group("workers")
    spec = {
        name: {**stored.spec.get(name, {}), **part} if isinstance(part, dict) else part
        for name, part in changes.items()
    }
    number = stored.resource_generation + 1
    written = {**stored.spec, **spec}
    assert await configs.write_group("workers", written, resource_generation=number)
    await running.broker.refresh()


class KeyedScene:
    """Member m holds partition 1.0 in a group of order Key."""

    async def set(self, running, *values, **order):
        self.running = running
        await follow(running, nack={**KEY_ORDER, **order})
        await running.assign("m", [0])
        self.producer = await open_producer(running)
        if values:
            await publish(self.producer, *values)
        self.source = await open_keyed(running)
        self.assigned, _ = await self.source.expect(frames.Assigned)
        return self

    @property
    def consumed(self):
        return next(
            owned.groups["workers"]
            for name, owned in self.running.broker.owned.items()
            if name.index == 0
        )

    async def record(self):
        name = self.consumed.partition
        return await self.running.broker.partitions.read_cursor(name, "workers")
