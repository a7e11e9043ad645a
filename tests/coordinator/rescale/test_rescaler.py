"""The coordinator changes the partition count: step by step, and none before its time."""

from dataclasses import replace

import pytest

from partq.coordinator.rescale.rescaler import Rescaler
from partq.core.group.records import HandoffRecord, PastMove
from partq.core.model import MemberId, PartitionId
from partq.core.rescale.layout_steps import abort, commit
from partq.errors import (
    ConflictError,
    StoreUnavailableError,
    UnavailableError,
)
from partq.store.keys import Keys
from tests.coordinator.provisioned import CutShortError
from tests.coordinator.rescale_stage import BROKER, UID, RescaleStage


@pytest.fixture
async def stage(store, keys):
    stage = RescaleStage(store, keys)
    yield stage
    await stage.coordinator.close()


def of(generation, *indexes):
    return tuple(PartitionId(generation, index) for index in indexes)


async def committed(stage, before, after, *groups):
    """Bring a queue to the commit of a change."""
    await stage.make(before, *groups)
    await stage.look(2)
    await stage.make(after, *groups)
    return await stage.until(lambda layout: layout.partition_count == after)


async def test_a_queue_with_the_wanted_count_has_no_layout_record(stage):
    await stage.make(4, "workers")
    layout = await stage.look(3)
    assert (layout.revision, stage.events, stage.broker.refreshes) == (0, [], 0)


async def test_what_an_earlier_version_wrote_changes_nothing(stage):
    await stage.make(4)
    config = await stage.ports.configs.read_queue()
    del config.spec["partitions"]
    await stage.ports.configs.write_queue(config.spec, resource_generation=9)
    assert (await stage.look(3)).revision == 0


async def test_a_growth_is_prepared_and_committed(stage):
    layout = await committed(stage, 2, 3, "workers", "archive")
    new = PartitionId(2, 2)
    assert layout.current_partitions == (*of(1, 0, 1), new)
    assert (layout.generation, layout.next) == (2, None)
    record = await stage.ports.partitions.read(new)
    assert (record.owner, record.groups) == (BROKER, {"workers", "archive"})
    assert not record.layout.is_open
    assert record.layout.predecessors == layout.lineage[new]
    assert (await stage.ports.partitions.read_cursor(new, "workers")).gate == "0"
    assert stage.events == [("Started", 2, 3), ("Committed", 2, 3)]
    assert stage.broker.refreshes


async def test_nothing_is_committed_before_each_new_partition_has_a_broker(stage):
    await stage.make(2)
    await stage.look(2)
    stage.broker.refuses = {PartitionId(2, 3)}
    await stage.make(4)
    layout = await stage.look(6)
    assert (layout.generation, layout.next.table.partition_count) == (1, 4)
    assert stage.coordinator._rescaler._waits_for == ("new partitions without a broker: 2.3",)
    stage.broker.refuses = set()
    await stage.until(lambda layout: layout.generation == 2)


async def test_nothing_is_committed_while_a_broker_of_an_earlier_version_lives(stage, store, keys):
    await stage.make(2)
    await stage.look(2)
    lease = '{"incarnation": "j", "ttl_s": 3600.0, "url": "http://old"}'
    old = (2, "lease:old", lease, "counter:old", 1)
    await store.run("write_fields", [keys.brokers()], old)
    await stage.make(3)
    layout = await stage.look(6)
    assert layout.generation == 1
    assert (
        "an update of brokers of an earlier version: old" in stage.coordinator._rescaler._waits_for
    )
    await store.run("write_fields", [keys.brokers()], (0, "lease:old"))
    await stage.until(lambda layout: layout.generation == 2)


async def test_a_group_that_is_being_made_has_its_cursors_before_the_commit(stage):
    """It has one in the first partition only, when its maker pauses."""
    await stage.make(2, "workers")
    await stage.look(2)
    born = await stage.ports.configs.begin_group("late")
    await stage.ports.configs.write_group("late", {}, resource_generation=1, born=born)
    await stage.ports.partitions.add_group(PartitionId(1, 0), "late", start="Latest")
    await stage.want(3)
    layout = await stage.until(lambda layout: layout.generation == 2)
    records = await stage.ports.partitions.read_many(layout.all_partitions())
    assert records[PartitionId(2, 2)].groups == {"workers", "late"}
    assert records[PartitionId(1, 1)].groups == {"workers"}


async def test_a_group_made_during_a_change_has_cursors_in_what_is_being_prepared(stage):
    await stage.make(2, "workers")
    await stage.look(2)
    stage.broker.refuses = set(of(2, 2))
    await stage.make(3, "workers")
    await stage.look(2)
    await stage.make(3, "workers", "late")
    assert (await stage.ports.partitions.read(PartitionId(2, 2))).groups == {"workers", "late"}


async def test_the_count_of_before_aborts_a_change_and_leaves_nothing(stage):
    await stage.make(2, "workers")
    await stage.look(2)
    before = [name for name in await stage.names() if "#" in name]
    stage.broker.refuses = {PartitionId(2, 3)}
    await stage.make(4, "workers")
    await stage.look(3)
    assert PartitionId(2, 2) in stage.broker.epochs
    await stage.make(2, "workers")
    layout = await stage.until(lambda layout: layout.next is None)
    await stage.look(3)
    assert (layout.generation, layout.last_generation) == (1, 2)
    left = [name for name in await stage.names() if "#" in name]
    assert left == [*before, "#2.2}:removal", "#2.3}:removal"]
    assert await stage.ports.layouts.read_removed() == set()
    assert stage.events == [("Started", 2, 4), ("Aborted", 2, 4)]


async def test_another_count_aborts_a_change_and_begins_the_next(stage):
    await stage.make(2)
    await stage.look(2)
    stage.broker.refuses = set(of(2, 2, 3))
    await stage.make(4)
    await stage.look(3)
    await stage.make(3)
    layout = await stage.until(lambda layout: layout.next is None and layout.generation > 1)
    assert layout.current_partitions == (*of(1, 0, 1), *of(3, 2))


async def test_a_commit_and_an_abort_of_two_coordinators_exclude_each_other(stage):
    await stage.make(2)
    await stage.look(2)
    stage.broker.refuses = set(of(2, 2))
    await stage.make(3)
    prepared = await stage.look(2)
    await stage.ports.layouts.write(commit(prepared, 1))
    rescaler = stage.coordinator._rescaler
    assert (await rescaler.plan(prepared, 2)).generation == 2, "it goes on with what is stored"
    with pytest.raises(ConflictError):
        await stage.ports.layouts.write(commit(prepared, 2))
    assert await stage.ports.layouts.read_removed() == set()


async def test_a_change_settles_when_every_group_has_passed_and_nothing_is_stored(stage):
    await stage.make(2, "workers", "archive")
    await stage.look(2)
    await stage.publish(PartitionId(1, 0))
    await stage.make(3, "workers", "archive")
    await stage.until(lambda layout: layout.generation == 2)
    await stage.look()
    assert stage.events[-1][0] == "Committed"
    await stage.seal_and_open()
    layout = await stage.look(2)
    assert stage.events[-1][0] == "Opened"
    assert set(layout.lineage[PartitionId(2, 2)]) == {PartitionId(1, 0)}
    await stage.pass_by(PartitionId(1, 0), "workers")
    assert (await stage.look(2)).lineage == layout.lineage, "the archive has not read it"
    await stage.pass_by(PartitionId(1, 0), "archive")
    layout = await stage.look(2)
    assert (layout.lineage, layout.retired) == ({}, {})
    assert stage.events[-1] == ("Settled", 2, 3)


async def test_nothing_settles_while_the_cursor_of_a_group_that_is_being_made_cannot_be_read(
    stage, monkeypatch
):
    """Its node of a Redis Cluster is silent; the queue does not name it yet."""
    await stage.make(2, "workers")
    await stage.look(2)
    await stage.publish(PartitionId(1, 0))
    born = await stage.ports.configs.begin_group("late")
    await stage.ports.configs.write_group("late", {}, resource_generation=1, born=born)
    await stage.ports.partitions.add_group(PartitionId(1, 0), "late", start="Latest")
    await stage.want(3)
    await stage.until(lambda layout: layout.generation == 2)
    await stage.seal_and_open()
    read = stage.ports.seals.read_progress

    async def without_late(places):
        return {place: each for place, each in (await read(places)).items() if place[1] != "late"}

    monkeypatch.setattr(stage.ports.seals, "read_progress", without_late)
    await stage.pass_by(PartitionId(1, 0), "workers")
    assert PartitionId(1, 0) in (await stage.look(3)).lineage[PartitionId(2, 2)]
    monkeypatch.undo()
    await stage.until(lambda layout: not layout.lineage)


async def test_a_change_of_a_queue_without_groups_is_over_when_it_is_open(stage):
    """Nobody reads what was published before, and nothing is trimmed."""
    await stage.make(2)
    await stage.look(2)
    await stage.publish(PartitionId(1, 0))
    await committed(stage, 2, 3)
    await stage.seal_and_open()
    layout = await stage.look(3)
    assert list(layout.lineage[PartitionId(2, 2)]) == [PartitionId(1, 0)]
    assert stage.events[-2:] == [("Opened", 2, 3), ("Settled", 2, 3)]


@pytest.mark.req("SOL-U11")
async def test_a_partition_without_slots_is_removed_with_its_keys(stage, store, keys):
    await committed(stage, 3, 2, "workers")
    await stage.seal_and_open()
    old = PartitionId(1, 2)
    for partition in of(1, 0, 1, 2):
        await stage.pass_by(partition, "workers")
    await store.read("HSET", keys.producers(old), "p", "1")
    layout = await stage.until(lambda layout: not layout.lineage and not layout.retired)
    await stage.look(3)
    assert layout.all_partitions() == of(2, 0, 1)
    left = [name for name in await stage.names() if "#1." in name]
    removed = [f"#1.{index}}}:removal" for index in range(3)]
    assert left == sorted(["#1.2}:producers", *removed])
    assert 0 < int(await store.read("PTTL", keys.producers(old))) <= 86_400_000
    assert (await stage.ports.leases.read()).owners.keys() == set(of(2, 0, 1))
    assert await stage.ports.layouts.read_removed() == set()
    assert stage.events[-1] == ("Settled", 3, 2)


async def test_keys_of_a_removed_partition_stay_while_a_broker_may_serve_it(
    stage, store, keys, monkeypatch
):
    """It has not read the layout yet; then it is not known what it has."""

    async def not_read(url):
        pass

    async def silent(url):
        raise UnavailableError("no answer")

    await committed(stage, 3, 2, "workers")
    await stage.seal_and_open()
    for partition in of(1, 0, 1, 2):
        await stage.pass_by(partition, "workers")
    monkeypatch.setattr(stage.broker, "refresh", not_read)
    await stage.until(lambda layout: not layout.retired)
    await stage.look(2)
    meta = keys.meta(PartitionId(1, 2))
    assert await store.read("EXISTS", meta)
    monkeypatch.undo()
    await stage.broker.refresh("")
    monkeypatch.setattr(stage.broker, "state", silent)
    await stage.look(2)
    assert await store.read("EXISTS", meta)
    monkeypatch.undo()
    await stage.look(2)
    assert not await store.read("EXISTS", meta)


async def test_the_next_change_is_committed_when_the_last_one_has_opened(stage):
    await committed(stage, 2, 3, "workers")
    await stage.make(4, "workers")
    layout = await stage.look(4)
    assert (layout.generation, layout.last_generation) == (2, 3)
    assert "that are not open: 2.2" in stage.coordinator._rescaler._waits_for[0]
    await stage.seal_and_open()
    assert (await stage.look(2)).generation == 3


async def test_what_a_pin_or_the_audit_record_holds_stays(stage, store, keys):
    await committed(stage, 3, 2, "workers")
    await stage.seal_and_open()
    for partition in of(1, 0, 1, 2):
        await stage.pass_by(partition, "workers")
    now_ms = await stage.ports.layouts.now_ms()
    meta = keys.meta(PartitionId(1, 0))
    await store.read("HSET", meta, "pin:reader", f"0 0 {now_ms + 600_000}")
    state = f"1 {'0' * 40} 5 {BROKER}"
    await store.read("HSET", keys.meta(PartitionId(1, 1)), "audit", state)
    layout = await stage.look(4)
    assert sorted(layout.retired) == list(of(1, 0, 1))
    await store.read("HDEL", meta, "pin:reader")
    assert sorted((await stage.look(2)).retired) == list(of(1, 1))


async def test_keys_that_a_coordinator_has_left_the_next_one_erases(stage):
    await stage.make(2, "workers")
    await stage.look(2)
    stage.broker.refuses = set(of(2, 2, 3))
    await stage.make(4, "workers")
    layout = await stage.look(2)
    await stage.ports.layouts.write(abort(layout), removed=layout.next.lineage)
    await stage.make(2, "workers")
    await stage.replace_coordinator()
    await stage.broker.refresh("")
    await stage.look()
    left = [name for name in await stage.names() if "#2." in name]
    assert left == ["#2.2}:removal", "#2.3}:removal"]


async def test_a_fifth_change_waits_until_the_first_has_settled(stage):
    await stage.make(2, "workers")
    await stage.look(2)
    for partition in of(1, 0, 1):
        await stage.publish(partition)
    for count in range(3, 7):
        await stage.make(count, "workers")
        await stage.until(lambda layout, count=count: layout.partition_count == count)
        await stage.seal_and_open()
    await stage.make(7, "workers")
    layout = await stage.look(3)
    assert (layout.partition_count, layout.next) == (6, None)
    assert "are not settled" in stage.coordinator._rescaler._waits_for[0]


async def test_trouble_with_a_change_holds_up_nothing_else(stage, caplog):
    await stage.make(2, "workers")
    await stage.look(2)
    config = await stage.ports.configs.read_queue()
    spec = {**config.spec, "partitions": "three"}
    await stage.ports.configs.write_queue(spec, resource_generation=9)
    assert (await stage.look(2)).revision == 0
    assert "partitions: got 'three'" in caplog.text


async def test_what_is_stored_of_a_removed_partition_goes(stage, keys):
    await stage.make(3, "workers")
    await stage.look(2)
    await stage.publish(PartitionId(1, 2))
    await committed(stage, 3, 2, "workers")
    await stage.seal_and_open()
    await stage.look()
    assignments, handoffs = stage.ports.assignments, stage.ports.handoffs
    assert PartitionId(1, 2) in await assignments.read("workers")
    record = HandoffRecord(None, MemberId("m"), 1, "Draining", 0)
    await handoffs.record("workers", PartitionId(1, 2), record)
    move = PastMove(
        at_ms=1, source=None, target=MemberId("m"), attempt=1, trigger="member_joined",
        evidence="", forced=None, pause_ms=None,
    )  # fmt: skip
    await stage.ports.rebalances.write_moves("workers", {PartitionId(1, 2): [move]}, None)
    await stage.pass_by(PartitionId(1, 2), "workers")
    await stage.until(lambda layout: not layout.retired)
    await stage.look(2)
    assert (await assignments.read("workers")).keys() == set(of(2, 0, 1))
    assert await handoffs.read("workers") == {}
    assert (await stage.ports.rebalances.read_moves("workers")).past == {}


class Dying:
    """A port of the store whose process dies right after one of the calls that write."""

    WRITES = ("write", "create_successor", "add_group", "erase", "record_owner", "forget_removed")

    def __init__(self, port, calls, last):
        self._port, self._calls, self._last = port, calls, last

    def __getattr__(self, name):
        call = getattr(self._port, name)
        if name not in self.WRITES:
            return call

        async def called(*args, **kwargs):
            answer = await call(*args, **kwargs)
            self._calls.append(name)
            if len(self._calls) == self._last:
                raise CutShortError
            return answer

        return called


async def test_steps_whose_answers_are_lost_are_told_by_the_next_look(stage):
    class Lossy:
        def __init__(self, layouts):
            self._layouts = layouts

        def __getattr__(self, name):
            return getattr(self._layouts, name)

        async def write(self, *args, **options):
            await self._layouts.write(*args, **options)
            raise StoreUnavailableError("the answer was lost")

    await stage.make(2, "workers")
    await stage.look(2)
    stage.ports = replace(stage.ports, layouts=Lossy(stage.ports.layouts))
    await stage.replace_coordinator()
    await stage.want(3)
    await stage.until(lambda layout: layout.partition_count == 3)
    await stage.look(2)
    assert stage.events[:2] == [("Started", 2, 3), ("Committed", 2, 3)]
    stage.broker.refuses = {PartitionId(3, 3)}
    await stage.seal_and_open()
    await stage.want(4)
    await stage.until(lambda layout: layout.next is not None)
    await stage.want(3)
    await stage.until(lambda layout: layout.next is None)
    await stage.look(2)
    assert ("Aborted", 3, 4) in stage.events
    assert len(stage.events) == len(set(stage.events))


async def changed(store, keys, last):
    """Return what was written, and the keys at the end; the coordinator dies at write `last`."""
    stage, calls = RescaleStage(store, keys), []
    await stage.make(2, "workers")
    await stage.look(2)
    ports = {
        name: Dying(getattr(stage.ports, name), calls, last)
        for name in ("layouts", "seals", "partitions", "leases")
    }
    stage.ports = replace(stage.ports, **ports)
    await stage.replace_coordinator()

    async def until(is_so):
        for _ in range(20):
            try:
                layout = await stage.look()
            except CutShortError:
                await stage.replace_coordinator()
                await stage.broker.refresh("")  # as brokers do each second
                continue
            if is_so(layout):
                return
        raise AssertionError(layout)

    await stage.want(1)
    await until(lambda layout: layout.partition_count == 1)
    await stage.seal_and_open()
    await until(lambda layout: not layout.lineage and not layout.retired)
    for _ in range(2):
        await until(lambda layout: True)
    await stage.coordinator.close()
    names = [name for name in await stage.names() if "#" in name]
    return calls, [name for name in names if not name.endswith(":removal")]


async def test_another_coordinator_goes_on_after_each_write_of_one_that_dies(store, key_prefix):
    def keys(name):
        return Keys(f"{key_prefix}{name}", "ns", "orders", UID)

    calls, expected = await changed(store, keys("whole"), 0)
    assert set(calls) == set(Dying.WRITES)
    assert expected == ["#2.0}:cursor:workers", "#2.0}:meta"]
    for last in range(1, len(calls) + 1):
        _, left = await changed(store, keys(last), last)
        assert left == expected, f"it died after write {last}, {calls[last - 1]}"


async def test_people_are_not_shown_what_is_being_prepared(stage):
    views = []
    stage.coordinator._on_view = views.append
    await stage.make(2, "workers")
    await stage.look(2)
    stage.broker.refuses = set(of(2, 3))
    await stage.make(4, "workers")
    await stage.look(3)
    view = views[-1]
    assert view.layout.next is not None
    assert set(view.partitions) == view.owners.keys() == set(of(1, 0, 1))
    group = view.groups["workers"]
    assert (group.partitions.keys(), group.unseen_count) == (set(of(1, 0, 1)), 0)


async def test_a_change_settles_while_what_people_read_of_it_cannot_be_read(stage, monkeypatch):
    async def fail(*_):
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(Rescaler, "_is_open", fail)
    await committed(stage, 2, 3, "workers")
    await stage.seal_and_open()
    for partition in of(1, 0, 1):
        await stage.pass_by(partition, "workers")
    await stage.until(lambda layout: not layout.lineage)
    assert [kind for kind, *_ in stage.events] == ["Started", "Committed"]
