"""A store and brokers in memory, with the checks of the protocol, and a clock that can be moved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from partq.coordinator.coordinator import Coordinator
from partq.coordinator.loopback import LoopbackRuntime
from partq.coordinator.ports import (
    Answer,
    BrokerState,
    FlowReport,
    GroupReport,
    PartitionReport,
    StorePorts,
)
from partq.core.layout import Layout
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.records import Journal
from partq.errors import UnavailableError, UnknownQueueError
from tests.coordinator.timing import Clock, eventually

GROUP = "workers"
MEMBER_WRITES = ("list_member", "unlist", "mark_lost", "clear_lost", "pair", "unpair")


@dataclass
class Record:
    """One partition at its broker, for one group."""

    broker: str
    broker_epoch: int = 7
    held_s: float = 60.0
    member: str | None = None
    epoch: int = 1
    closed: int = 0
    pause: int | None = None
    committed: tuple | None = None
    in_flight: int = 0


@dataclass
class FakeBrokers:
    """Brokers that answer at once, not at all, or without being heard."""

    journal: list
    records: dict = field(default_factory=dict)
    flows: dict = field(default_factory=dict)
    """(member, broker) → [age_s, is_leaving]"""
    losses: dict = field(default_factory=dict)
    silent: set = field(default_factory=set)
    """Brokers that do not answer."""
    deaf: set = field(default_factory=set)
    """Kinds of calls that are carried out and whose answer is lost."""

    def bind(self, member, *, age_s=60.0, brokers=("b-0", "b-1"), leaving=False):
        for broker in brokers:
            self.flows[member, broker] = [age_s, leaving]
            self.losses.pop((member, broker), None)
            for record in self.records.values():
                if (record.member, record.broker) == (member, broker):
                    record.epoch += 1

    def leave(self, member):
        for (name, _), flow in self.flows.items():
            if name == member:
                flow[1] = True

    def lose(self, member, *, age_s=0.0):
        for key in [key for key in self.flows if key[0] == member]:
            del self.flows[key]
            self.losses[key] = age_s

    def owners(self):
        return {p.index: record.member for p, record in sorted(self.records.items())}

    async def state(self, url):
        await self._reach(url, "state")
        return BrokerState(
            broker=BrokerId(url),
            incarnation="i",
            partitions={
                partition: PartitionReport(
                    broker_epoch=BrokerEpoch(record.broker_epoch),
                    held_ms=round(record.held_s * 1000),
                    groups={
                        GROUP: GroupReport(
                            member=record.member,
                            epoch=Epoch(record.epoch),
                            closed_attempt=record.closed,
                            is_bound=(record.member, url) in self.flows,
                            pause_attempt=record.pause,
                        )
                    },
                )
                for partition, record in self.records.items()
                if record.broker == url
            },
            flows=[
                self._flow(member, age_s, leaving)
                for (member, broker), (age_s, leaving) in self.flows.items()
                if broker == url
            ],
            lost_flows=[
                self._flow(member, age_s, False)
                for (member, broker), age_s in self.losses.items()
                if broker == url
            ],
        )

    def _flow(self, member, age_s, leaving):
        return FlowReport(
            group=GROUP,
            member=MemberId(member),
            incarnation="i",
            address="127.0.0.1",
            age_ms=round(age_s * 1000),
            is_leaving=leaving,
        )

    async def _reach(self, url, kind):
        if url in self.silent:
            raise UnavailableError(f"{kind}: {url} is silent")
        await asyncio.sleep(0)

    async def _each(self, kind, url, calls, work):
        self.journal += [(kind, p.index, call.attempt.number) for p, call in calls.items()]
        await self._reach(url, kind)
        answers = [self._one(partition, call, work) for partition, call in calls.items()]
        if kind in self.deaf:
            raise UnavailableError(f"{kind}: the answer is lost")
        return answers

    def _one(self, partition, call, work):
        record, attempt = self.records[partition], call.attempt
        if record.committed == (attempt.number, attempt.target):
            return Answer(partition=partition, epoch=Epoch(record.epoch))
        fits = (record.broker_epoch, record.epoch) == (attempt.broker_epoch, attempt.epoch)
        if not fits or record.closed >= attempt.number or record.member != attempt.source:
            return Answer(partition=partition, code="attempt_refused", message="does not fit")
        return work(partition, record, call)

    async def pause(self, url, group, pauses, *, lease_ms):
        def work(partition, record, call):
            record.pause = call.attempt.number
            return Answer(partition=partition, is_drained=not record.in_flight)

        return await self._each("pause", url, pauses, work)

    async def drain(self, url, group, drains, *, wait_ms):
        await asyncio.sleep(0.01)

        def work(partition, record, call):
            if record.pause != call.attempt.number:
                return Answer(partition=partition, code="attempt_refused", message="lapsed")
            return Answer(partition=partition, is_drained=not record.in_flight)

        return await self._each("drain", url, drains, work)

    async def commit(self, url, group, commits):
        def work(partition, record, call):
            is_bound = (record.member, record.broker) in self.flows
            if is_bound and record.pause != call.attempt.number:
                return Answer(partition=partition, code="attempt_refused", message="no pause")
            record.member, record.epoch = call.attempt.target, record.epoch + 10
            record.closed, record.pause = call.attempt.number, None
            record.committed = (call.attempt.number, call.attempt.target)
            self.journal.append(("committed", partition.index, call.forced))
            return Answer(partition=partition, epoch=Epoch(record.epoch))

        return await self._each("commit", url, commits, work)

    async def cancel(self, url, group, cancels):
        def work(partition, record, call):
            record.closed, record.pause = call.attempt.number, None
            return Answer(partition=partition)

        return await self._each("cancel", url, cancels, work)

    async def claim(self, url, partitions):
        await self._reach(url, "claim")
        self.journal += [("claim", partition.index, url) for partition in partitions]
        for partition in partitions:
            self.records[partition] = Record(url, held_s=0.0)
        return [Answer(partition=partition) for partition in partitions]

    async def yield_(self, url, partitions):
        await self._reach(url, "yield")
        self.journal += [("yield", partition.index, url) for partition in partitions]
        for partition in partitions:
            del self.records[partition]
        return [Answer(partition=partition) for partition in partitions]


class FakeStore:
    """Every port of the store in one object each, over plain dicts."""

    def __init__(self, journal, clock):
        self.journal, self.clock = journal, clock
        self.layout = SimpleNamespace(layout=Layout.first(4), tombstone=False)
        self.queue = SimpleNamespace(spec={"brokers": {"replicas": 2}}, groups=(GROUP,))
        self.groups = {GROUP: SimpleNamespace(spec={}, groups=())}
        self.cursors = {}
        self.leases, self.owners = {}, {}
        self.members, self.assignment, self.handoffs = {}, {}, {}
        self.heirs, self.fail_pairs = {}, None
        self.rebalances = []
        self.past, self.waiting = {}, {}
        self.events = asyncio.Queue()
        self.attempt = 0
        self.looks = 0

    def ports(self):
        def port(*names):
            return SimpleNamespace(**{name: getattr(self, f"_{name}") for name in names})

        return StorePorts(
            layouts=SimpleNamespace(
                read=self._read_layout,
                read_config=self._read_config,
                read_group_config=self._read_group_config,
            ),
            partitions=port("create", "read_many", "add_group", "remove_group"),
            leases=SimpleNamespace(read=self._read_leases),
            members=SimpleNamespace(
                **vars(port(*MEMBER_WRITES)),
                read=self._read_members,
            ),
            assignments=SimpleNamespace(read=self._read_assignment, write=self._write_assignment),
            handoffs=SimpleNamespace(
                read=self._read_handoffs, **vars(port("draw_attempt", "record", "remove"))
            ),
            rebalances=SimpleNamespace(
                read=self._read_rebalances,
                write=self._write_rebalances,
                **vars(port("read_journal", "write_journal")),
            ),
            events=port("wait"),
        )

    async def _read_layout(self):
        self.looks += 1
        if self.layout is None:
            raise UnknownQueueError("no such queue")
        return self.layout

    async def _read_config(self):
        return self.queue

    async def _read_group_config(self, group):
        return self.groups.get(group)

    async def _create(self, partition):
        self.cursors.setdefault(partition, set())

    async def _read_many(self, partitions):
        return {p: SimpleNamespace(groups=frozenset(self.cursors[p])) for p in partitions}

    async def _add_group(self, partition, group, *, start):
        self.cursors[partition].add(group)

    async def _remove_group(self, partition, group):
        self.cursors[partition].discard(group)

    async def _read_leases(self):
        for lease in self.leases.values():
            lease.counter += 1
        return SimpleNamespace(leases=dict(self.leases), owners=dict(self.owners))

    async def _read_members(self, group):
        now_ms = round(self.clock() * 1000)
        return SimpleNamespace(members=dict(self.members), heirs=dict(self.heirs), now_ms=now_ms)

    async def _list_member(self, group, member, address):
        lost_at_ms = self.members[member].lost_at_ms if member in self.members else None
        self.members[member] = SimpleNamespace(address=address, lost_at_ms=lost_at_ms)

    async def _unlist(self, group, member):
        self.members.pop(member, None)

    async def _mark_lost(self, group, member):
        if member in self.members and self.members[member].lost_at_ms is None:
            self.members[member].lost_at_ms = round(self.clock() * 1000)
        return round(self.clock() * 1000)

    async def _clear_lost(self, group, member):
        self.members[member].lost_at_ms = None

    async def _pair(self, group, member, heir):
        if self.fail_pairs:
            raise self.fail_pairs
        self.heirs[member] = heir
        self.journal.append(("pair", member, heir))

    async def _unpair(self, group, member):
        self.heirs.pop(member, None)

    async def _read_assignment(self, group):
        return dict(self.assignment)

    async def _write_assignment(self, group, mapping):
        self.assignment.update(mapping)
        self.journal += [("assigned", p.index, a.member) for p, a in mapping.items()]

    async def _read_handoffs(self, group):
        return dict(self.handoffs)

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

    async def _read_journal(self, group):
        return Journal(past=dict(self.past), waiting=dict(self.waiting))

    async def _write_journal(self, group, past, waiting):
        self.past |= past
        self.waiting = self.waiting if waiting is None else dict(waiting)

    async def _wait(self, last_id, timeout_s):
        return "1", [await self.events.get()]


class KnowingRuntime(LoopbackRuntime):
    """Knows of the members what a test says."""

    def __init__(self):
        self.known, self.left_ms = {}, {}

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
        self.runtime = KnowingRuntime()
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
            runtime=self.runtime,
            resync_s=resync_s,
            clock=self.clock,
        )


@pytest.fixture
def system() -> System:
    return System()


@pytest.fixture
def until():
    return eventually
