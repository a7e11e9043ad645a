"""Brokers in memory, with the checks of the protocol that real ones make."""

import asyncio
from dataclasses import dataclass, field

from partq.coordinator.ports import (
    Answer,
    BrokerReport,
    FlowReport,
    GroupReport,
    PartitionReport,
    PartReport,
)
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId
from partq.errors import UnavailableError

GROUP = "workers"


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
    parts: list = field(default_factory=list)
    """In a KeyShared group: the member of each part, and the last attempt of it that is over."""


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
        return BrokerReport(
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
                            parts=[
                                PartReport(member, closed, (member, url) in self.flows)
                                for member, closed in record.parts
                            ],
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

    async def commit_parts(self, url, group, commits):
        numbers = [(str(part), call.attempt.number) for part, call in commits.items()]
        self.journal += [("commit_parts", *each) for each in numbers]
        await self._reach(url, "commit_parts")
        answers, passed = [], set()
        for part, call in commits.items():
            record, attempt = self.records[part.partition], call.attempt
            member, closed = record.parts[part.part]
            if (member, closed) != (attempt.target, attempt.number):
                if (
                    record.broker_epoch != attempt.broker_epoch
                    or record.epoch < attempt.epoch
                    or closed >= attempt.number
                    or member != attempt.source
                ):
                    answers.append(Answer(partition=part, code="attempt_refused", message="no"))
                    continue
                record.parts[part.part] = (attempt.target, attempt.number)
                passed.add(part.partition)
                self.journal.append(("committed", str(part), call.forced))
        for partition in passed:
            self.records[partition].epoch += 10
        refused = {answer.partition for answer in answers}
        answers += [
            Answer(partition=part, epoch=Epoch(self.records[part.partition].epoch))
            for part in commits
            if part not in refused
        ]
        if "commit_parts" in self.deaf:
            raise UnavailableError("commit_parts: the answer is lost")
        return answers

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
