"""Changes of the partition count by their records: tests of brokers play the coordinator."""

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from partq.broker.broker import Broker
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale import layout_steps
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.testing import eventually
from partq.testing.frame_peers import ProducerPeer
from partq.wire import batch, frames

REQUESTS = count(1000)


class ChangeByHand:
    """Makes the steps of a coordinator in the records of a broker's queue."""

    def __init__(self, running: Any) -> None:
        self.running = running
        self.layouts = Layouts(running.store, running.broker.keys)
        self.seals = Seals(running.store, running.broker.keys)

    async def layout(self) -> Layout:
        """Return the stored layout."""
        return (await self.layouts.read()).layout

    async def prepare(self, partition_count: int) -> list[PartitionId]:
        """Prepare a change, and have the broker own the new partitions; return those."""
        layout = layout_steps.prepare(await self.layout(), partition_count)
        await self.layouts.write(layout)
        assert layout.next is not None
        broker: Broker = self.running.broker
        for partition, predecessors in layout.next.lineage.items():
            await self.seals.create_successor(partition, predecessors, layout.slots(partition))
            for group in sorted(broker.config.groups):
                await broker.partitions.add_group(partition, group, start="Earliest")
        await broker.refresh()
        names = [str(partition) for partition in layout.next.lineage]
        for result in await self.running.admin("/claim", {"partitions": names}):
            assert "error" not in result, result
        return list(layout.next.lineage)

    async def commit(self) -> Layout:
        """Put the prepared change in force; no broker is told."""
        layout = layout_steps.commit(await self.layout(), int(time.time() * 1000))
        await self.layouts.write(layout)
        return layout

    async def change(self, partition_count: int) -> Layout:
        """Make a change, and wait until its partitions are open."""
        prepared = await self.prepare(partition_count)
        layout = await self.commit()
        await self.running.broker.refresh()
        await eventually(
            lambda: all(self.running.broker.owned[each].layout.is_open for each in prepared),
            "the new partitions are open",
        )
        return layout


async def give(running: Any, member: str, partition: PartitionId) -> None:
    """Give a partition of the group to a member."""
    consumed = running.broker.owned[partition].groups["workers"]
    commits = [
        {
            "partition": str(partition),
            "broker_epoch": consumed.broker_epoch,
            "epoch": consumed.epoch,
            "attempt": consumed.closed_attempt + 1,
            "source": consumed.member or "",
            "target": member,
            "cause": "unassigned",
        }
    ]
    for result in await running.admin("/groups/workers/commit", {"commits": commits}):
        assert "error" not in result, result


def keys_of(*places: tuple[Layout, PartitionId]) -> list[str]:
    """Return a few keys that are in a partition by each of some layouts."""
    keys = (f"k{number}" for number in count())
    found = (k for k in keys if all(each.partition_for(k) == place for each, place in places))
    return [next(found) for _ in range(3)]


def keys_for_five(before: Layout) -> tuple[str, str]:
    """Return keys of partition 1.0: one that moves when 4 partitions become 5, one that stays."""
    after = before.table.resized(5, 2).table
    found: dict[bool, str] = {}
    for key in (f"k{number}" for number in range(1000)):
        if before.partition_for(key) == PartitionId(1, 0):
            found.setdefault(after.partition_of(slot_of(key)) == PartitionId(1, 0), key)
    return found[False], found[True]


def batch_of(*keys: str) -> bytes:
    """Return a batch with a message of each key, whose value is the key."""
    messages = [batch.encode_message(batch.Message(key, key.encode())) for key in keys]
    return batch.encode(messages, [slot_of(key) for key in keys])


async def offer(
    peer: ProducerPeer, partition: PartitionId, first: int, *keys: str, age_ms: int = 0
) -> None:
    """Send a batch, and await nothing."""
    frame = frames.Publish(next(REQUESTS), *partition, first, age_ms=age_ms)
    await peer.send(frame, batch_of(*keys))


async def answer(peer: ProducerPeer) -> tuple[str, int]:
    """Return the code of the next answer, or "stored" or "duplicate", with the offset or due."""
    got, _ = await peer.expect((frames.Published, frames.PublishRefused))
    if isinstance(got, frames.PublishRefused):
        return got.code, got.due
    return ("duplicate" if got.is_duplicate else "stored"), got.offset


async def outcome(
    peer: ProducerPeer, partition: PartitionId, first: int, *keys: str, age_ms: int = 0
) -> tuple[str, int]:
    """Send a batch; return its answer as `answer` does."""
    await offer(peer, partition, first, *keys, age_ms=age_ms)
    return await answer(peer)


async def values(running: Any, partition: PartitionId) -> Sequence[str]:
    """Return the values of all messages that a partition stores."""
    entries = await running.broker.log.read(partition, 0, max_bytes=1 << 20, max_entries=1000)
    return [m.value.decode() for each in entries for m in batch.decode(each.data, 0, each.count)]
