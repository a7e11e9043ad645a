"""Messages that stay for a time after all groups have acknowledged them."""

import pytest

from partq.broker.operations.gauges import render_metrics
from partq.coordinator.record_sync import RecordSync
from partq.core.clocks.clock_watch import ClockWatch
from partq.core.model import PartitionId
from partq.core.quota_share import StorageRoom
from partq.embedded.provision import provision
from partq.testing import eventually
from tests.broker.conftest import PRODUCE, UID, key_of, queue_and_group
from tests.broker.moved_clocks import AheadWatch, put_watch

P = PartitionId(1, 0)
DAY_S = 86_400
SEND = "/v1/queues/orders/messages"
LIMITS = {"maxMessageBytes": 131_072, "maxSpoolBytes": 2**20}


@pytest.fixture
def spec():
    return {"retentionSeconds": DAY_S}


@pytest.fixture
def resources(spec):
    return queue_and_group(**spec)


@pytest.fixture
def lease_ttl_s():
    """Nothing here is about leases: none shall be over on a busy machine."""
    return 30.0


@pytest.fixture
def change(store, resources, running):
    """Change the queue's spec."""

    async def change(**changes):
        queue = resources.queues[0]
        spec = queue.spec.model_copy(update=changes)
        await provision(store, queue.model_copy(update={"spec": spec}), resources, uid=UID)
        await running.broker.refresh()

    return change


async def trimmed(running):
    return (await running.broker.partitions.read(P)).trimmed


async def settle(running):
    """Trim until nothing changes."""
    await running.broker.cursor_writer.settle(running.broker.owned[P].groups["workers"])
    for _ in range(3):
        await running.broker.trimmer.trim()
    return await trimmed(running)


async def is_freed(running, stop=3):
    async def freed():
        return await settle(running) == stop

    await eventually(freed, "it is freed")


@pytest.mark.req("PUL-19")
async def test_it_stays_and_a_group_that_goes_back_gets_it(running, scene, change):
    assert await scene.source.ack(scene.held, 3) == ""
    assert await settle(running) == 0
    _, status = await running.call("GET", "/v1/queues/orders/status")
    assert status["totals"]["retained_bytes"] == status["totals"]["bytes"] > 0
    assert "partq_retained_bytes{" in render_metrics(running.broker).decode()
    body = {"to": "earliest", "partitions": ["1.0"], "is_forced": True}
    code, answer = await running.call("POST", "/v1/queues/orders/groups/workers/reset", json=body)
    assert (code, answer["partitions"]["1.0"]["to"]) == (200, 0)
    assert await scene.source.take(3) == ["a", "b", "c"]
    await change(retention_seconds=0)
    await is_freed(running)
    _, status = await running.call("GET", "/v1/queues/orders/status")
    assert status["totals"]["retained_bytes"] == 0
    assert "partq_retained_bytes{" not in render_metrics(running.broker).decode()


async def test_without_a_group_it_is_not_called_retained(running, scene):
    assert await scene.source.ack(scene.held, 3) == ""
    assert await settle(running) == 0
    assert (await running.broker.partitions.read(P)).retained_bytes > 0
    await scene.source.close()

    async def is_removed():
        path = "/v1/queues/orders/groups/workers/remove"
        return (await running.call("POST", path, json={}))[0] == 200

    await eventually(is_removed, "its member has gone and it is removed")
    broker = running.broker
    config = await broker.configs.read_queue()
    record_sync = RecordSync(broker.partitions, None, broker.configs)
    await record_sync.sync(broker.config.layout, {}, config.resource_generation)
    await running.broker.refresh()
    await eventually(lambda: not running.broker.owned[P].groups, "the broker has no group")
    await running.broker.trimmer.trim()
    _, status = await running.call("GET", "/v1/queues/orders/status")
    assert status["totals"]["bytes"] > status["totals"]["retained_bytes"] == 0
    metrics = render_metrics(running.broker).decode().splitlines()
    found = [line for line in metrics if line.startswith("partq_retained_bytes{")]
    assert len(found) == 1
    assert found[0].endswith(" 0.0")


async def test_it_goes_when_its_time_is_over(running, scene):
    watch = put_watch(running.broker, AheadWatch())
    await running.broker.expiry.expire()
    assert await scene.source.ack(scene.held, 3) == ""
    assert await settle(running) == 0
    watch.ahead_ms = (DAY_S + 60) * 1000
    assert await settle(running) == 0, "ages are looked at once a minute"
    running.clock.ahead_s += 61
    await is_freed(running)


async def test_after_a_jump_of_the_clock_all_stays_until_it_is_confirmed(running, scene, change):
    watch = put_watch(running.broker, ClockWatch())
    watch.observe(0, 0.0, wall_s=0.0)
    await running.broker.expiry.expire()
    assert running.broker.expiry.clocks.is_suspended
    await change(retention_seconds=0.001)
    assert await scene.source.ack(scene.held, 3) == ""
    assert await settle(running) == 0
    running.broker.expiry.clocks.confirm()
    await is_freed(running)


async def test_what_has_outlived_its_time_to_live_goes(running, scene):
    assert await scene.source.ack(scene.held, 3) == ""
    assert await settle(running) == 0
    running.broker.owned[P].expired = 3
    await is_freed(running)


async def test_it_makes_room_step_by_step_and_then_at_once(running, scene, monkeypatch):
    quota = running.broker.quota
    for _ in range(5):
        await scene.producer.publish("x" * 1000)
    assert await scene.source.ack(scene.held, 3) == ""
    await scene.source.take(5)
    assert await settle(running) == 0
    monkeypatch.setattr(type(quota), "room", StorageRoom.SCARCE)
    await running.broker.trimmer.trim()
    assert 0 < await trimmed(running) < 8
    monkeypatch.setattr(type(quota), "room", StorageRoom.NONE)
    await is_freed(running, 8)


@pytest.mark.parametrize("spec", [{"retentionSeconds": DAY_S, "limits": LIMITS}])
async def test_publishing_is_not_refused_for_what_is_acknowledged(running, scene):
    """Twice the quota is published and acknowledged."""
    broker = running.broker
    assert await scene.source.ack(scene.held, 3) == ""
    body, highest = {"key": key_of(0), "value": "x" * 50_000}, 0
    await eventually(lambda: broker.quota._seen is not None, "the sum is known")
    for _ in range(40):
        code, answer = await running.call("POST", SEND, token=PRODUCE, json=body)
        assert code == 201, answer
        await scene.source.take(1)
        await broker.quota.refresh()
        await settle(running)
        highest = max(highest, (await broker.partitions.read(P)).bytes)
    record = await broker.partitions.read(P)
    assert 0 < record.retained_bytes <= highest <= 2**20
    assert record.trimmed > 3
