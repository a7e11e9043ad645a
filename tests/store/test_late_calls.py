"""Every call of a script arrives once more, after brokers, groups and coordinators have changed."""

from itertools import count

from partq.core.dead_letters import DeadLetterReason
from partq.core.group.records import NodeRecord
from partq.core.model import BrokerId, MemberId
from partq.store.records.audit import Audits
from partq.store.records.configs import Configs
from partq.store.records.dead_letters import Outboxes, Replays
from partq.store.records.groups import Terms
from partq.store.records.leases import Leases
from partq.store.records.log import AppendBatch
from partq.store.records.members import Members
from partq.store.records.pins import Pins
from tests.store.record import GROUP

MEANT = {
    "fence_groups",  # voids what was decided before: who adds a group reads the new fence
    "begin_term",  # a coordinator that has begun later is refused once, and begins again
    "affirm_partition",  # of the living broker epoch: claims that were decided before are refused
    "set_pin",  # with the number of the last call: renewed
    "write_fields",  # the version of a group's spec tells brokers to read it, whatever it is
}
"""What a late call may change, and why that does no harm."""


class Life:
    """One broker after the other has the partition; what each does has the numbers of its own."""

    def __init__(self, store, keys, partitions, log, partition):
        self.store, self.keys, self.log, self.partition = store, keys, log, partition
        self.partitions, self.outboxes = partitions, Outboxes(store, keys)
        self.audits, self.pins = Audits(store, keys), Pins(store, keys)
        self.replays = Replays(store, keys)

    async def book(self, call, **arguments):
        cursor = await self.partitions.read_cursor(self.partition, GROUP)
        write = {"broker_epoch": self.epoch, "number": next(self.numbers), "born": cursor.born}
        await call(self.partition, GROUP, **write, **arguments)
        return await self.partitions.read_cursor(self.partition, GROUP)

    async def claim(self, broker, attempt):
        partition, partitions = self.partition, self.partitions
        record = await partitions.read(partition)
        claim = await partitions.claim(
            partition,
            BrokerId(broker),
            f"i-{broker}",
            expected=record.broker_epoch,
            affirmed=record.affirmed,
            wants_audit=True,
        )
        self.epoch, self.numbers = claim.broker_epoch, count()
        for number in range(3):
            await self.log.append(
                partition,
                broker_epoch=self.epoch,
                number=number,
                expected=(await partitions.read(partition)).next,
                batches=[AppendBatch(f"p-{broker}", 5 * number, 5, b"12345")],
                room_bytes=None,
            )
        cursor = await partitions.read_cursor(partition, GROUP)
        cursor = await self.book(
            partitions.commit,
            source=cursor.member,
            epoch=cursor.epoch,
            attempt=10 * attempt,
            target=MemberId("m"),
            cause=0,
            cursor=cursor.cursor,
            acked=[],
            redeliveries={},
        )
        await self.book(partitions.bind, member=MemberId("m"), incarnation="i")
        at = (await partitions.read(partition)).trimmed
        done = {"acked": b"\x01\x02", "redeliveries": {at + 6: 1}, "parked": {7: attempt}}
        await self.book(partitions.flush, cursor=at + 6, **done)
        letters = [(at + 6, DeadLetterReason.MAX_REDELIVERIES, 2)]
        cursor = await self.book(self.outboxes.add, letters=letters)
        await self.book(partitions.reset, epoch=cursor.epoch, offset=at + 9)
        (letter,) = cursor.outbox
        await self.book(self.outboxes.remove, letter=letter.number)
        await self.vacate_and_register(10 * attempt + 1)
        for number in range(2):
            options = {"broker_epoch": self.epoch, "number": 10 * attempt + number}
            await self.pins.set(partition, "reader", at + 9 + number, **options)
        options = {"broker_epoch": self.epoch}
        for offset in (at + 8, at + 6):
            begun = {"begin": offset, "write": next(self.numbers)}
            await self.replays.advance(partition, **options, **begun)
            ended = {"over": offset, "is_sent": True, "write": next(self.numbers)}
            await self.replays.advance(partition, **options, **ended)
        for number, is_on in enumerate((False, True)):
            await self.audits.switch(
                partition, BrokerId(broker), **options, number=number, is_on=is_on
            )
        last = (await self.audits.read_state(partition)).next - 1
        for keep_from in (last - 1, last):
            await self.audits.trim(partition, keep_from, **options)
        await partitions.affirm({partition: self.epoch})
        await self.log.trim(partition, broker_epoch=self.epoch)

    async def vacate_and_register(self, attempt):
        """Take the partition from its member, which registers it itself, at another offset."""
        partitions = self.partitions
        cursor = await partitions.read_cursor(self.partition, GROUP)
        cursor = await self.book(
            partitions.commit,
            source=cursor.member,
            epoch=cursor.epoch,
            attempt=attempt,
            target=None,
            cause=0,
            cursor=cursor.cursor,
            acked=[],
            redeliveries={},
        )
        for offset in (cursor.cursor - 1, None):  # the second call finds it as it wants it
            cursor = await self.book(
                partitions.register,
                member=MemberId("m"),
                incarnation="i",
                epoch=cursor.epoch,
                offset=offset,
            )


async def create_group(store, keys, partitions, partition, member):
    configs, terms = Configs(store, keys), Terms(store, keys)
    config = await configs.read_queue()
    number = config.resource_generation if config else 0
    born = await configs.begin_group(GROUP)
    await configs.write_group(GROUP, {"m": member}, resource_generation=1, born=born)
    await partitions.fence_groups(partition)
    fence = (await partitions.read(partition)).groups_fence
    await partitions.add_group(partition, GROUP, start="Earliest", fence=fence)
    await configs.write_queue({"groups": [GROUP]}, resource_generation=number + 1)
    members = Members(store, keys, terms)
    for each in ("gone", member):
        await members.list_member(GROUP, MemberId(each), "10.0.0.1")
    await members.set_node(GROUP, MemberId("gone"), "i", NodeRecord(2, 0))
    await members.clear_node(GROUP, MemberId("gone"), "i")
    await members.set_node(GROUP, MemberId(member), "i", NodeRecord(2, 0))
    await members.mark_lost(GROUP, MemberId("gone"))
    await members.unlist(GROUP, MemberId("gone"))


async def remove_group(store, keys, partitions, partition):
    configs = Configs(store, keys)
    spec = await configs.read_group(GROUP)
    await configs.erase_group(GROUP, born=spec.born)
    await configs.write_queue({"groups": []}, resource_generation=2)
    await partitions.fence_groups(partition)
    born = (await partitions.read_cursor(partition, GROUP)).born
    await partitions.remove_group(partition, GROUP, born=born)


async def test_what_arrives_late_changes_nothing(
    store, keys, partitions, log, partition, monkeypatch
):
    """Whichever call it is, and whatever it was overtaken by."""
    calls, run = [], store.run

    async def noted(*call, **options):
        calls.append(call)
        return await run(*call, **options)

    monkeypatch.setattr(store, "run", noted)
    life, leases = Life(store, keys, partitions, log, partition), Leases(store, keys)
    await partitions.create(partition)
    await create_group(store, keys, partitions, partition, "m")
    await life.claim("b-0", 1)
    await leases.write_usage(1, 10)
    await life.claim("b-1", 2)
    await leases.write_usage(2, 500)
    await remove_group(store, keys, partitions, partition)
    await create_group(store, keys, partitions, partition, "n")
    await life.claim("b-2", 3)
    await partitions.yield_(partition, broker_epoch=life.epoch, successor=None)
    await life.claim("b-3", 4)

    async def stored():
        hashes = [keys.meta(partition), keys.cursor(partition, GROUP), keys.producers(partition)]
        hashes += [keys.replayed(partition), keys.brokers(), keys.config(), *keys.of_group(GROUP)]
        streams = [keys.log(partition), keys.audit(partition)]
        found = {name: await store.read("HGETALL", name) for name in hashes}
        return found | {name: await store.read("XRANGE", name, "-", "+") for name in streams}

    before = await stored()
    for script, *rest in calls.copy():
        await run(script, *rest)
        after = await stored()
        is_meant = script in MEANT and (script != "write_fields" or rest[0] == [keys.config()])
        assert after == before or is_meant, f"{script} {rest}"
        before = after
    assert {script for script, *_ in calls} >= MEANT | {"trim_log", "write_config", "write_usage"}
