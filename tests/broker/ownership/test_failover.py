"""Brokers that die, freeze, yield and come back; a Redis that dies, and one that forgets."""

import asyncio
import shutil

import pytest

from partq.core.model import Cause
from partq.errors import FencedError
from partq.testing import eventually
from partq.testing.redis_server import RedisServer
from partq.wire import frames


async def kill(running):
    """End a broker as kill -9 would: nothing is given back, nothing is said."""
    await running.store.close()
    broker = running.broker
    tasks = [*broker._tasks, *(owned.appender._task for owned in broker.owned.values())]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    broker.owned.clear()
    for connection in list(running.runner.server.connections):
        if connection.transport is not None:
            connection.transport.abort()
    await running.runner.cleanup()


def owns(running, *partitions):
    held = {partition.index for partition in running.broker.owned}
    return held.issuperset(partitions)


# ---- brokers ------------------------------------------------------------------------------------


async def test_another_broker_takes_over_from_one_that_was_killed(scene, peers, start_broker):
    """Nothing that was confirmed is lost; what may have been processed says why it comes again."""
    other = await start_broker("orders-1")
    elsewhere = await peers.open_flow(other, "m")
    assert await scene.source.ack(scene.held, 1) == ""
    await scene.producer.publish("d")
    older = scene.running.broker.owned[peers.partition_id(0)].broker_epoch
    await kill(scene.running)
    assigned, _ = await elsewhere.expect(frames.Assigned)
    assert (assigned.broker_epoch > older, assigned.cursor) == (True, 1)
    deliver, values = await elsewhere.deliver()
    assert (values, deliver.cause) == (["b", "c"], Cause.BROKER_CHANGE)
    deliver, values = await elsewhere.deliver()
    assert (values, deliver.cause) == (["d"], Cause.BROKER_CHANGE)
    producer = await peers.open_producer(other)
    await producer.offer(3, "d")  # whether it was stored, its producer may not know
    published, _ = await producer.expect(frames.Published)
    assert (published.offset, published.is_duplicate) == (3, True)
    producer.due[0] = 4
    await producer.publish("e")
    deliver, values = await elsewhere.deliver()
    assert (values, deliver.cause) == (["e"], Cause.NONE)
    await peers.eventually(lambda: owns(other, 0, 1, 2, 3), "all are claimed")


async def test_a_killed_broker_claims_its_own_at_once_when_it_is_back(scene, peers, start_broker):
    """The last owner need not wait for its own lease; its older life is over."""
    other = await start_broker("orders-1")
    await kill(scene.running)
    again = await start_broker("orders-0")
    await peers.eventually(lambda: owns(again, 0, 1, 2, 3), "claimed again")
    assert not other.broker.owned
    flow = await peers.open_flow(again, "m")
    deliver, values = await flow.deliver()
    assert (values, deliver.cause) == (["a", "b", "c"], Cause.BROKER_CHANGE)


async def test_a_frozen_broker_delivers_nothing_and_is_fenced(scene, peers, start_broker):
    """Its lease is over on its own clock; what it still says to the store is refused."""
    other = await start_broker("orders-1")
    frozen = scene.running.broker
    renewals = peers.Gate(frozen.leases, "renew")
    verify = peers.Gate(frozen.partitions, "affirm")
    await renewals.reached.wait()
    partition = peers.partition_id(0)
    await peers.eventually(lambda: not frozen.lease.is_valid, "its lease is over")
    await peers.eventually(lambda: owns(other, 0), "the other has claimed")
    assert partition in frozen.owned  # it does not know yet

    elsewhere = await peers.open_flow(other, "m")
    assert (await elsewhere.deliver())[1] == ["a", "b", "c"]
    await scene.producer.offer(3, "d")
    refused, _ = await scene.producer.expect(frames.PublishRefused)
    assert refused.code == "not_stored"
    with pytest.raises(FencedError):
        await frozen.partitions.yield_(
            partition, broker_epoch=frozen.owned[partition].broker_epoch, successor=None
        )
    producer = await peers.open_producer(other)
    producer.due[0] = 3
    await producer.publish("d")
    assert await scene.source.ack(scene.held, 3) == "fenced"
    assert (await elsewhere.deliver())[1] == ["d"]
    renewals.opened.set()
    verify.opened.set()
    moved, _ = await scene.source.find(frames.Moved)
    assert moved.partition == 0


async def test_a_claim_that_was_on_its_way_does_not_overtake_an_owner_that_is_back(
    scene, peers, start_broker
):
    """The lease was over, the claim decided on; then the owner continues, and the claim comes."""
    other = (await start_broker("orders-1")).broker
    owner = scene.running.broker
    partition = peers.partition_id(0)
    renewals = peers.Gate(owner.leases, "renew")
    claims = peers.Gate(other.partitions, "claim")
    await claims.reached.wait()
    assert not owner.lease.is_valid
    renewals.opened.set()
    await peers.eventually(lambda: owner.lease.is_valid, "it has renewed its lease")
    claims.opened.set()
    renewed = peers.Gate(other.leases, "read")
    await renewed.reached.wait()  # the claims have ended, and it looks again
    assert not other.owned
    assert partition in owner.owned
    assert (await owner.partitions.read(partition)).owner == owner.id


async def test_a_claim_is_judged_by_leases_that_were_read_after_the_record(
    scene, peers, start_broker
):
    """The owner is back before the record is read: its lease tells."""
    other = (await start_broker("orders-1")).broker
    owner = scene.running.broker
    claims = peers.Gate(other.partitions, "claim")
    read_many, asked, opened = other.partitions.read_many, [], asyncio.Event()

    async def hold_back(partitions, **options):
        asked.append([*partitions])
        if asked[-1]:
            await opened.wait()
        return await read_many(asked[-1], **options)

    other.partitions.read_many = hold_back
    renewals = peers.Gate(owner.leases, "renew")
    await peers.eventually(lambda: asked and asked[-1], "it takes the lease for over")
    assert not owner.lease.is_valid
    renewals.opened.set()
    await peers.eventually(lambda: owner.lease.is_valid, "it has renewed its lease")
    looks = len(asked)
    opened.set()
    await peers.eventually(lambda: len(asked) > looks, "it looks again")
    assert not claims.reached.is_set()


async def test_a_broker_that_is_fenced_by_an_append_gives_the_partition_up(scene, peers):
    """Outcome unknown is what it says, and the repeat finds out at the new owner."""
    partition = peers.partition_id(0)
    broker = scene.running.broker
    record = await broker.partitions.read(partition)
    await broker.partitions.claim(partition, "orders-9", "x", expected=record.broker_epoch)
    await scene.producer.offer(3, "d")
    refused, _ = await scene.producer.expect(frames.PublishRefused)
    assert refused.code == "outcome_unknown"
    await scene.source.find(frames.Moved)


async def test_a_broker_that_shuts_down_leaves_nothing_in_doubt(scene, peers, start_broker):
    """Acks are stored before it goes, and its partitions are claimed without waiting."""
    other = await start_broker("orders-1")
    elsewhere = await peers.open_flow(other, "m")
    assert await scene.source.ack(scene.held, 2) == ""
    claims = scene.running.broker.claims
    await peers.eventually(lambda: claims.successor(peers.partition_id(0)), "it knows the other")
    await scene.running.broker.close()
    await scene.source.ended()
    deliver, values = await elsewhere.deliver()
    assert (deliver.start, values) == (2, ["c"])


async def test_a_living_owner_is_not_robbed(scene, start_broker):
    other = await start_broker("orders-1")
    (result,) = await other.admin("/claim", {"partitions": ["1.0"]})
    assert result["error"]["code"] == "conflict"
    assert "orders-0" in result["error"]["message"]
    (result,) = await scene.running.admin("/yield", {"partitions": ["1.9"]})
    assert result["error"]["code"] == "not_owner"


async def test_a_broker_does_not_claim_what_it_has_just_claimed(scene, peers):
    """The watch reads a record that names this broker: a claim of it has ended meanwhile."""
    broker = scene.running.broker
    first = peers.Gate(broker.partitions, "read_many")
    dropped = list(broker.owned)
    broker.ownership.drop_all()  # as when Redis was restarted
    await first.reached.wait()
    for partition in dropped:
        record = await broker.partitions.read(partition)
        await broker.ownership.claim(partition, record)
    claimed = dict(broker.owned)
    next_look = peers.Gate(broker.partitions, "read_many")
    first.opened.set()
    await next_look.reached.wait()
    assert broker.owned == claimed


# ---- Redis --------------------------------------------------------------------------------------


class OwnRedis:
    """A Redis that a test may kill."""

    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.server = RedisServer()
        self.server.start(data_dir)

    def restart(self):
        self.server.kill()
        self.server.start(self.data_dir)

    def back_up(self):
        # The append-only file is a folder from Redis 7 on.
        shutil.copytree(self.data_dir, self.data_dir.parent / "copy")

    def roll_back(self):
        self.server.kill()
        shutil.rmtree(self.data_dir)
        shutil.copytree(self.data_dir.parent / "copy", self.data_dir)
        self.server.start(self.data_dir)


@pytest.fixture
def own_redis(tmp_path):
    own = OwnRedis(tmp_path / "redis")
    yield own
    own.server.stop()


@pytest.fixture
def redis_server(own_redis):
    """Every test below has a Redis of its own."""
    return own_redis.server


@pytest.mark.req("PUL-18", "PUL-92")
async def test_after_a_restart_of_redis_everything_confirmed_is_there(scene, peers, own_redis):
    """Under new epochs; what was in flight comes again, what was acked does not."""
    assert await scene.source.ack(scene.held, 1) == ""
    await scene.producer.publish("d")
    own_redis.restart()
    assigned, _ = await scene.source.find(frames.Assigned)
    assert assigned.broker_epoch > scene.held.broker_epoch
    assert assigned.epoch > scene.held.epoch
    values = []
    while len(values) < 3:
        deliver, some = await scene.source.deliver()
        assert deliver.cause == Cause.BROKER_CHANGE
        values += some
    assert values == ["b", "c", "d"]
    assert await scene.source.ack(scene.held, 2) == "fenced"
    await scene.producer.offer(3, "d")
    published, _ = await scene.producer.find(frames.Published)
    assert (published.offset, published.is_duplicate) == (3, True)


async def test_publishing_goes_on_through_a_restart_of_redis(scene, peers, own_redis):
    """Whatever a batch was answered, its repeat under the same numbers is stored once."""
    restart = asyncio.to_thread(own_redis.restart)
    work = asyncio.create_task(publish_stubbornly(scene.producer, 3, 60))
    await restart
    await work
    got = {}
    while len(got) < 63:
        deliver, values = await scene.source.deliver()
        got |= dict(zip(range(deliver.start, deliver.stop), values, strict=True))
    assert [got[offset] for offset in sorted(got)] == ["a", "b", "c", *map(str, range(60))]


async def test_a_store_that_lost_writes_loses_those_and_mixes_up_nothing(scene, own_redis, caplog):
    """Offsets are used again under higher epochs: no ack of before counts for what is there now."""
    assert await scene.source.ack(scene.held, 1) == ""
    own_redis.back_up()
    await scene.producer.publish("lost")
    deliver, values = await scene.source.deliver()
    assert (values, deliver.start) == (["lost"], 3)
    own_redis.roll_back()
    assigned, _ = await scene.source.find(frames.Assigned)
    assert (assigned.broker_epoch > deliver.broker_epoch, assigned.epoch > deliver.epoch) == (
        True,
        True,
    )
    again, values = await scene.source.deliver()
    assert (values, again.cause) == (["b", "c"], Cause.STORE_ROLLED_BACK)
    assert "Redis has lost its messages at the offsets 3 to 3" in caplog.text
    assert await publish_stubbornly(scene.producer, 3, 1) == 3
    assert await scene.source.ack(deliver, 4) == "fenced"
    fresh, values = await scene.source.deliver()
    assert (values, fresh.start, fresh.cause) == (["0"], 3, Cause.NONE)
    assert fresh.append_broker_epoch > deliver.append_broker_epoch


async def publish_stubbornly(producer, first, count):
    """Publish numbered messages one by one, each until it is stored; return the last offset."""
    offset = -1
    for number in range(count):

        async def published(number=number):
            await producer.offer(first + number, str(number))
            answer, _ = await producer.find((frames.Published, frames.PublishRefused, frames.Moved))
            return answer if isinstance(answer, frames.Published) else None

        offset = (await eventually(published, f"message {number} is stored")).offset
    return offset
