"""The quota counts the whole queue, whichever partitions and brokers hold it."""

import pytest

from partq.wire import frames
from tests.broker.conftest import queue_and_group

MIB = 1024 * 1024
SEND = "/v1/queues/orders/messages"
LIMITS = {"maxMessageBytes": 131_072, "maxSpoolBytes": MIB}


@pytest.fixture
def resources():
    """A queue of 1 MiB."""
    return queue_and_group(limits=LIMITS)


async def stored_bytes(running):
    records = await running.broker.partitions.read_many(running.broker.config.layout.partitions())
    return sum(record.bytes for record in records.values())


async def publish(running, peers, partition, size):
    body = {"key": peers.key_of(partition), "value": "x" * size}
    return await running.call("POST", SEND, token=peers.PRODUCE, json=body)


@pytest.mark.req("SOL-U13", "SOL-U12")
async def test_one_partition_may_use_all_of_it_and_then_all_are_refused(running, peers):
    """A used-up quota is no end: what is consumed makes room, and order is kept."""

    async def is_known():
        status, _ = await publish(running, peers, 0, 1)
        return status == 201

    await peers.eventually(is_known, "the sum is read")
    count = 0
    producer = await peers.open_producer(running)
    value = "x" * 100_000
    while True:
        await producer.offer(count, value, value, partition=0)
        answer, _ = await producer.expect((frames.Published, frames.PublishRefused))
        if isinstance(answer, frames.PublishRefused):
            break
        count += 2
    assert count >= 8, "far above an even share of the partitions"
    assert (answer.code, answer.retry_after_ms, answer.due) == ("quota_exceeded", 1000, count)
    assert "maxSpoolBytes" in answer.message
    assert await stored_bytes(running) <= MIB

    async def is_used_up():
        status, answer = await publish(running, peers, 1, 100_000)
        return status == 429 and answer["error"]["retry_after_ms"] == 1000

    await peers.eventually(is_used_up, "the other partitions are refused, too")
    assert await stored_bytes(running) <= MIB
    async with running.session.get(f"{running.url}/metrics") as response:
        text = await response.text()
    assert 'partq_quota_bytes{namespace="default",queue="orders"} 1.048576e+06' in text

    async def is_told():
        _, state = await running.call("GET", "/admin/v1/queues/orders/state")
        return state["is_quota_used_up"]

    await peers.eventually(is_told, "the coordinator hears of it, with the next sum")

    await running.assign("m", [0, 1, 2, 3])
    flow = await peers.open_flow(running)
    await flow.take(count)

    async def has_room():
        await producer.offer(count, value, value, partition=0)
        answer, _ = await producer.expect((frames.Published, frames.PublishRefused))
        return isinstance(answer, frames.Published)

    await peers.eventually(has_room, "what was consumed makes room, and continues where it was")
    assert not running.broker.quota.is_quota_used_up


async def test_a_sum_that_came_late_grants_nothing(running):
    """Another broker wrote a later one meanwhile, which everybody else goes by."""
    quota, leases = running.broker.quota, running.broker.quota._leases
    add_up = quota._add_up

    async def overtaken(partitions):
        size_bytes = await add_up(partitions)
        number, _ = await leases.read_usage() or (0, 0)
        await leases.write_usage(number + 1, MIB)
        return size_bytes

    quota._add_up = overtaken
    await quota.refresh()
    assert (await leases.read_usage())[1] == MIB
    assert quota.take([1]).room_bytes == 0
    assert quota.is_quota_used_up


@pytest.mark.req("SOL-U13")
async def test_brokers_share_what_is_left(running, peers, start_broker):
    """Each has its share, and they hear of each other: together they stay at the quota."""
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.2", "1.3"]})
    await other.admin("/claim", {"partitions": ["1.2", "1.3"]})
    await peers.eventually(
        lambda: (
            running.broker.id in other.broker.quota.sharers
            and other.broker.id in running.broker.quota.sharers
        ),
        "they know of each other",
    )
    refused = set()

    async def are_refused():
        for broker, partition in ((running, 0), (other, 2)):
            status, _ = await publish(broker, peers, partition, 50_000)
            if status == 429:
                refused.add(broker.broker.id)
        return len(refused) == 2 and await stored_bytes(running) > MIB - 110_000

    await peers.eventually(are_refused, "nearly all of it is used, and both are refused")
    # What one may hold from an older sum than the other is its half of what was left then.
    assert await stored_bytes(running) <= MIB + MIB // 2


async def test_states_of_keys_use_it_up_and_their_removal_makes_room(running, peers):
    """The sum of all states counts, with their keys; acks with states are not refused."""
    count = MIB // 65_536 + 1
    producer = await peers.open_producer(running)
    for number in range(0, count, 2):
        await producer.offer(number, "x", "y", partition=0)
        await producer.expect(frames.Published)
    await running.assign("m", [0])
    flow = await peers.open_flow(running)
    held, values = await flow.deliver()
    while len(values) < count:
        _, more = await flow.deliver()
        values += more

    async def leave(number, key, state):
        part = [(number, number + 1)]
        assert await flow.ack(held, ranges=part, state_key=f"k{key}", state=state) == ""

    for number in range(count - 1):
        await leave(number, number, bytes(65_536))
    assert await stored_bytes(running) < MIB // 2, "the messages alone are few"

    async def is_used_up():
        return (await publish(running, peers, 1, 1))[0] == 429

    await peers.eventually(is_used_up, "the states use it up")
    await leave(count - 1, 0, None)

    async def has_room():
        return (await publish(running, peers, 1, 1))[0] == 201

    await peers.eventually(has_room, "one state less makes room")
