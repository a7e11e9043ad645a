"""A coordinator over a real Redis, and one broker that the test plays: it owns all partitions."""

from partq.coordinator.coordinator import Coordinator
from partq.coordinator.local_processes import LocalProcesses
from partq.coordinator.ports import Answer, BrokerReport, GroupReport, PartitionReport
from partq.coordinator.provision import provision
from partq.coordinator.rescale.rescaler import RescaleTimes
from partq.core.model import BrokerId
from partq.embedded.store_ports import queue_records, store_ports
from partq.errors import UnknownPartitionError
from partq.store.records.log import AppendBatch, Log
from tests.store.record import flush

BROKER = BrokerId("b-0")
UID = "0f3a9c1e"
AT_ONCE = RescaleTimes(retire_after_s=0.0, settle_gap_s=0.0)


class PlayedBroker:
    """Claims what it is asked to, in the partitions' records, and serves nothing."""

    def __init__(self, ports):
        self.ports = ports
        self.epochs = {}
        self.refuses = set()
        """Partitions that it does not claim."""
        self.refreshes = 0
        self.pauses_ms = {}
        """For how long publishes have waited for partitions that it opened."""

    async def state(self, url):
        records = await self.ports.partitions.read_many(sorted(self.epochs))
        return BrokerReport(
            broker=BROKER,
            incarnation="i",
            partitions={
                partition: PartitionReport(
                    broker_epoch=self.epochs[partition],
                    held_ms=60_000,
                    groups={
                        group: GroupReport(
                            member=None,
                            epoch=1,
                            closed_attempt=0,
                            is_bound=False,
                            pause_attempt=None,
                        )
                        for group in record.groups
                    },
                    opened_after_ms=self.pauses_ms.get(partition),
                )
                for partition, record in records.items()
            },
            flows=[],
            lost_flows=[],
        )

    async def claim(self, url, partitions):
        answers = {partition: Answer(partition=partition) for partition in partitions}
        for partition in set(partitions) - self.refuses:
            try:
                seen = await self.ports.partitions.read(partition)
            except UnknownPartitionError as error:
                answers[partition] = Answer(partition=partition, code=error.code)
                continue
            claim = await self.ports.partitions.claim(
                partition, BROKER, "i", expected=seen.broker_epoch
            )
            self.epochs[partition] = claim.broker_epoch
            await self.ports.leases.record_owner(partition, BROKER)
        return list(answers.values())

    async def refresh(self, url):
        self.refreshes += 1
        layout = (await self.ports.layouts.read()).layout
        for partition in self.epochs.keys() - set(layout.all_partitions()):
            del self.epochs[partition]


class RescaleStage:
    """The queue `ns/orders`, its coordinators, and what owners do of a change."""

    def __init__(self, store, keys):
        self.store, self.keys = store, keys
        self.ports = store_ports(store, keys)
        self.records = queue_records(store, keys)
        self.broker = PlayedBroker(self.ports)
        self.events = []
        self.pause_ms = None
        """The longest that was told."""
        self.log = Log(store, keys)
        self.appends = {}
        self.coordinator = self.new_coordinator()

    def new_coordinator(self):
        """Return one that has just started; each looks when the test says so."""
        return Coordinator(
            namespace="ns",
            queue="orders",
            store=self.ports,
            brokers=self.broker,
            member_processes=LocalProcesses(),
            on_rescale=self._hear,
            rescale_times=AT_ONCE,
        )

    async def replace_coordinator(self):
        """Let another one go on, as after a crash."""
        await self.coordinator.close()
        self.coordinator = self.new_coordinator()

    async def _hear(self, event, change, *, pause_ms):
        self.pause_ms = pause_ms if pause_ms is not None else self.pause_ms
        self.events.append((event.removeprefix("Rescale"), change.from_count, change.to_count))

    async def make(self, count, *groups):
        """Make the queue, or give it this count and these groups."""
        await provision(
            self.records,
            name="ns/orders",
            uid=UID,
            partition_count=count,
            spec={},
            groups={group: {"start": "Earliest"} for group in groups},
            keeps_others=False,
            repairs=False,
        )

    async def want(self, count):
        """Give the queue this count, and leave its groups alone."""
        config = await self.ports.configs.read_queue()
        spec = {**config.spec, "partitions": count}
        number = config.resource_generation + 1
        assert await self.ports.configs.write_queue(spec, resource_generation=number)

    async def look(self, times=1):
        for _ in range(times):
            await self.ports.leases.renew(BROKER, "i", 3600.0, "http://b-0")
            await self.coordinator.look()
            work = self.coordinator._balancer._work
            if work is not None:
                await work
        return await self.layout()

    async def layout(self):
        return (await self.ports.layouts.read()).layout

    async def until(self, is_so, *, looks=12):
        """Look until the layout is so."""
        for _ in range(looks):
            layout = await self.look()
            if is_so(layout):
                return layout
        raise AssertionError(layout)

    async def publish(self, partition, count=1):
        record = await self.ports.partitions.read(partition)
        number = self.appends[partition] = self.appends.get(partition, -1) + 1
        await self.log.append(
            partition, broker_epoch=self.broker.epochs[partition], number=number,
            expected=record.next, batches=[AppendBatch("", 0, count, b"x")], room_bytes=None,
        )  # fmt: skip

    async def seal_and_open(self):
        """Do what the owners of predecessors and successors do."""
        layout, seals = await self.layout(), {}
        for partition in {p for givers in layout.lineage.values() for p in givers}:
            known = (await self.ports.partitions.read(partition)).layout.seals
            awaited = {q.generation for q, givers in layout.lineage.items() if partition in givers}
            seals[partition] = await self.ports.seals.seal(
                partition, broker_epoch=self.broker.epochs[partition],
                generation=layout.generation, slots=layout.slots(partition),
                settled=known.keys() - awaited,
            )  # fmt: skip
        for partition, givers in layout.lineage.items():
            await self.ports.seals.open_partition(
                partition, broker_epoch=self.broker.epochs[partition],
                seals={giver: seals[giver] for giver in givers},
            )  # fmt: skip

    async def pass_by(self, partition, *groups):
        """Let groups acknowledge all of a partition, and trim it."""
        record = await self.ports.partitions.read(partition)
        epoch = self.broker.epochs[partition]
        for group in groups:
            await flush(self.ports.partitions, partition, epoch, group, record.next)
        await self.log.trim(partition, broker_epoch=epoch)

    async def names(self):
        """Return the names of all keys, without what stands before the tag of a partition."""
        found = []
        for node in self.store.nodes():
            found += await node.read(["KEYS", f"{self.keys.prefix}:*"])
        return sorted(name.decode().split(f"@{UID}", 1)[-1] for name in found)
