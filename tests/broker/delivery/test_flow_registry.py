"""Flows: windows and credit, acks, releases, binds, pings and leases."""

import asyncio
import time

import pytest

from partq.broker.api.frame_socket import SOCKETS
from partq.broker.api.routes import flow as flow_route
from partq.broker.delivery import flow_liveness
from partq.core.model import Cause
from partq.testing.frame_peers import values_of
from partq.wire import frames


async def record(scene, peers):
    return await scene.running.broker.partitions.read_cursor(peers.partition_id(0), "workers")


async def quiet(flow):
    """Wait until the broker has handled all that was sent; fail if a delivery came."""
    await flow.send(frames.Ping(77))
    await flow.expect(frames.Pong)


# ---- windows and credit -------------------------------------------------------------------------


@pytest.mark.req("HND-21", "SOL-21", "AZR-55")
async def test_no_more_is_in_flight_than_there_is_credit(running, peers):
    """Windows are cut inside batches; credit that comes back lets just as much out."""
    await running.assign("m", [0, 1])
    flow = await peers.open_flow(running, "m", credit=5)
    producer = await peers.open_producer(running)
    for partition in (0, 1):
        await producer.publish(*map(str, range(20)), partition=partition)
    got = 0
    while got < 5:
        _, values = await flow.deliver()
        got += len(values)
    await quiet(flow)
    assert got == 5
    await flow.send(frames.Credit(3))
    while got < 8:
        _, values = await flow.deliver()
        got += len(values)
    await quiet(flow)
    assert got == 8
    states = [await running.state(partition) for partition in (0, 1)]
    assert sum(state["in_flight"] for state in states) == 8


@pytest.mark.req("HND-21")
async def test_no_more_is_in_flight_than_the_queue_allows(running, peers):
    """maxUnackedPerFlow is 1000 here: credit beyond that waits for acks."""
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m", credit=100_000)
    producer = await peers.open_producer(running)
    await producer.publish(*map(str, range(1500)))
    deliver, values = await flow.deliver()
    assert len(values) == 1000
    await quiet(flow)
    assert await flow.ack(deliver, 400) == ""
    got = 0
    while got < 400:
        deliver, values = await flow.deliver()
        got += len(values)
    await quiet(flow)
    assert (got, deliver.stop) == (400, 1400)


@pytest.mark.req("HND-24")
async def test_a_flow_that_the_limit_holds_up_is_reported(running, peers, monkeypatch, caplog):
    """Once, until something is acknowledged. A client whose room is used up is no such case."""
    monkeypatch.setattr(flow_liveness, "STUCK_S", 0.0)

    def told(member):
        return [text for text in caplog.messages if text.startswith(f"flow of {member} in workers")]

    await running.assign("m", [0])
    await running.assign("n", [1])
    stuck = await peers.open_flow(running, "m", credit=100_000)
    busy = await peers.open_flow(running, "n", "j", credit=1000)
    producer = await peers.open_producer(running)
    for partition in (0, 1):
        await producer.publish(*map(str, range(1500)), partition=partition)
    assert len((await busy.deliver())[1]) == 1000
    deliver, _ = await stuck.deliver()
    for times in (1, 2):
        await peers.eventually(lambda: len(told("m")) == times, "it is told")  # noqa: B023
        running.broker.flow_registry.look()
        assert len(told("m")) == times
        assert await stuck.ack(deliver, times) == ""
        await stuck.deliver()
    assert "1000 messages are not acknowledged, which is the limit" in told("m")[0]
    assert told("n") == []


async def test_a_flow_with_nothing_to_acknowledge_is_not_held_up(running, peers, caplog):
    """However long nothing came: the time counts from the first message in hand."""
    await running.assign("m", [0])
    member = await peers.open_flow(running, "m", credit=100_000)
    (flow,) = running.broker.flow_registry.flows
    flow.acked_at -= flow_liveness.STUCK_S + 1
    producer = await peers.open_producer(running)
    await producer.publish(*map(str, range(1500)), partition=0)
    assert len((await member.deliver())[1]) == 1000
    running.broker.flow_registry.look()
    assert flow.credit.is_at_limit
    assert not [text for text in caplog.messages if text.startswith("flow of m in workers")]


async def test_the_time_in_which_a_broker_stood_still_is_no_silence_of_its_flows(running, peers):
    """It has read nothing meanwhile: their pings are there, and the look at them comes first."""
    await running.assign("m", [0])
    member = await peers.open_flow(running, "m")
    await member.expect(frames.Assigned)
    (flow,) = running.broker.flow_registry.flows
    time.sleep(flow_liveness.PING_LOST_S + flow_liveness.LOOK_GAP_S)  # noqa: ASYNC251 - the block itself
    for _ in range(2):
        running.broker.flow_registry.look()
        assert not flow.is_closed
    flow.last_seen -= flow_liveness.PING_LOST_S
    running.broker.flow_registry.look()
    assert flow.is_closed, "what is silent while the broker looks is lost"


@pytest.mark.req("PUL-72", "PUL-73", "PUL-74", "PUL-75")
async def test_the_acknowledged_are_skipped_and_cost_no_credit(scene, peers):
    """A redelivery holds the rest of the window, and says what to pass over."""
    await scene.producer.publish(*map(str, range(3, 9)))
    await scene.source.deliver()
    assert await scene.source.ack(scene.held, ranges=[(1, 2), (4, 6)]) == ""
    await scene.source.close()
    again = await peers.open_flow(scene.running, "m", credit=3)
    deliver, values = await again.deliver()
    assert (values, deliver.skip) == (["a", "c"], [(1, 2)])
    deliver, values = await again.deliver()
    assert (values, deliver.start, deliver.cause) == (["3"], 3, Cause.FLOW_LOST)
    await again.send(frames.Credit(2))
    deliver, values = await again.deliver()
    assert values == ["6", "7"]
    assert [o for a, b in deliver.skip for o in range(a, b)] == [
        offset for offset in (4, 5) if offset >= deliver.start
    ]


async def test_a_delivery_says_where_its_batch_lies_and_came_from(scene):
    assert (scene.held.first_offset, scene.held.start, scene.held.stop) == (0, 0, 3)
    assert scene.held.append_broker_epoch == scene.held.broker_epoch
    assert scene.held.at_ms > 0


# ---- acks ---------------------------------------------------------------------------------------


async def test_an_ack_is_confirmed_after_it_is_stored(scene, peers):
    """What the record says when the confirmation comes is what was acknowledged."""
    flushes = peers.Gate(scene.running.broker.partitions, "flush")
    ack = asyncio.create_task(scene.source.ack(scene.held, 2))
    await flushes.reached.wait()
    assert (await record(scene, peers)).cursor == 0
    assert not ack.done()
    flushes.opened.set()
    assert await ack == ""
    assert (await record(scene, peers)).cursor == 2


@pytest.mark.req("PUL-20", "PUL-21")
@pytest.mark.parametrize(
    ("acks", "cursor", "acked"),
    [
        pytest.param([{"upto": 2}], 2, [], id="cumulative"),
        pytest.param([{"ranges": [(1, 2)]}], 0, [(1, 2)], id="one"),
        pytest.param([{"ranges": [(2, 3)]}, {"ranges": [(0, 2)]}], 3, [], id="ranges that meet"),
        pytest.param([{"ranges": [(1, 3)]}, {"upto": 1}], 3, [], id="both kinds"),
        pytest.param([{"upto": 1, "ranges": [(2, 3)]}], 1, [(2, 3)], id="both in one"),
        pytest.param([{"upto": 2}, {"upto": 1}], 2, [], id="one that is behind"),
        pytest.param([{"upto": 2}, {"upto": 2}], 2, [], id="a repeat"),
    ],
)
async def test_acks_add_up(scene, peers, acks, cursor, acked):
    for ack in acks:
        assert await scene.source.ack(scene.held, **ack) == ""
    stored = await record(scene, peers)
    assert (stored.cursor, stored.acked) == (cursor, acked)


@pytest.mark.parametrize(
    ("ack", "expected"),
    [
        pytest.param({"upto": 4}, "not_delivered", id="beyond what was delivered"),
        pytest.param({"ranges": [(2, 4)]}, "not_delivered", id="a range beyond it"),
        pytest.param({"ranges": [(2, 2)]}, "not_delivered", id="an empty range"),
        pytest.param({"upto": 1, "epoch": 1}, "fenced", id="an older epoch"),
        pytest.param({"upto": 1, "broker_epoch": 1}, "fenced", id="an older broker epoch"),
        pytest.param({"upto": 1, "partition": 1}, "fenced", id="another member's partition"),
        pytest.param(
            {"upto": 1, "partition": 99}, "unknown_partition", id="a partition that is none"
        ),
        pytest.param({"upto": 1, "delivery": 7}, "rewound", id="a delivery that never was"),
    ],
)
async def test_an_ack_that_does_not_fit_counts_for_nothing(scene, peers, ack, expected):
    assert await scene.source.ack(scene.held, **ack) == expected
    stored = await record(scene, peers)
    assert (stored.cursor, stored.acked) == (0, [])
    assert await scene.source.ack(scene.held, 3) == ""


@pytest.mark.req("SOL-07", "FAIL-01", "FAIL-12")
async def test_an_ack_of_another_flow_is_fenced(scene, peers):
    stranger = await peers.open_flow(scene.running, "n", "j")
    assert await stranger.ack(scene.held, 3) == "fenced"


# ---- releases -----------------------------------------------------------------------------------


async def test_what_is_released_comes_again_in_order(scene):
    """Under a higher delivery number, before anything newer."""
    await scene.producer.publish("d")
    await scene.source.deliver()
    await scene.source.release(scene.held, 1)
    deliver, values = await scene.source.deliver()
    assert (values, deliver.delivery, deliver.epoch) == (["b", "c"], 1, scene.held.epoch)
    assert (await scene.source.deliver())[1] == ["d"]


async def test_acks_of_before_a_release_count_below_it_only(scene, peers):
    """A cumulative one is refused where it would reach what was sent again since."""
    await scene.source.release(scene.held, 1)
    again, _ = await scene.source.deliver()
    assert await scene.source.ack(scene.held, 3) == "rewound"
    assert await scene.source.ack(scene.held, 1) == ""
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    stored = await record(scene, peers)
    assert (stored.cursor, stored.acked) == (1, [(2, 3)])
    assert await scene.source.ack(again, 3) == ""


async def test_a_release_that_cannot_be_ends_the_flow(scene):
    """The client's book is not the broker's: it starts anew, and gets everything again."""
    await scene.source.release(scene.held, 9)
    failed, _ = await scene.source.find(frames.Failed)
    assert failed.code == "not_delivered"
    await scene.source.ended()


# ---- binds --------------------------------------------------------------------------------------


@pytest.mark.req("HND-28")
async def test_a_bind_of_the_same_life_takes_over(scene, peers):
    """A client that reconnects gets its partitions back at once, under a higher epoch."""
    again = await peers.open_flow(scene.running, "m")
    revoked, _ = await scene.source.find(frames.Revoked)
    assert revoked.cause == Cause.FLOW_LOST
    await scene.source.ended()
    deliver, values = await again.deliver()
    assert deliver.epoch > scene.held.epoch
    assert (values, deliver.cause, deliver.redeliveries) == (
        ["a", "b", "c"],
        Cause.FLOW_LOST,
        [(0, 1)],
    )


@pytest.mark.req("FAIL-02")
async def test_a_second_life_waits_for_a_missed_ping(scene, peers, clock):
    """While the older one answers, it is refused; then it wins, and the older one is told."""
    second = await peers.connect(
        scene.running, "/v1/queues/orders/groups/workers/flow", peers.CONSUME
    )
    await second.send(frames.Bind("m", "second life", 100))
    failed, _ = await second.expect(frames.Failed)
    assert (failed.code, failed.retry_after_ms > 0) == ("member_in_use", True)

    scene.source.fall_silent()
    clock.ahead_s += 1.6  # one ping was missed
    winner = await peers.open_flow(scene.running, "m", "second life")
    assert (await winner.deliver())[1] == ["a", "b", "c"]
    await scene.source.find(frames.Revoked)
    await scene.source.ended()


async def test_a_member_that_is_not_listed_is_refused(running, peers):
    flow = await peers.connect(running, "/v1/queues/orders/groups/workers/flow", peers.CONSUME)
    await flow.send(frames.Bind("stranger", "i", 100))
    failed, _ = await flow.expect(frames.Failed)
    assert (failed.code, failed.retry_after_ms) == ("not_listed", 1000)
    assert "call again" in failed.message, "the first call of each new member may be told this"
    assert "whether a coordinator (on Kubernetes: the operator) runs" in failed.message
    await flow.ended()


@pytest.mark.req("SOL-43")
async def test_a_silent_flow_is_lost(scene, peers, clock):
    """Three seconds without a frame; a flow that pings continues."""
    other = await peers.open_flow(scene.running, "n", "j")
    scene.source.fall_silent()
    clock.ahead_s += 2.9
    await quiet(other)
    clock.ahead_s += 0.2
    await scene.source.find(frames.Revoked)
    await scene.source.ended()
    await quiet(other)
    _, state = await scene.running.call("GET", "/admin/v1/queues/orders/state")
    assert [lost["member"] for lost in state["lost_flows"]] == ["m"]
    assert [flow["member"] for flow in state["flows"]] == ["n"]


async def test_a_client_that_does_not_read_fills_nothing(scene, peers, clock, monkeypatch):
    """Answers wait up to a bound, then its frames do; then it is silent, lost and cut off."""
    monkeypatch.setattr(flow_route, "MAX_CONTROLS", 20)
    monkeypatch.setattr(flow_route, "MAX_OPEN_ACKS", 20)
    flow = scene.running.broker.flow_registry.find("workers", "m")
    for socket in scene.running.runner.app[SOCKETS]:
        peers.Gate(socket, "send")  # as with full buffers: it never ends
    for request in range(100):
        await scene.source.send(
            frames.Ack(request, 1, 0, scene.held.broker_epoch, scene.held.epoch, 0, 1)
        )
    await peers.eventually(lambda: flow.control_count >= 20, "answers wait")
    scene.source.fall_silent()
    clock.ahead_s += 3.1
    await peers.eventually(lambda: flow.is_closed, "lost")
    assert flow.control_count < 50
    await scene.source.ended()


# ---- pings and the lease ------------------------------------------------------------------------


async def test_a_ping_is_answered_after_a_renewal_that_began_after_it(scene, peers):
    """The renewal under way when it comes proves nothing."""
    leases = scene.running.broker.leases
    renewals = peers.Gate(leases, "renew")
    await scene.source.send(frames.Ping(1))
    await renewals.reached.wait()
    await scene.source.send(frames.Ping(2))
    pongs = asyncio.create_task(two_pongs(scene.source))
    await scene.running.state()
    assert not pongs.done()
    renewals.opened.set()
    assert await pongs == [1, 2]


async def two_pongs(flow):
    return [(await flow.find(frames.Pong))[0].nonce for _ in range(2)]


async def test_a_broker_whose_lease_is_over_delivers_nothing(scene, peers, clock):
    """And continues under the same token when nobody has claimed."""
    renewals = peers.Gate(scene.running.broker.leases, "renew")
    await renewals.reached.wait()
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"]
    clock.ahead_s += peers.LEASE_S + 0.1
    assert not scene.running.broker.lease.is_valid
    await scene.producer.offer(4, "e")
    refused, _ = await scene.producer.expect(frames.PublishRefused)
    assert (refused.code, refused.retry_after_ms) == ("not_stored", 1000)
    await scene.source.release(scene.held, 2)
    renewals.opened.set()
    deliver, values = await scene.source.deliver()
    assert (values, deliver.epoch) == (["c"], scene.held.epoch)


async def test_a_bind_that_is_ended_before_it_begins_is_not_left_over(scene, peers):
    """As when the broker ends in that moment; else Python warns that nobody has waited for it."""
    registry = scene.running.broker.flow_registry
    registry.bind_soon(scene.running.broker.owned[peers.partition_id(0)].groups["workers"])
    await registry._tasks.close()


# ---- far behind ---------------------------------------------------------------------------------


async def test_a_consumer_that_is_far_behind_reads_from_redis(start_broker, peers):
    """The memory tail holds the newest only; nothing is skipped where the two meet."""
    running = await start_broker(tail_bytes=5000)
    await running.claim_all()
    await running.assign("m", [0])
    owned = running.broker.owned[peers.partition_id(0)]
    producer = await peers.open_producer(running)
    for number in range(30):
        await producer.publish(f"{number}-{'x' * 80}")
    assert owned.tail.find(0) is None
    flow = await peers.open_flow(running, "m", credit=100)
    values = await flow.take(30)
    assert [value.partition("-")[0] for value in values] == [str(n) for n in range(30)]


async def test_what_every_group_has_behind_it_is_trimmed(running, peers):
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m")
    producer = await peers.open_producer(running)
    for number in range(5):
        await producer.publish(f"{number}")
    await flow.take(3)

    async def is_trimmed():
        return (await running.broker.partitions.read(peers.partition_id(0))).trimmed == 3

    await peers.eventually(is_trimmed, "trimmed up to the lowest mark")


def test_values_of_leaves_out_what_is_skipped(peers):
    deliver = frames.Deliver(1, 0, 1, 1, 0, 1, 0, 10, 11, 14, skip=[(12, 13)])
    assert values_of(deliver, peers.make_batch(["a", "b", "c", "d"])) == ["b", "d"]
