"""A store in memory, and a coordinator over it and over brokers in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from partq.coordinator.coordinator import Coordinator
from partq.coordinator.local_processes import LocalProcesses
from partq.coordinator.ports import (
    StorePorts,
)
from partq.coordinator.provision import provision
from partq.core.group.records import MemberSnapshot, RecordedMoves
from partq.core.layout import Layout
from partq.core.model import BrokerId, PartitionId
from partq.embedded.store_ports import queue_records
from partq.errors import StoreUnavailableError, UnknownQueueError
from partq.store.keys import Keys
from partq.store.records.configs import Configs
from partq.store.records.partitions import Partitions
from partq.store.records.stored_partition import PartitionLayout
from tests.coordinator.fake_brokers import GROUP, FakeBrokers, Record
from tests.coordinator.timing import Clock

MEMBER_WRITES = (
    "list_member",
    "unlist",
    "mark_lost",
    "clear_lost",
    "pair",
    "unpair",
    "write_refusals",
)


class FakeStore:
    """Every port of the store in one object each, over plain dicts."""

    def __init__(self, journal, clock):
        self.journal, self.clock = journal, clock
        self.ahead_s = 0.0
        """How far the store's clock is ahead of the coordinator's."""
        self.layout = SimpleNamespace(layout=Layout.first(4), tombstone=False)
        self.queue = SimpleNamespace(
            spec={"brokers": {"replicas": 2}}, groups=(GROUP,), resource_generation=1
        )
        self.silent = set()
        """Groups whose node of a Redis Cluster does not answer."""
        self.groups = {GROUP: SimpleNamespace(spec={}, groups=(), born=1)}
        self.cursors = {}
        self.leases, self.owners = {}, {}
        self.members, self.assignment, self.handoffs = {}, {}, {}
        self.replacements, self.fail_pairs = {}, None
        self.refused = {}
        self.rebalances = []
        self.past, self.waiting = {}, {}
        self.events = asyncio.Queue()
        self.attempt = 0
        self.looks = 0

    def ports(self):
        def port(*names):
            return SimpleNamespace(**{name: getattr(self, f"_{name}") for name in names})

        return StorePorts(
            layouts=SimpleNamespace(read=self._read_layout),
            seals=None,
            configs=SimpleNamespace(
                read_queue=self._read_queue,
                read_group=self._read_group,
                read_reachable_groups=self._read_reachable_groups,
            ),
            partitions=port(
                "create", "fence_groups", "read_many", "add_group", "births", "remove_group"
            ),
            leases=SimpleNamespace(read=self._read_leases),
            members=SimpleNamespace(
                **vars(port(*MEMBER_WRITES)),
                read=self._read_members,
            ),
            assignments=SimpleNamespace(
                read=self._read_assignment,
                write=self._write_assignment,
                remove=self._remove_assignment,
            ),
            handoffs=SimpleNamespace(
                read=self._read_handoffs, **vars(port("draw_attempt", "record", "remove"))
            ),
            rebalances=SimpleNamespace(
                read=self._read_rebalances,
                write=self._write_rebalances,
                **vars(port("read_moves", "write_moves", "remove_moves")),
            ),
            terms=SimpleNamespace(begin=self._begin_term),
            events=port("wait"),
        )

    def now_ms(self):
        return round((self.clock() + self.ahead_s) * 1000)

    async def _read_layout(self):
        self.looks += 1
        if self.layout is None:
            raise UnknownQueueError("no such queue")
        return self.layout

    async def _read_queue(self):
        return self.queue

    async def _read_group(self, group):
        if group in self.silent:
            raise StoreUnavailableError("no answer")
        return self.groups.get(group)

    async def _read_reachable_groups(self, groups):
        return {group: self.groups.get(group) for group in groups if group not in self.silent}

    async def _create(self, partition):
        self.cursors.setdefault(partition, set())

    async def _fence_groups(self, partition):
        pass

    async def _read_many(self, partitions):
        return {
            p: SimpleNamespace(
                groups=frozenset(self.cursors[p]), groups_fence=0, layout=PartitionLayout()
            )
            for p in partitions
        }

    async def _add_group(self, partition, group, *, start, fence):
        self.cursors[partition].add(group)

    async def _births(self, wanted):
        return dict.fromkeys(wanted, 1)

    async def _remove_group(self, partition, group, *, born):
        self.cursors[partition].discard(group)

    async def _read_leases(self):
        for lease in self.leases.values():
            lease.counter += 1
        return SimpleNamespace(leases=dict(self.leases), owners=dict(self.owners))

    async def _read_members(self, group):
        return MemberSnapshot(
            dict(self.members), dict(self.replacements), dict(self.refused), self.now_ms()
        )

    async def _list_member(self, group, member, address):
        lost_at_ms = self.members[member].lost_at_ms if member in self.members else None
        self.members[member] = SimpleNamespace(address=address, lost_at_ms=lost_at_ms)

    async def _unlist(self, group, member):
        self.members.pop(member, None)

    async def _mark_lost(self, group, member):
        if member in self.members and self.members[member].lost_at_ms is None:
            self.members[member].lost_at_ms = self.now_ms()
        return self.now_ms()

    async def _clear_lost(self, group, member):
        self.members[member].lost_at_ms = None

    async def _pair(self, group, member, replacement):
        if self.fail_pairs:
            raise self.fail_pairs
        self.replacements[member] = replacement
        self.journal.append(("pair", member, replacement))

    async def _write_refusals(self, group, refused, over):
        self.refused |= refused
        for member in over:
            self.refused.pop(member, None)

    async def _unpair(self, group, member):
        self.replacements.pop(member, None)

    async def _read_assignment(self, group):
        return dict(self.assignment)

    async def _write_assignment(self, group, mapping):
        self.assignment.update(mapping)
        self.journal += [("assigned", p.index, a.member) for p, a in mapping.items()]

    async def _remove_assignment(self, group, partitions):
        for partition in partitions:
            del self.assignment[partition]

    async def _remove_moves(self, group, partitions):
        for partition in partitions:
            self.past.pop(partition, None)

    async def _read_handoffs(self, group):
        return dict(self.handoffs)

    async def _begin_term(self, group):
        self.journal.append(("term", group, 0))

    async def _draw_attempt(self, group):
        self.attempt += 1
        return self.attempt

    async def _record(self, group, partition, record):
        self.handoffs[partition] = record
        self.journal.append(("record", partition.index, record.attempt))

    async def _remove(self, group, partition):
        if record := self.handoffs.pop(partition, None):
            self.journal.append(("remove", partition.index, record.attempt))

    async def _read_rebalances(self, group):
        return list(self.rebalances)

    async def _write_rebalances(self, group, rebalances):
        self.rebalances = list(rebalances)

    async def _read_moves(self, group):
        return RecordedMoves(past=dict(self.past), waiting=dict(self.waiting))

    async def _write_moves(self, group, past, waiting):
        self.past |= past
        self.waiting = self.waiting if waiting is None else dict(waiting)

    async def _wait(self, last_id, timeout_s):
        return "1", [await self.events.get()]


class KnownProcesses(LocalProcesses):
    """Knows of the members what a test says."""

    def __init__(self):
        self.known, self.left_ms = {}, {}

    def priorities(self, group, members):
        return {}

    def time_left_ms(self, group, member):
        return self.left_ms.get(member)

    def facts(self, group, members, leaving):
        return {member: self.known[member] for member in members if member in self.known}


class System:
    """A coordinator over a store and two brokers that own two of four partitions each."""

    def __init__(self):
        self.clock = Clock()
        self.journal = []
        self.store = FakeStore(self.journal, self.clock)
        self.member_processes = KnownProcesses()
        self.brokers = FakeBrokers(self.journal)
        for broker in ("b-0", "b-1"):
            self.store.leases[BrokerId(broker)] = SimpleNamespace(
                incarnation="i", counter=0, ttl_s=3.0, url=broker
            )
        for index in range(4):
            partition = PartitionId(1, index)
            self.brokers.records[partition] = Record(f"b-{index % 2}")
            self.store.owners[partition] = BrokerId(f"b-{index % 2}")

    def own(self, *members):
        """Put members on record, one per partition."""
        for record, member in zip(self.brokers.records.values(), members, strict=True):
            record.member = member

    def begin(self, owners, *, bound, leaving="", in_flight=0):
        """Give each partition its member, with so much in flight, and bind members; some leave."""
        self.own(*owners)
        for record in self.brokers.records.values():
            record.in_flight = in_flight
        for member in bound:
            self.brokers.bind(member, leaving=member in leaving)

    def said(self, kind):
        """Return what was done of one kind, without the rest of the journal."""
        return [tuple(rest) for name, *rest in self.journal if name == kind]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Coordinator]:
        """Run a coordinator that looks every few milliseconds."""
        coordinator = self.coordinator()
        task = asyncio.create_task(coordinator.run())
        try:
            yield coordinator
        finally:
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(results[0], asyncio.CancelledError), results

    def coordinator(self, *, resync_s=0.01):
        return Coordinator(
            namespace="ns",
            queue="orders",
            store=self.store.ports(),
            brokers=self.brokers,
            member_processes=self.member_processes,
            resync_s=resync_s,
            clock=self.clock,
        )


@pytest.fixture
def system() -> System:
    return System()


# ---- records in a real Redis ---------------------------------------------------------------------


@pytest.fixture
def keys(key_prefix):
    return Keys(key_prefix, "ns", "orders", "0f3a9c1e")


@pytest.fixture
def configs(store, keys):
    return Configs(store, keys)


@pytest.fixture
def partitions(store, keys):
    return Partitions(store, keys)


@pytest.fixture
def records(store, keys):
    return queue_records(store, keys)


@pytest.fixture
def make(records, configs, partitions):
    """Bring the queue's records in line with these groups."""

    async def make(*groups, cursors=partitions, repairs=False, configs=configs, spec=None, **uids):
        uids = {group: {"uid": uid} for group, uid in uids.items()}
        await provision(
            replace(records, configs=configs, partitions=cursors),
            name="ns/orders",
            uid="0f3a9c1e",
            partition_count=4,
            spec=spec or {},
            groups={group: {"start": "Earliest", **uids.get(group, {})} for group in groups},
            keeps_others=False,
            repairs=repairs,
        )

    return make
