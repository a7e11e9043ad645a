"""A group whose node of a Redis Cluster is silent stays as it is, and the others go on."""

from types import SimpleNamespace

from partq.coordinator.record_sync import RecordSync
from partq.testing import eventually
from tests.coordinator.fake_brokers import GROUP
from tests.coordinator.timing import looks

SILENT = "silent"


async def test_a_silent_group_holds_up_no_other_and_is_told_once(system, caplog):
    system.begin("aaaa", bound="ab")
    system.store.queue.groups = (SILENT, GROUP)
    system.store.silent.add(SILENT)
    async with system.running() as coordinator:
        await eventually(lambda: sorted(system.brokers.owners().values()) == list("aabb"))
        before = system.store.looks
        await eventually(lambda: system.store.looks > before + 2)
        assert coordinator._groups.keys() == {GROUP}
    assert [record.getMessage() for record in caplog.records] == [
        "queue orders: group silent: its node of Redis does not answer: it stays as it is, and "
        "the others go on"
    ]


async def test_a_group_that_falls_silent_keeps_its_members_and_its_history(system):
    system.begin("aabb", bound="ab")
    coordinator, store = system.coordinator(), system.store
    await looks(coordinator)
    before = coordinator._groups[GROUP]
    store.silent.add(GROUP)
    store.queue = SimpleNamespace(spec={}, groups=(GROUP,), resource_generation=2)
    system.brokers.leave("a")
    await looks(coordinator)
    assert coordinator._groups[GROUP] is before
    assert (system.said("record"), len(system.said("term"))) == ([], 1)
    assert all(GROUP in groups for groups in store.cursors.values())
    store.silent.clear()
    await looks(coordinator)
    assert coordinator._groups[GROUP] is before
    assert len(system.said("record")) == 2
    await coordinator.close()


async def test_a_queue_that_comes_back_while_a_group_is_silent_waits_for_the_group(system):
    """What was known of it before may be about another group of this name."""
    system.begin("aabb", bound="ab")
    coordinator, store = system.coordinator(), system.store
    await looks(coordinator)
    store.layout.tombstone = True
    await looks(coordinator)
    store.layout.tombstone = False
    store.silent.add(GROUP)
    await looks(coordinator)
    assert not coordinator._groups
    store.silent.clear()
    await looks(coordinator)
    assert coordinator._groups.keys() == {GROUP}
    await coordinator.close()


async def test_a_silent_group_that_is_removed_holds_up_no_other(system):
    store, ports = system.store, system.store.ports()
    layout = store.layout.layout
    store.cursors = {partition: {GROUP, SILENT} for partition in layout.partitions()}
    store.silent.add(SILENT)
    sync = RecordSync(ports.partitions, None, ports.configs)
    for _ in range(2):
        await sync.sync(layout, {GROUP: "Earliest", "new": "Latest"}, 1)
        assert set(map(frozenset, store.cursors.values())) == {frozenset([GROUP, SILENT, "new"])}
    store.silent.clear()
    await sync.sync(layout, {GROUP: "Earliest", "new": "Latest"}, 1)
    assert set(map(frozenset, store.cursors.values())) == {frozenset([GROUP, "new"])}


async def test_trouble_that_lasts_is_told_once(system, caplog):
    """As long as it does, whatever else goes well."""
    system.store.groups[GROUP].spec = {"type": "Common"}
    async with system.running():
        await eventually(lambda: system.store.looks > 3)
        assert len(caplog.records) == 1
        system.store.groups[GROUP].spec = {}
        before = system.store.looks
        await eventually(lambda: system.store.looks > before + 2)
        system.store.groups[GROUP].spec = {"type": "Common"}
        before = system.store.looks
        await eventually(lambda: system.store.looks > before + 2)
    assert len(caplog.records) == 2, "it had ended"
