"""What of batches is in a broker's memory is bounded for all its partitions together."""

import re
from types import SimpleNamespace

from partq.broker.delivery import read_ahead
from partq.broker.delivery.read_ahead import ReadAhead
from partq.broker.log.buffers import PendingBudget, memory_bytes
from partq.wire import frames

MIB = 1024 * 1024
TEXT = "x" * 4000


async def buffer_metrics(running):
    """Return bytes and limit of each buffer, as the metrics tell them."""
    async with running.session.get(running.url + "/metrics") as response:
        text = await response.text()
    rows = re.findall(r'^partq_buffer(_limit)?_bytes{buffer="(\w+)",.*} (.*)$', text, re.M)
    found = {(name, bool(is_limit)): float(value) for is_limit, name, value in rows}
    return {name: (found[name, False], found[name, True]) for name, _ in found}


async def offer_until_refused(peers, running, partition):
    """Publish to a partition, each time by another producer; return the refusal."""
    for number in range(200):
        producer = await peers.open_producer(running, f"p{partition}-{number}")
        for at in range(5):
            await producer.offer(20 * at, *[TEXT] * 20, partition=partition)
        await producer.send(frames.Ping(1))
        answer, _ = await producer.receive()
        if isinstance(answer, frames.PublishRefused):
            return answer
    raise AssertionError("nothing was refused")


# ---- what waits to be stored --------------------------------------------------------------------


async def test_what_waits_in_all_partitions_has_one_bound(start_broker, peers):
    running = await start_broker(pending_bytes=4 * MIB)
    await running.claim_all()
    gate = peers.Gate(running.broker.log, "append")
    refused = [await offer_until_refused(peers, running, index) for index in range(4)]
    for index, answer in enumerate(refused):
        assert (answer.code, answer.retry_after_ms) == ("not_stored", 500)
        assert f"partition 1.{index}" in answer.message
        assert "PARTQ_PENDING_BYTES" in answer.message
    # Each had its share: none was refused with nothing of its own waiting.
    for owned in running.broker.owned.values():
        assert owned.appender.held_bytes > 0
    used = running.broker.buffers.pending.used_bytes
    assert used == sum(owned.appender.held_bytes for owned in running.broker.owned.values())
    assert (await buffer_metrics(running))["pending"] == (used, 4 * MIB)
    assert used <= 4 * MIB
    gate.opened.set()
    await peers.eventually(
        lambda: running.broker.buffers.pending.used_bytes == 0, "everything is stored"
    )
    assert {owned.appender.held_bytes for owned in running.broker.owned.values()} == {0}


async def test_what_was_refused_or_lost_is_counted_out(start_broker, peers):
    running = await start_broker(pending_bytes=4 * MIB)
    await running.claim_all()
    peers.Gate(running.broker.log, "append")
    await offer_until_refused(peers, running, 0)
    running.broker.ownership.drop_all()
    await peers.eventually(
        lambda: running.broker.buffers.pending.used_bytes == 0, "nothing waits any more"
    )


def holder():
    return SimpleNamespace(held_bytes=0)


def fill(budget, who, size):
    count = 0
    while budget.take(who, size):
        count += 1
    return count * size


def test_a_partition_leaves_room_for_others():
    budget = PendingBudget(1200)
    a, b, c = holder(), holder(), holder()
    assert [fill(budget, each, 1) for each in (a, b, c)] == [600, 300, 150]
    assert budget.used_bytes == 1050


def test_every_partition_has_its_turn():
    """One batch passes above the bound; the next one does when that is stored."""
    budget = PendingBudget(1000)
    a, b, c = holder(), holder(), holder()
    fill(budget, a, 100)
    assert budget.take(b, 900)
    assert not budget.take(c, 900)
    assert not budget.take(b, 1)
    budget.give_back(a, a.held_bytes)
    assert budget.take(a, 100)
    assert not budget.take(c, 900), "the one above the bound is still there"
    budget.give_back(b, 900)
    assert budget.take(c, 900)
    assert budget.used_bytes <= budget.max_bytes + 900


def test_a_batch_above_the_whole_bound_is_taken_alone():
    budget = PendingBudget(1000)
    a = holder()
    assert budget.take(a, 5000)
    assert not budget.take(a, 1)
    budget.give_back(a, 5000)
    assert (budget.used_bytes, budget.take(a, 1)) == (0, True)


# ---- the newest batches -------------------------------------------------------------------------


async def publish_bytes(producer, partition, size):
    for _ in range(size // len(TEXT)):
        await producer.publish(TEXT, partition=partition)


async def test_the_tails_of_all_partitions_have_one_bound(start_broker, peers):
    running = await start_broker(tail_bytes=100_000)
    await running.claim_all()
    producer = await peers.open_producer(running)
    tails = [running.broker.owned[peers.partition_id(index)].tail for index in range(4)]
    # Alone, a partition has all of it; then those that hold more than their share give way.
    await publish_bytes(producer, 0, 200_000)
    assert 70_000 < tails[0].size_bytes <= 100_000
    for index in (1, 2, 3):
        await publish_bytes(producer, index, 200_000)
    sizes = [tail.size_bytes for tail in tails]
    assert sum(sizes) == running.broker.buffers.tails.used_bytes <= 100_000
    assert min(sizes) > 10_000
    for tail in tails:
        assert tail.find(tail.end - 1) is not None
    assert (await buffer_metrics(running))["tail"] == (sum(sizes), 100_000)
    running.broker.ownership.drop_all()
    assert running.broker.buffers.tails.used_bytes == 0


async def test_small_batches_do_not_pass_for_nothing(start_broker, peers):
    running = await start_broker(tail_bytes=50_000)
    await running.claim_all()
    producer = await peers.open_producer(running)
    for _ in range(200):
        await producer.publish("x")
    tail = running.broker.owned[peers.partition_id(0)].tail
    assert len(tail._entries) < 100


# ---- what is read ahead -------------------------------------------------------------------------


async def far_behind(start_broker, peers, count=60, **settings):
    """Return a broker whose partitions hold so many messages each, none of them in memory."""
    running = await start_broker(tail_bytes=1, **settings)
    await running.claim_all()
    producer = await peers.open_producer(running)
    for index in range(4):
        for number in range(count):
            await producer.publish(f"{number}-{TEXT}", partition=index)
    return running


def numbers_of(values):
    return [int(value.partition("-")[0]) for value in values]


async def test_what_was_read_for_a_flow_is_let_go_with_it(start_broker, peers):
    running = await far_behind(start_broker, peers)
    ahead = running.broker.log_fetcher.ahead
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m", credit=5)
    await flow.deliver()
    assert ahead.used_bytes > 100_000
    await flow.close()
    await peers.eventually(lambda: ahead.used_bytes == 0, "nothing is kept for nobody")


async def test_reads_of_all_partitions_share_one_bound(start_broker, peers):
    """Less than one partition would read ahead by itself; everybody gets everything, in order."""
    running = await far_behind(start_broker, peers, read_ahead_bytes=50_000)
    ahead, most = running.broker.log_fetcher.ahead, 0
    await running.assign("m", [0, 1])
    await running.assign("n", [2, 3])
    flows = [await peers.open_flow(running, name, credit=20) for name in ("m", "n")]
    seen = {index: [] for index in range(4)}
    for _ in range(120):
        for flow in flows:
            frame, values = await flow.deliver()
            seen[frame.partition] += numbers_of(values)
            await flow.send(frames.Credit(len(values)))
            most = max(most, ahead.used_bytes)
            assert sum(s.size_bytes for s in ahead._stretches.values()) <= ahead.used_bytes
    assert seen == {index: list(range(60)) for index in range(4)}
    assert 0 < most <= 50_000


def batches(*first):
    return [SimpleNamespace(first=at, count=1, data=b"x" * 1_000) for at in first]


def test_of_a_read_as_much_is_kept_as_there_is_room():
    """Another read may have taken its room since it was asked for."""
    ahead = ReadAhead(3 * memory_bytes(b"x" * 1_000), clock=lambda: 0.0)
    ahead.keep("one", batches(0, 1))
    ahead.keep("two", batches(0, 1, 2))
    assert ahead.used_bytes == ahead.max_bytes
    assert ahead.find("two", 0).first == 0
    assert ahead.find("two", 1) is None


async def test_what_nobody_has_looked_at_stays_for_a_moment():
    """Else readers take each other's room, and none of them gets on."""
    now = 0.0
    size = memory_bytes(b"x" * 1_000)
    ahead = ReadAhead(size, clock=lambda: now)
    ahead.keep("one", batches(0))
    assert not ahead._make_room(size)
    now = read_ahead.FRESH_S
    assert ahead._make_room(size)
    assert ahead.find("one", 0) is None


async def test_a_batch_above_the_bound_is_read_alone(start_broker, peers):
    running = await far_behind(start_broker, peers, count=3, read_ahead_bytes=1000)
    await running.assign("m", [0, 1, 2, 3])
    flow = await peers.open_flow(running, "m")
    assert sorted(numbers_of(await flow.take(12))) == sorted([*range(3)] * 4)


async def test_a_flow_that_takes_nothing_keeps_no_other_from_reading(start_broker, peers):
    """What was read for it goes, after a moment, where another one needs the room."""
    running = await far_behind(start_broker, peers, read_ahead_bytes=9000)
    await running.assign("m", [0])
    await running.assign("n", [1])
    idle = await peers.open_flow(running, "m", credit=1)
    await idle.deliver()
    flow = await peers.open_flow(running, "n", credit=60)
    assert numbers_of(await flow.take(60)) == list(range(60))
