"""The node of a Redis Cluster that has the layout forgets, and those of the partitions do not."""

from dataclasses import replace

import pytest

from partq.coordinator.reports.rescale_progress import read_rescale_progress
from partq.coordinator.rescale.layout_restorer import LayoutRestorer
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import MAX_UNSETTLED, abort, commit, prepare, unsettled
from partq.core.views.rescale_status import rescale_status
from partq.errors import ConflictError, StoreUnavailableError, UnknownPartitionError
from tests.coordinator.rescale_stage import BROKER, RescaleStage


@pytest.fixture
async def stage(store, keys):
    stage = RescaleStage(store, keys)
    await stage.make(2, "workers")
    await stage.look(2)
    yield stage
    await stage.coordinator.close()


class Snapshot:
    """The layout record and the config, which are on one node, as they were at some time."""

    def __init__(self, stage):
        self.stage = stage
        self.names = (stage.keys.layout(), stage.keys.config())
        self.fields = ()

    async def take(self):
        read = self.stage.store.read
        self.fields = [await read("HGETALL", name) for name in self.names]
        return self

    async def put_back(self):
        for name, fields in zip(self.names, self.fields, strict=True):
            await self.stage.store.read("DEL", name)
            await self.stage.store.read("HSET", name, *fields)


def parts_of(layout):
    return layout.table, layout.generation, layout.lineage, layout.retired.keys(), layout.counts


async def committed(stage, count):
    await stage.want(count)
    await stage.until(lambda layout: layout.partition_count == count)
    await stage.seal_and_open()
    return await stage.look()


@pytest.fixture(params=["goes on", "is another one"])
def lost(stage, request):
    """Have the store lose what came after a snapshot, under the coordinator or before the next."""

    async def lose(snapshot):
        await snapshot.put_back()
        if request.param == "is another one":
            await stage.replace_coordinator()

    return lose


@pytest.mark.parametrize("count", [3, 1])
async def test_a_change_in_force_is_in_force_again(stage, lost, count):
    before = await Snapshot(stage).take()
    await stage.publish(PartitionId(1, 0))
    layout = await committed(stage, count)
    await lost(before)
    await stage.want(count)
    assert parts_of(await stage.look()) == parts_of(layout)
    assert parts_of(await stage.look(2)) == parts_of(layout)
    await stage.pass_by(PartitionId(1, 0), "workers")
    assert not (await stage.until(lambda layout: not layout.retired)).lineage


async def test_two_changes_are_in_force_again_and_their_numbers_are_used(stage, lost):
    before = await Snapshot(stage).take()
    await stage.publish(PartitionId(1, 0))
    await committed(stage, 3)
    layout = await committed(stage, 4)
    await lost(before)
    await stage.want(4)
    assert parts_of(await stage.look()) == parts_of(layout)
    assert (await committed(stage, 5)).generation == 4


async def test_it_is_not_aborted_where_the_layout_is_back_at_its_preparation(stage, lost):
    """Its keys would be erased, with the messages in them."""
    for partition in (PartitionId(1, 0), PartitionId(1, 1)):
        await stage.publish(partition)
    stage.broker.refuses = {PartitionId(2, 2)}
    await stage.want(3)
    await stage.look(3)
    before = await Snapshot(stage).take()
    stage.broker.refuses = set()
    layout = await stage.until(lambda layout: layout.generation == 2)
    await stage.seal_and_open()
    await stage.publish(PartitionId(2, 2))
    await lost(before)
    await stage.want(2)
    assert parts_of(await stage.look()) == parts_of(layout)
    record = await stage.ports.partitions.read(PartitionId(2, 2))
    assert (record.next, record.layout.is_open) == (1, True)


STEPS = ["commit", "seal 1.0", "seal 1.1", "open 2.2", "open 2.3", "publish 2.2"]


@pytest.mark.parametrize("last", STEPS[1:])
async def test_whatever_was_in_force_is_not_aborted(stage, last):
    """Another coordinator has committed it, and the store has lost that before this one's look."""
    for partition in (PartitionId(1, 0), PartitionId(1, 1)):
        await stage.publish(partition)
    stage.broker.refuses = {PartitionId(2, 3)}
    await stage.want(4)
    layout = await stage.look(3)
    before = await Snapshot(stage).take()
    committed_by_another = commit(layout, 1)
    await stage.ports.layouts.write(committed_by_another)
    stage.broker.refuses = set()
    await stage.broker.claim("", [PartitionId(2, 3)])
    for step in STEPS[1 : STEPS.index(last) + 1]:
        verb, name = step.split()
        partition = PartitionId.parse(name)
        owner = {"broker_epoch": stage.broker.epochs[partition]}
        if verb == "seal":
            left = committed_by_another.slots(partition)
            await stage.ports.seals.seal(partition, **owner, generation=2, slots=left)
        elif verb == "open":
            await stage.ports.seals.open_partition(partition, **owner, seals={})
        else:
            await stage.publish(partition)
    await before.put_back()
    await stage.want(2)
    found = await stage.look()
    assert parts_of(found) == parts_of(committed_by_another)
    assert not [event for event, *_ in stage.events if event == "Aborted"]


async def test_a_change_that_was_not_in_force_is_aborted(stage):
    """No record says that anything of it was, and it is not completed against the will of all."""
    stage.broker.refuses = {PartitionId(2, 3)}
    await stage.want(4)
    await stage.look(3)
    await stage.want(2)
    layout = await stage.look()
    assert (layout.next, layout.generation, layout.partition_count) == (None, 1, 2)


async def test_a_change_whose_commit_has_no_answer_is_not_aborted(stage, monkeypatch):
    """Brokers may have read it before the store has lost it, and seal at any time."""
    before = []
    layouts = stage.ports.layouts
    write = layouts.write

    async def commit_without_answer(layout, **options):
        is_commit = layout.generation == 2 and not before
        if is_commit:
            before.append(await Snapshot(stage).take())
        await write(layout, **options)
        if is_commit:
            raise StoreUnavailableError("no replica has it")

    monkeypatch.setattr(layouts, "write", commit_without_answer)
    await stage.want(4)
    while not before:
        await stage.look()
    await before[0].put_back()
    stage.broker.refuses = {PartitionId(2, 3)}
    del stage.broker.epochs[PartitionId(2, 3)]
    await stage.want(2)
    assert (await stage.look(2)).next.table.partition_count == 4
    stage.broker.refuses = set()
    layout = await stage.until(lambda layout: layout.generation == 2)
    assert layout.partition_count == 4


async def test_a_prepared_change_is_completed_before_another_one(stage, lost):
    """A broker may have read that it was in force, and seal by it late."""
    stage.broker.refuses = {PartitionId(2, 3)}
    before = await Snapshot(stage).take()
    await stage.want(4)
    await stage.look(3)
    await lost(before)
    layout = await stage.until(lambda layout: layout.next is not None)
    assert layout.next.table.partition_count == 4
    stage.broker.refuses = set()
    layout = await stage.until(lambda layout: layout.generation == 2)
    assert layout.partition_count == 4
    await stage.seal_and_open()
    assert (await stage.until(lambda layout: layout.generation == 3)).partition_count == 2


async def test_no_later_coordinator_aborts_a_change_that_may_have_been_in_force(stage):
    """A broker that has read the lost layout seals by it, and the abort would undo that."""
    before = await Snapshot(stage).take()
    await stage.want(4)
    await stage.until(lambda layout: layout.generation == 2)
    await before.put_back()
    await stage.want(2)
    stage.broker.refuses = {PartitionId(2, 3)}
    del stage.broker.epochs[PartitionId(2, 3)]
    await stage.replace_coordinator()
    for _ in range(2):
        layout = await stage.look(2)
        assert layout.next.table.partition_count == 4
        await stage.replace_coordinator()
    stage.broker.refuses = set()
    layout = await stage.until(lambda layout: layout.generation == 2)
    assert (layout.partition_count, layout.must_commit) == (4, False)


@pytest.mark.parametrize("is_erased", [True, False], ids=["erased", "being erased"])
async def test_the_number_of_an_aborted_change_is_not_used_again(stage, is_erased):
    """What it has left would be taken for the next change: other slots, or keys that are gone."""
    await stage.publish(PartitionId(1, 0))
    before = await Snapshot(stage).take()
    stage.broker.refuses = {PartitionId(2, 2), PartitionId(2, 3)}
    await stage.want(4)
    layout = await stage.look(2)
    await stage.ports.layouts.write(abort(layout), removed=layout.next.lineage)
    if is_erased:
        await stage.want(2)
        await stage.replace_coordinator()
        await stage.look()
    stage.broker.refuses = set()
    await before.put_back()
    await stage.replace_coordinator()
    layout = await committed(stage, 3)
    new = PartitionId(3, 2)
    assert (layout.generation, [*layout.lineage]) == (3, [new])
    record = await stage.ports.partitions.read(new)
    assert record.layout.slots == layout.slots(new)
    await stage.look(2)
    assert not [name for name in await stage.names() if "#2." in name and "removal" not in name]


async def test_a_number_is_not_used_again_whose_change_was_in_force(stage):
    """It is lost, another change got its number, and only then a broker has sealed by it."""
    first = await stage.layout()
    layout = commit(prepare(first, 4), 1)
    for partition, givers in layout.lineage.items():
        await stage.ports.seals.create_successor(partition, givers, layout.slots(partition))
    old = PartitionId(1, 0)
    await stage.publish(old)
    await stage.ports.layouts.write(prepare(first, 3))
    epoch = stage.broker.epochs[old]
    await stage.ports.seals.seal(old, broker_epoch=epoch, generation=2, slots=layout.slots(old))
    await stage.want(3)
    found = await stage.look()
    assert (found.table, found.generation) == (layout.table, 2)
    assert found.lineage[PartitionId(2, 2)] == layout.lineage[PartitionId(2, 2)]


async def test_partitions_that_were_removed_are_not_made_again(stage, store):
    """No broker is left that would know what has replaced them."""
    before = await Snapshot(stage).take()
    layout = await committed(stage, 1)
    layout = await stage.until(lambda layout: not layout.retired)
    await stage.look(2)
    assert not await store.read("EXISTS", stage.keys.meta(PartitionId(1, 0)))
    await before.put_back()
    stage.broker.epochs.clear()
    await stage.replace_coordinator()
    with pytest.raises(UnknownPartitionError):
        await stage.look()
    assert parts_of(await stage.look()) == parts_of(layout)
    await stage.look()
    assert PartitionId(2, 0) in stage.broker.epochs
    assert not {PartitionId(1, 0), PartitionId(1, 1)} & stage.broker.epochs.keys()


async def test_a_removal_that_is_lost_is_made_again(stage, store):
    """And the settlement before it. The keys cannot be made again; nothing waits for them."""
    await stage.publish(PartitionId(1, 0))
    layout = await committed(stage, 1)
    before = await Snapshot(stage).take()
    await stage.pass_by(PartitionId(1, 0), "workers")
    await stage.until(lambda layout: not layout.retired)
    await stage.look(2)
    assert not await store.read("EXISTS", stage.keys.meta(PartitionId(1, 0)))
    await before.put_back()
    found = await stage.look()
    assert (found.table, found.generation, found.counts) == (layout.table, 2, layout.counts)
    assert (found.lineage, found.retired) == ({}, {})


async def test_a_settlement_that_is_lost_is_made_again_where_seals_are_removed(stage, lost):
    """Nobody can pass a predecessor without a seal, so what follows it would wait for ever."""
    old = PartitionId(1, 0)
    await stage.publish(old)
    before = await Snapshot(stage).take()
    await committed(stage, 3)
    unsettled = await Snapshot(stage).take()
    await stage.pass_by(old, "workers")
    await stage.until(lambda layout: not layout.lineage)
    await stage.publish(old)
    layout = await committed(stage, 4)
    assert (await stage.ports.partitions.read(old)).layout.seals == {3: 2}
    for snapshot in (unsettled, before):
        await lost(snapshot)
        await stage.want(4)
        found = await stage.look(2)
        assert parts_of(found) == parts_of(layout)


async def test_a_change_is_found_by_records_alone(stage):
    """All processes begin anew, and what is wanted was set back with the layout."""
    before = await Snapshot(stage).take()
    layout = await committed(stage, 3)
    await before.put_back()
    stage.broker.epochs.clear()
    await stage.replace_coordinator()
    assert (await stage.look()).generation == 1
    found = await stage.look()
    assert (found.table, found.generation) == (layout.table, 2)
    assert found.next.table.partition_count == 2


async def test_a_record_that_is_lost_is_made_again(stage, store):
    """The other way round: it is behind the layout."""
    await stage.publish(PartitionId(1, 0))
    layout = await committed(stage, 3)
    new = PartitionId(2, 2)
    for name in (stage.keys.meta(new), stage.keys.cursor(new, "workers")):
        await store.read("DEL", name)
    del stage.broker.epochs[new]
    await stage.look(3)
    record = await stage.ports.partitions.read(new)
    assert (record.layout.is_open, record.groups) == (False, {"workers"})
    assert record.layout.predecessors == layout.lineage[new]
    assert (await stage.ports.partitions.read_cursor(new, "workers")).gate == "0"
    assert new in stage.broker.epochs
    await stage.seal_and_open()
    assert (await stage.ports.partitions.read(new)).layout.is_open


async def test_a_change_that_has_to_wait_reads_no_records(stage, monkeypatch):
    """Where one is missing, those of the changes after the last one would be read at each look."""
    for partition in (PartitionId(1, 0), PartitionId(1, 1)):
        await stage.publish(partition)
    for count in range(3, 3 + MAX_UNSETTLED):
        layout = await committed(stage, count)
    assert len(unsettled(layout)) == MAX_UNSETTLED
    reads = []
    read_many = stage.ports.partitions.read_many

    async def count_reads(names, **options):
        reads.append(names)
        return await read_many(names, **options)

    monkeypatch.setattr(stage.ports.partitions, "read_many", count_reads)
    wanted = layout.partition_count + 1
    assert await stage.coordinator._rescaler.plan(layout, wanted) is layout
    assert reads == []


async def test_records_that_do_not_add_up_hold_up_nothing_else(stage, caplog):
    before = await Snapshot(stage).take()
    await committed(stage, 4)
    await before.put_back()
    await stage.store.read("DEL", stage.keys.meta(PartitionId(2, 2)))
    del stage.broker.epochs[PartitionId(2, 2)]
    assert (await stage.look(2)).generation == 1
    assert "restore a backup of all nodes of Redis" in caplog.text
    with pytest.raises(ConflictError, match="change 2 was in force"):
        await stage.coordinator._rescaler.plan(await stage.layout(), 5)
    layout, ports = await stage.layout(), stage.ports
    read = await read_rescale_progress(ports.partitions, ports.seals, layout, [BROKER], 5)
    status = rescale_status(layout, read, wanted_count=5, groups=["workers"])
    assert status.waits_for[0].startswith("the layout, which is behind change 2 ")


async def test_a_layout_of_the_same_revision_that_differs_is_suspect(stage):
    """The store was set back, and another coordinator has taken a step since."""
    layout = await committed(stage, 3)
    restorer = LayoutRestorer("ns/orders", stage.ports.partitions)
    restorer.keep(layout)
    assert restorer.is_suspect(replace(layout, last_generation=3))
    assert not restorer.is_suspect(layout)
    assert not restorer.is_suspect(replace(layout, revision=layout.revision + 1, lineage={}))


async def test_nothing_is_removed_of_a_change_whose_partitions_take_messages(stage):
    await committed(stage, 3)
    restorer = LayoutRestorer("ns/orders", stage.ports.partitions)
    with pytest.raises(ConflictError, match="nothing of it is removed"):
        await restorer.read_unused(2)


async def test_too_many_lost_changes_are_refused_before_they_are_read(stage, monkeypatch):
    last = PartitionId(40, 0)
    await stage.ports.seals.create_successor(last, {PartitionId(1, 0): (range(9),)}, (range(9),))
    restorer = LayoutRestorer("ns/orders", stage.ports.partitions)
    monkeypatch.setattr(restorer, "read_generation", None)
    with pytest.raises(ConflictError, match=r"change 40 is recorded .* at most 32"):
        await restorer.find_lost(await stage.layout(), [last])
