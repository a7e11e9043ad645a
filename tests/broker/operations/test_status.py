"""What a client, a person and a scraper ask of a broker."""

import pytest

from partq.broker.operations.gauges import render_metrics
from partq.embedded.provision import provision
from partq.resources import group_document, queue_document, resources_of
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.wire import frames
from tests.broker.conftest import LIMITS

QUEUE = "/v1/queues/orders"


async def test_health_and_readiness(running):
    """Alive as long as it answers; ready while it has its lease and knows its queue."""
    assert await running.call("GET", "/healthz", token=None) == (
        200, {"status": "ok", "broker": "orders-0"},
    )  # fmt: skip
    assert await running.call("GET", "/readyz", token=None) == (
        200, {"status": "ready", "has_lease": True, "partitions": 4},
    )  # fmt: skip


async def test_a_broker_that_loses_its_lease_is_not_ready(running, peers, clock):
    renewals = peers.Gate(running.broker.leases, "renew")
    await renewals.reached.wait()
    clock.ahead_s += peers.LEASE_S + 0.1
    status, answer = await running.call("GET", "/readyz", token=None)
    assert (status, answer["status"], answer["has_lease"]) == (503, "not ready", False)
    renewals.opened.set()


@pytest.mark.req("TUB-10")
async def test_the_layout_tells_clients_where_everything_is(running, peers, start_broker):
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})

    async def is_complete():
        _, answer = await running.call("GET", f"{QUEUE}/layout", token=peers.CONSUME)
        return answer if len(answer["owners"]) == 4 and len(answer["brokers"]) == 2 else None

    assert await peers.eventually(is_complete, "both brokers are seen") == {
        "queue": "orders",
        "namespace": "default",
        "uid": "0f3a9c1e",
        "generations": [{"generation": 1, "partitions": 4}],
        "brokers": [
            {"broker": "orders-0", "url": running.url},
            {"broker": "orders-1", "url": other.url},
        ],
        "owners": {"1.0": "orders-1", "1.1": "orders-0", "1.2": "orders-0", "1.3": "orders-0"},
        "limits": {"max_message_bytes": 4096, "max_unacked_per_flow": 1000},
        "keyless_policy": running.broker.config.keyless_policy,
        "groups": ["workers"],
        "features": ["atomic", "message-ids", "scheduled"],
    }


async def test_a_broker_that_cannot_read_who_lives_tells_no_layout(running, peers, clock):
    """It would name itself alone, and clients would leave brokers that serve."""
    reads = peers.Gate(running.broker.claims, "refresh")
    await reads.reached.wait()
    path = f"{QUEUE}/layout"
    clock.ahead_s += peers.LEASE_S
    assert (await running.call("GET", path, token=peers.CONSUME))[0] == 200
    clock.ahead_s += peers.LEASE_S
    status, answer = await running.call("GET", path, token=peers.CONSUME)
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    assert "orders-0: it has not read for" in answer["error"]["message"]
    # What others know of a group would be missing, too.
    status, answer = await running.call("GET", f"{QUEUE}/groups/workers/picture")
    assert (status, answer["error"]["code"]) == (503, "unavailable")
    reads.opened.set()

    async def is_told():
        return (await running.call("GET", path, token=peers.CONSUME))[0] == 200

    await peers.eventually(is_told, "the layout is told again")


@pytest.mark.req("PUL-69", "TUB-07")
async def test_the_lag_is_one_number_everywhere_and_never_below_0(scene, monkeypatch):
    """What is acknowledged above the cursor does not count, neither here nor there."""
    running = scene.running
    assert await scene.source.ack(scene.held, ranges=[(1, 2)]) == ""
    _, status = await running.call("GET", f"{QUEUE}/status")
    metrics = render_metrics(running.broker).decode()
    (gauge,) = [
        line for line in metrics.splitlines() if line.startswith("partq_lag{") and '"1.0"' in line
    ]
    row = status["groups"]["workers"]["partitions"]["1.0"]
    state = await running.state()
    assert (row["lag"], state["lag"], float(gauge.rpartition(" ")[2])) == (2, 2, 2.0)

    read_many = running.broker.partitions.read_many

    async def read_before(partitions, **options):
        records = await read_many(partitions, **options)
        await scene.producer.publish("d")
        held, _ = await scene.source.deliver()
        assert await scene.source.ack(held, 4) == ""
        return records

    monkeypatch.setattr(running.broker.partitions, "read_many", read_before)
    _, status = await running.call("GET", f"{QUEUE}/status")
    row = status["groups"]["workers"]["partitions"]["1.0"]
    assert (row["cursor"], status["partitions"]["1.0"]["end"]) == (4, 3), "of two moments"
    assert (row["lag"], status["groups"]["workers"]["lag"]) == (0, 0)


@pytest.mark.req("SOL-30", "SOL-32", "AZR-52", "TUB-07", "TUB-29")
async def test_the_status_shows_every_partition_and_group(scene):
    """By the records, and the states that only this broker knows."""
    await scene.producer.publish("d", partition=1)
    await scene.paused()
    status, answer = await scene.running.call("GET", f"{QUEUE}/status")
    assert status == 200
    assert answer["store"]["appendfsync"] == "always"
    first = answer["partitions"]["1.0"]
    assert (first["broker"], first["end"], first["bytes"] > 0) == ("orders-0", 3, True)
    assert (first["first"], answer["availability"], answer["unavailable"]) == (0, "Available", [])
    totals = answer["totals"]
    assert (totals["partitions"], totals["messages"]) == (4, 4)
    assert totals["bytes"] == sum(each["bytes"] for each in answer["partitions"].values()) > 0
    group = answer["groups"]["workers"]
    assert (group["type"], group["lag"]) == ("Partitioned", 4)
    ages = [row.pop("lag_ms") for row in group["partitions"].values()]
    assert ages[2:] == [0, 0], "what lags not has no age"
    assert group["lag_ms"] == max(ages)
    assert group["partitions"]["1.0"] == {
        "member": "m", "epoch": scene.held.epoch, "state": "Paused", "cursor": 0, "lag": 3,
        "dead_letters": 0, "blocked": "", "parked": "", "redeliveries": 0,
        "is_withheld": False, "delayed": 0, "next_redelivery_ms": 0,
        "problems": [{"code": "paused", "text": "in a handoff"}],
    }  # fmt: skip
    assert (group["partitions"]["1.1"]["state"], group["partitions"]["1.1"]["lag"]) == (
        "Unassigned", 1,
    )  # fmt: skip
    assert group["members"] == [
        {"member": "m", "partitions": 1, "state": "Active"},
        {"member": "n", "partitions": 0, "state": "Standby"},
    ]


async def test_a_status_that_may_be_old_is_shared(scene):
    """With `max_age_ms` the records are not read again for each that asks; without it they are."""
    old = f"{QUEUE}/status?max_age_ms=10000"
    _, first = await scene.running.call("GET", old)
    await scene.producer.publish("d")
    assert (await scene.running.call("GET", old))[1] == first
    _, now = await scene.running.call("GET", f"{QUEUE}/status")
    assert now["partitions"]["1.0"]["end"] == first["partitions"]["1.0"]["end"] + 1
    for wrong in ("-1", "10001", "1.5", "soon"):
        status, _ = await scene.running.call("GET", f"{QUEUE}/status?max_age_ms={wrong}")
        assert status == 400, wrong


async def test_how_often_what_is_not_acknowledged_was_redelivered(scene, peers):
    assert await scene.source.nack(scene.held, [(0, 2)], delay_ms=0) == ""

    async def is_counted():
        _, answer = await scene.running.call("GET", f"{QUEUE}/status")
        return answer["groups"]["workers"]["partitions"]["1.0"]["redeliveries"] == 2

    await peers.eventually(is_counted, "two redeliveries are stored")
    held, _ = await scene.source.deliver()
    assert await scene.source.ack(held, 2) == ""
    _, answer = await scene.running.call("GET", f"{QUEUE}/status")
    assert answer["groups"]["workers"]["partitions"]["1.0"]["redeliveries"] == 0


async def test_how_long_the_oldest_message_has_waited(scene):
    """What a group has acknowledged waits no longer, whatever is younger."""
    log = scene.running.broker.log
    read_times = log.read_times

    async def half_a_minute_later(*args):
        _, times = await read_times(*args)
        return max((at_ms or 0 for at_ms in times), default=0) + 30_000, times

    log.read_times = half_a_minute_later
    _, answer = await scene.running.call("GET", f"{QUEUE}/status")
    group = answer["groups"]["workers"]
    assert group["lag_ms"] == group["partitions"]["1.0"]["lag_ms"] == 30_000
    assert await scene.source.ack(scene.held, 3) == ""
    _, answer = await scene.running.call("GET", f"{QUEUE}/status")
    assert (answer["groups"]["workers"]["lag"], answer["groups"]["workers"]["lag_ms"]) == (0, 0)


@pytest.mark.req("AZR-53")
async def test_with_a_partition_that_nobody_serves_the_queue_is_limited(running, monkeypatch):
    monkeypatch.setattr("partq.broker.ownership.claims.FIRST_CLAIM_WAIT_S", 600.0)
    names = ["1.1", "1.2"]
    for result in await running.admin("/yield", {"partitions": names}):
        assert "error" not in result
    _, answer = await running.call("GET", f"{QUEUE}/status")
    assert (answer["availability"], answer["unavailable"]) == ("Limited", names)
    assert answer["totals"]["partitions"] == 4
    await running.admin("/yield", {"partitions": ["1.0", "1.3"]})
    _, answer = await running.call("GET", f"{QUEUE}/status")
    assert answer["availability"] == "Unavailable"


async def test_metrics_are_there_for_everything_that_flows(scene):
    assert await scene.source.ack(scene.held, 1) == ""
    url = f"{scene.running.url}/metrics"
    async with scene.running.session.get(url) as response:
        assert response.status == 200
        lines = (await response.text()).splitlines()
    queue = 'namespace="default",queue="orders"'
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values[f"partq_messages_accepted_total{{{queue}}}"] == "3.0"
    assert (
        values[f'partq_messages_delivered_total{{cause="none",group="workers",{queue}}}'] == "3.0"
    )
    assert values[f'partq_messages_acked_total{{group="workers",{queue}}}'] == "1.0"
    assert (
        values[f'partq_lag{{group="workers",{queue[:19]},partition="1.0",{queue[20:]}}}'] == "2.0"
    )
    assert values[f"partq_partitions_owned{{{queue}}}"] == "4.0"


@pytest.mark.req("PUL-77")
async def test_what_single_acks_cost_is_a_metric(scene):
    """Each range that was acknowledged above the cursor is kept until the cursor passes it."""

    async def ranges():
        async with scene.running.session.get(f"{scene.running.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        found = [line for line in lines if line.startswith("partq_ack_ranges{")]
        return [float(line.rsplit(" ", 1)[1]) for line in sorted(found)]

    await scene.producer.publish("d", "e")
    held, _ = await scene.source.deliver()
    assert await ranges() == [0, 0, 0, 0]
    assert await scene.source.ack(held, ranges=[(1, 2), (3, 4)]) == ""
    assert await ranges() == [2, 0, 0, 0]
    assert await scene.source.ack(held, 3) == ""
    assert await ranges() == [0, 0, 0, 0]


@pytest.mark.req("SOL-11")
async def test_few_keys_are_seen_as_a_skew(running, peers):
    """One key has nine messages of ten: its partition shows them, in the status and as a metric."""
    producer = await peers.open_producer(running)
    for number in range(9):
        await producer.publish(str(number), partition=2)
    await producer.publish("other", partition=0)
    _, answer = await running.call("GET", f"{QUEUE}/status")
    assert [row["end"] for row in answer["partitions"].values()] == [1, 0, 9, 0]
    async with running.session.get(f"{running.url}/metrics") as response:
        lines = (await response.text()).splitlines()
    lag = [line for line in lines if line.startswith("partq_lag{")]
    assert [float(line.rsplit(" ", 1)[1]) for line in sorted(lag)] == [1, 0, 9, 0]


@pytest.mark.req("SOL-31")
async def test_the_state_for_the_coordinator(scene):
    _, state = await scene.running.call("GET", "/admin/v1/queues/orders/state")
    assert (state["broker"], set(state["partitions"])) == ("orders-0", {"1.0", "1.1", "1.2", "1.3"})
    group = state["partitions"]["1.0"]["groups"]["workers"]
    assert group == {
        "member": "m", "incarnation": "i", "epoch": scene.held.epoch, "attempt": 1, "cursor": 0,
        "position": 3, "in_flight": 3, "lag": 3, "state": "Ready", "is_bound": True,
        "pause_attempt": 0, "dead_letters": 0, "blocked": "", "missing": "", "parked": "",
        "is_withheld": False, "delayed": 0, "next_redelivery_ms": 0,
        "mended": "",
    }  # fmt: skip
    (flow,) = state["flows"]
    assert (flow["member"], flow["kind"], flow["address"], flow["is_leaving"]) == (
        "m", "flow", "127.0.0.1", False,
    )  # fmt: skip
    await scene.source.send(frames.Leave())
    await scene.source.send(frames.Ping(1))
    await scene.source.find(frames.Pong)
    _, state = await scene.running.call("GET", "/admin/v1/queues/orders/state")
    assert state["flows"][0]["is_leaving"] is True


async def test_a_group_that_is_made_later_is_served_without_a_restart(
    running, store, resources, peers
):
    """Its cursors start where the spec says; calls for it need not wait for the next refresh."""
    producer = await peers.open_producer(running)
    await producer.publish("a")
    more = resources_of(
        queue_document("orders", partitions=4, limits=LIMITS),
        group_document("late", "orders", start="Earliest"),
    )
    await provision(store, more.queues[0], more, uid="0f3a9c1e")
    body = {"pauses": []}
    status, _ = await running.call("POST", "/admin/v1/queues/orders/groups/late/pause", json=body)
    assert status == 200
    _, state = await running.call("GET", "/admin/v1/queues/orders/state")
    late = state["partitions"]["1.0"]["groups"]["late"]
    assert (late["cursor"], late["lag"], late["state"]) == (0, 1, "Unassigned")


@pytest.mark.req("SOL-U12")
async def test_a_queue_that_is_deleted_is_served_no_more(running, peers, store, key_prefix):
    """Its flows end, its partitions are given up, and every call says why."""
    await running.assign("m", [0])
    flow = await peers.open_flow(running)
    await flow.expect(frames.Assigned)
    await Layouts(store, Keys(key_prefix, "default", "orders", "0f3a9c1e")).bury()
    await flow.expect(frames.Revoked)

    async def is_refused():
        body = {"key": "k", "value": "v"}
        path = f"{QUEUE}/messages"
        status, answer = await running.call("POST", path, token=peers.PRODUCE, json=body)
        return (status, answer["error"]["code"]) == (404, "unknown_queue")

    await peers.eventually(is_refused, "publishing is refused")
    assert not running.broker.owned
