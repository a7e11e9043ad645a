"""Two changes of the partition count by the records alone, as coordinator and owners make them.

No broker serves: the test plays the coordinator and all owners, by the decisions of `core` and the
calls of the store. Between any two steps of an owner another one may claim its partition.
"""

from collections import Counter

import pytest

from partq.core.model import BrokerId, PartitionId
from partq.core.rescale.gates import GroupProgress, PredecessorView, find_holds
from partq.core.rescale.layout_steps import abort, commit, prepare, remove, settle, unsettled
from partq.core.rescale.seals import seals_to_open
from partq.core.rescale.settlement import is_passed_by_all
from partq.errors import ConflictError, FencedError, NotStoredError
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.store.records.log import AppendBatch
from tests.store.record import GROUP, flush

SLOTS = range(0, 65_536, 8_192)
"""One message of each of these slots is published in each round."""
NOW = 1_700_000_000_000


class Cluster:
    """A queue of two partitions with one group, and everything that changes it."""

    def __init__(self, store, keys, partitions, log, *, replaces_owners):
        self.partitions = partitions
        self.log = log
        self.layouts = Layouts(store, keys)
        self.layouts = Layouts(store, keys)
        self.seals = Seals(store, keys)
        self.replaces_owners = replaces_owners
        self.epochs = {}
        self.appends = Counter()
        self.stored = {}
        self.read = []

    async def begin(self):
        await self.layouts.create_queue({1: 2})
        for partition in ((await self.layouts.read()).layout).partitions():
            await self.partitions.create(partition)
            await self.partitions.add_group(partition, GROUP, start="Earliest")
            await self.claim(partition)

    async def claim(self, partition):
        expected = (await self.partitions.read(partition)).broker_epoch
        claim = await self.partitions.claim(
            partition, BrokerId(f"b-{expected}"), "i", expected=expected
        )
        self.epochs[partition] = claim.broker_epoch
        self.appends[partition] = 0

    async def owner(self, partition):
        """Return the broker epoch of the owner that takes the next step."""
        if self.replaces_owners:
            await self.claim(partition)
        return self.epochs[partition]

    async def publish(self, partition, message):
        """Append a message, a byte each for its round and the place of its slot."""
        epoch, record = await self.owner(partition), await self.partitions.read(partition)
        await self.log.append(
            partition, broker_epoch=epoch, number=self.appends[partition], expected=record.next,
            batches=[AppendBatch("", 0, 1, bytes(message))], room_bytes=None,
        )  # fmt: skip
        self.appends[partition] += 1
        self.stored.setdefault(partition, []).append(message)

    async def publish_round(self, number):
        """Publish a message of each slot to the partition that takes it."""
        table = ((await self.layouts.read()).layout).table
        for place, slot in enumerate(SLOTS):
            await self.publish(table.partition_of(slot), (number, place))

    async def prepare(self, count):
        await self.layouts.write(prepare((await self.layouts.read()).layout, count))
        layout = (await self.layouts.read()).layout
        for partition, predecessors in layout.next.lineage.items():
            await self.seals.create_successor(partition, predecessors, layout.slots(partition))
            await self.partitions.add_group(partition, GROUP, start="Earliest")
            await self.claim(partition)

    async def seal_and_open(self):
        """Every owner does what the layout in force asks of it."""
        layout = (await self.layouts.read()).layout
        for partition in {p for givers in layout.lineage.values() for p in givers}:
            left = layout.table.slots.get(partition, ())
            await self.seals.seal(
                partition, broker_epoch=await self.owner(partition),
                generation=layout.generation, slots=left,
            )  # fmt: skip
        for partition in layout.lineage:
            found = await self.views(layout, partition)
            seals = seals_to_open(found, {each: view.sealed_at for each, view in found.items()})
            assert seals is not None
            epoch = await self.owner(partition)
            await self.seals.open_partition(partition, broker_epoch=epoch, seals=seals)

    async def views(self, layout, partition):
        """Return what the records of the predecessors say that the lineage still names."""
        found = {}
        for each in layout.lineage.get(partition, {}):
            found[each] = await self.view(each, partition.generation)
        return found

    async def view(self, partition, generation):
        record = await self.partitions.read(partition)
        cursor = await self.partitions.read_cursor(partition, GROUP)
        groups = {GROUP: GroupProgress(cursor.cursor, cursor.gate == "1", len(cursor.outbox))}
        return PredecessorView(record.layout.seals.get(generation), record.trimmed, groups)

    async def consume(self):
        """The group reads what it may, and the owners open the gates that they may; until rest."""
        is_moving = True
        while is_moving:
            layout, is_moving = (await self.layouts.read()).layout, False
            # The newest first, as nothing may depend on the order in which owners look.
            for partition in sorted(layout.partitions(), reverse=True):
                is_moving |= await self.consume_from(layout, partition)

    async def consume_from(self, layout, partition):
        cursor = await self.partitions.read_cursor(partition, GROUP)
        if cursor.gate != "1":
            found = await self.views(layout, partition)
            if find_holds(found, GROUP):
                return False
            passed = {each: (view.sealed_at, 0) for each, view in found.items()}
            await self.seals.open_gate(
                partition, GROUP, broker_epoch=await self.owner(partition), born=cursor.born,
                gate=cursor.gate, passed=passed,
            )  # fmt: skip
            return True
        log = self.stored.get(partition, [])
        if cursor.cursor == len(log):
            return False
        self.read.append(log[cursor.cursor])
        epoch = await self.owner(partition)
        await flush(self.partitions, partition, epoch, GROUP, cursor.cursor + 1)
        return True

    async def settle(self):
        """Settle and remove whatever can be."""
        while True:
            layout = (await self.layouts.read()).layout
            givers = {(p, s.generation) for s, each in layout.lineage.items() for p in each}
            for partition, generation in sorted(givers):
                await self.log.trim(partition, broker_epoch=await self.owner(partition))
                found = await self.view(partition, generation)
                if partition not in layout.lineage and is_passed_by_all(found, [GROUP]):
                    await self.layouts.write(settle(layout, partition))
                    break
            else:
                for partition in layout.retired if not layout.lineage else ():
                    layout = remove(layout, partition)
                    await self.layouts.write(layout)
                return layout


@pytest.fixture(params=[False, True], ids=["the owners stay", "owners are replaced at each step"])
async def cluster(request, store, keys, partitions, log):
    cluster = Cluster(store, keys, partitions, log, replaces_owners=request.param)
    await cluster.begin()
    return cluster


async def test_two_to_three_to_two_partitions(cluster):
    await cluster.publish_round(0)
    for number, count in enumerate((3, 2), 1):
        await cluster.prepare(count)
        await cluster.layouts.write(commit((await cluster.layouts.read()).layout, NOW))
        await cluster.seal_and_open()
        await cluster.publish_round(number)
    assert cluster.read == []
    await cluster.consume()

    assert sorted(cluster.read) == [(n, place) for n in range(3) for place in range(len(SLOTS))]
    for place in range(len(SLOTS)):
        rounds = [number for number, each in cluster.read if each == place]
        assert rounds == [0, 1, 2], "the messages of a slot, in order, each once"
    layout = await cluster.settle()
    assert (layout.lineage, layout.retired, unsettled(layout)) == ({}, {}, ())
    assert layout.partitions() == (PartitionId(3, 0), PartitionId(3, 1))


async def test_a_second_change_before_the_first_has_opened(cluster):
    """What the first one made is sealed only when it is open, though the layout says more."""
    await cluster.publish_round(0)
    await cluster.prepare(3)
    await cluster.layouts.write(commit((await cluster.layouts.read()).layout, NOW))
    with pytest.raises(NotStoredError):
        await cluster.seals.seal(
            PartitionId(2, 2), broker_epoch=await cluster.owner(PartitionId(2, 2)),
            generation=3, slots=[],
        )  # fmt: skip


async def test_an_owner_of_before_seals_opens_and_gates_nothing(cluster):
    old, new = PartitionId(1, 0), PartitionId(2, 2)
    await cluster.prepare(3)
    await cluster.layouts.write(commit((await cluster.layouts.read()).layout, NOW))
    before = dict(cluster.epochs)
    cursor = await cluster.partitions.read_cursor(new, GROUP)
    for partition in (old, new):
        await cluster.claim(partition)
    with pytest.raises(FencedError):
        await cluster.seals.seal(old, broker_epoch=before[old], generation=2, slots=[])
    with pytest.raises(FencedError):
        await cluster.seals.open_partition(new, broker_epoch=before[new], seals={})
    with pytest.raises(FencedError):
        await cluster.seals.open_gate(
            new, GROUP, broker_epoch=before[new], born=cursor.born, gate="0", passed={}
        )


async def test_two_coordinators(cluster):
    """One of commit and abort is stored."""
    await cluster.prepare(3)
    layout = (await cluster.layouts.read()).layout
    await cluster.layouts.write(abort(layout))
    with pytest.raises(ConflictError):
        await cluster.layouts.write(commit(layout, NOW))
    assert (await cluster.layouts.read()).layout.generation == 1
