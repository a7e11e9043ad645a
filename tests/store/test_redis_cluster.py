"""A Redis Cluster whose nodes die, fall behind and hand slots over."""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest

from partq.core.model import BrokerEpoch, BrokerId, Offset, PartitionId
from partq.errors import AppendGapError, FencedError, SettingsError, StoreUnavailableError
from partq.store.cluster_slots import slot_of
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.configs import Configs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.log import AppendBatch, Log
from partq.store.records.partitions import Partitions
from partq.store.schedule.entry_moves import EntryMoves
from partq.store.schedule.scheduled_entries import ScheduledEntries
from partq.testing import eventually
from partq.testing.redis_cluster import RedisCluster, command
from tests.store.answering import until_answered
from tests.store.record import BORN, write

P = PartitionId(1, 0)
GROUP = "workers"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three masters, each with a replica; each test does harm to another one."""
    with RedisCluster() as cluster:
        cluster.start(tmp_path_factory.mktemp("cluster"))
        yield cluster


@pytest.fixture
async def store(cluster, key_prefix):
    store = await Store.open(cluster.url, prefix=key_prefix, timeout_s=60.0)
    yield store
    await store.close()


def master_of(key):
    """Return the number of the master that a key lies on at the start."""
    return slot_of(key) * 3 // 16_384


@dataclass
class Owned:
    """A partition as its broker has it: what it knows, and the number of its next append."""

    store: Store
    keys: Keys
    epoch: BrokerEpoch | None = None
    number: int = 0
    end: int = 0

    @classmethod
    async def make(cls, store, master):
        """Make a partition that is stored on the master number `master` of those at the start."""
        names = (f"q-{number}" for number in count())
        keys = next(
            keys
            for keys in (Keys(store.prefix, "ns", name, "0f3a9c1e") for name in names)
            if master_of(keys.meta(P)) == master
        )
        owned = cls(store, keys)
        await owned.partitions.create(P)
        await owned.partitions.add_group(P, GROUP, start="Earliest")
        await store.run("write_fields", [keys.cursor(P, GROUP)], [1, "born", BORN])
        await owned.claim()
        return owned

    @property
    def partitions(self):
        return Partitions(self.store, self.keys)

    async def claim(self):
        expected = (await self.partitions.read(P)).broker_epoch
        claim = await self.partitions.claim(P, BrokerId("b-0"), "i-0", expected=expected)
        self.epoch, self.number, self.end = claim.broker_epoch, 0, claim.next

    async def send(self, store=None):
        """Append ten messages as the next call, and return what comes of it."""
        batch = AppendBatch("p", self.end, 10, b"x" * 10)
        return await Log(store or self.store, self.keys).append(
            P,
            broker_epoch=self.epoch,
            number=self.number,
            expected=Offset(self.end),
            batches=[batch],
            room_bytes=None,
        )

    async def append(self):
        appended = await self.send()
        self.number, self.end = self.number + 1, appended.next
        return appended

    async def flush(self, cursor):
        await self.partitions.flush(
            P,
            GROUP,
            **write(),
            broker_epoch=self.epoch,
            cursor=cursor,
            acked=[],
            redeliveries={},
        )


async def test_any_node_leads_to_all_and_dead_ones_are_passed_over(cluster, store):
    masters = {f"127.0.0.1:{master.port}" for master in cluster.masters}
    assert {node.name for node in store.nodes()} == masters
    for url in (
        f"redis://127.0.0.1:{cluster.replicas[0].port}",
        f"redis://127.0.0.1:9,127.0.0.1:{cluster.masters[2].port}/0",
    ):
        other = await Store.open(url, timeout_s=60.0)
        assert {node.name for node in other.nodes()} == masters
        await other.close()


async def test_nodes_that_are_slow_are_waited_for_as_long_as_none_has_answered(
    cluster, key_prefix, monkeypatch
):
    monkeypatch.setattr("partq.store.redis_cluster.LOOK_TIMEOUT_S", 0.0)
    store = await Store.open(cluster.url, prefix=key_prefix, timeout_s=60.0)
    assert len(store.nodes()) == len(cluster.masters)
    await store.close()


async def test_a_database_of_a_cluster_is_refused(cluster):
    with pytest.raises(SettingsError, match="database 0"):
        await Store.open(f"redis://127.0.0.1:{cluster.masters[0].port}/3")


async def test_one_node_that_would_evict_messages_is_enough_to_be_refused(cluster, store):
    port = cluster.masters[2].port
    command(port, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(SettingsError, match="allkeys-lru"):
            await Store.open(cluster.url, timeout_s=60.0)
        command(port, "CONFIG", "SET", "maxmemory", "1")
        assert (await store.info()).is_nearly_full
    finally:
        command(port, "CONFIG", "SET", "maxmemory", "0")
        command(port, "CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_an_append_counts_once_a_replica_has_it(cluster, store):
    owned, replica = await Owned.make(store, 0), cluster.replicas[0]
    await owned.append()
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailableError, match="no replica") as caught:
            await owned.send()
        assert not caught.value.is_outcome_known
        await owned.flush(5)  # an ack that is lost costs a repeat, and nothing else
        # Whoever repeats it finds it stored; by the connection of another process, too, it counts
        # only once a replica has it.
        other = await Store.open(cluster.url, prefix=store.prefix, timeout_s=60.0)
        for again in (store, other):
            with pytest.raises(StoreUnavailableError, match="no replica"):
                await owned.send(again)
        await other.close()
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    appended = await until_answered(owned.append)
    assert (appended.next, appended.results[0].offset) == (20, 10)


async def test_a_group_is_made_or_removed_once_a_replica_has_it(cluster, store):
    """Whoever was told so looks no more: of what a failover forgets nobody would ever hear."""
    owned = await Owned.make(store, 0)
    layouts, configs = Layouts(store, owned.keys), Configs(store, owned.keys)
    moves, scheduled = EntryMoves(store, owned.keys), ScheduledEntries(store, owned.keys)
    other = PartitionId(1, 1)
    calls = (
        lambda: layouts.create_queue({1: 2}),
        lambda: configs.write_queue({"groups": [GROUP]}, resource_generation=1),
        lambda: configs.write_group(GROUP, {}, resource_generation=1),
        lambda: configs.erase_group("another", born=0),
        lambda: owned.partitions.create(other),
        lambda: owned.partitions.add_group(P, "new", start="Earliest"),
        lambda: owned.partitions.remove_group(P, GROUP, born=BORN),
        # What is adopted is removed elsewhere, and what is cancelled is never delivered.
        lambda: moves.adopt(P, other, [(b"1.0/1", b"9 1 0 x")], broker_epoch=owned.epoch),
        lambda: scheduled.cancel(P, [1], broker_epoch=owned.epoch),
    )
    await store.info()
    for replica in cluster.replicas:
        os.kill(replica.pid, signal.SIGSTOP)
    try:
        outcomes = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
    finally:
        for replica in cluster.replicas:
            os.kill(replica.pid, signal.SIGCONT)
    assert ["no replica has it" in str(outcome) for outcome in outcomes] == [True] * len(calls)
    for call in calls:
        await until_answered(call)


async def test_what_a_dead_master_took_with_it_is_lost_and_nothing_else(cluster, store):
    owned, neighbour = await Owned.make(store, 1), await Owned.make(store, 0)
    lost = []
    store.on_restart.append(
        lambda is_lost: lost.append([is_lost(each.keys.log(P)) for each in (owned, neighbour)])
    )
    everywhere = [PartitionId(1, index) for index in range(12)]
    for partition in everywhere[1:]:
        await owned.partitions.create(partition)
    await owned.append()
    await neighbour.append()
    cluster.replicas[1].kill()

    async def is_noticed():
        await store.info()
        return not min(node.replica_count for node in store.nodes())

    await eventually(is_noticed, "one master has no replica")
    await owned.append()  # without a replica this counts, and only the master has it
    await owned.flush(15)
    cluster.masters[1].kill()
    with pytest.raises(StoreUnavailableError):
        await owned.partitions.read_many(everywhere)
    reached = await owned.partitions.read_many(everywhere, only_reachable=True)
    silent = {p for p in everywhere if master_of(owned.keys.meta(p)) == 1}
    assert set(reached) == set(everywhere) - silent
    held = dict.fromkeys(everywhere, 0) | {P: owned.epoch}
    assert await owned.partitions.affirm(held) == silent
    with pytest.raises(StoreUnavailableError):
        await owned.partitions.read_many([P], only_reachable=True)
    cluster.start_node(cluster.replicas[1])
    cluster.await_takeover(1, by_force=True)

    with suppress(StoreUnavailableError):  # by now, or with the next call, the failover is known
        await owned.send()
    record = await until_answered(lambda: owned.partitions.read(P))
    assert lost == [[True, False]]
    assert record.next == 10
    assert (await owned.partitions.read_cursor(P, GROUP)).cursor == 0
    with pytest.raises(AppendGapError):
        await owned.send()
    with pytest.raises(FencedError):
        await owned.flush(15)
    epoch = owned.epoch
    await owned.claim()
    assert (owned.epoch > epoch, owned.end) == (True, 10)
    assert (await owned.append()).next == 20
    assert (await neighbour.append()).next == 20


async def test_a_slot_goes_to_another_node_and_nothing_is_stored_twice(cluster, store):
    owned = await Owned.make(store, 2)
    lost = []
    store.on_restart.append(lambda is_lost: lost.append(is_lost(owned.keys.meta(P))))
    await owned.append()
    slot = str(slot_of(owned.keys.meta(P)))
    source, target = cluster.masters[2].port, cluster.masters[0].port
    ids = [command(port, "CLUSTER", "MYID") for port in (source, target)]
    command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    command(source, "MIGRATE", "127.0.0.1", str(target), owned.keys.meta(P), "0", "5000")
    with pytest.raises(StoreUnavailableError) as caught:
        await owned.send()  # half of the keys are here, half there
    assert caught.value.is_outcome_known
    rest = [owned.keys.log(P), owned.keys.producers(P), owned.keys.cursor(P, GROUP)]
    command(source, "MIGRATE", "127.0.0.1", str(target), "", "0", "5000", "KEYS", *rest)
    with pytest.raises(StoreUnavailableError) as caught:
        await owned.send()  # all of them are there, and the slot is not yet
    assert (caught.value.is_outcome_known, lost) == (True, [])
    for port in (target, source):
        command(port, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])

    with pytest.raises(StoreUnavailableError) as caught:
        await owned.send()
    assert caught.value.is_outcome_known
    await until_answered(owned.claim)
    assert (lost, owned.end) == ([True], 10)
    assert (await owned.append()).next == 20


async def test_a_frozen_master_is_left_as_soon_as_its_replica_serves(cluster, store):
    """It says nothing, and its connection stays: only the other nodes can tell."""
    owned = await Owned.make(store, 0)
    await owned.append()
    frozen = cluster.masters[0].pid
    os.kill(frozen, signal.SIGSTOP)
    try:
        waiting = asyncio.create_task(owned.send())
        await asyncio.to_thread(cluster.await_takeover, 0, by_force=True)

        async def is_answered():
            await store.refresh_slots()
            return waiting.done()

        await eventually(is_answered, "the call is given up")
        with pytest.raises(StoreUnavailableError) as caught:
            await waiting
        assert not caught.value.is_outcome_known
        await until_answered(owned.claim)
        assert owned.end == 10
        assert (await owned.append()).next == 20
    finally:
        os.kill(frozen, signal.SIGCONT)
