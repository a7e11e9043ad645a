"""The configured set of partitions, what of it may be registered, and who says so."""

import pytest

from partq.store.records.layout.marks import Marks


@pytest.mark.req("TUB-33")
@pytest.mark.parametrize("what", ["partitions/1.0", "brokers/orders-0"])
async def test_what_is_marked_is_refused_with_the_reason_and_what_is_held_stays(
    running, members, what
):
    held = await members.register("m")
    assert await members.mark(what, False, "its disk is being replaced") == {
        "is_subscribable": False, "reason": "its disk is being replaced"
    }  # fmt: skip
    shown = await members.look()
    assert (shown["is_subscribable"], shown["reason"], shown["member"]) == (
        False, "its disk is being replaced", "m"
    )  # fmt: skip
    assert (await members.register("m", epoch=held["epoch"]))["is_new"] is False
    freed = await members.unregister("m", epoch=held["epoch"])
    assert await members.register("n", epoch=freed["epoch"]) == "not_subscribable"
    other = await members.look("1.1")
    assert other["is_subscribable"] is (what == "partitions/1.0")
    for _ in range(2):
        assert (await members.mark(what, True))["is_subscribable"] is True
    assert (await members.register("n", epoch=freed["epoch"]))["is_new"]


@pytest.mark.req("TUB-33")
async def test_a_mark_outlives_the_broker(running, start_broker, members):
    await members.mark("partitions/1.1", False)
    await running.stop()
    other = await start_broker("orders-1")
    await other.claim_all()
    shown = await members.look("1.1", at=other)
    assert (shown["is_subscribable"], shown["broker"]) == (False, "orders-1")
    assert shown["reason"] == "an administrator has marked it, and gave no reason"


@pytest.mark.req("TUB-20", "TUB-16", "TUB-07")
async def test_all_configured_partitions_are_shown_whether_or_not_they_are_served(
    running, start_broker, members, producer, clock
):
    await producer.publish("a", "b")
    shown = (await members.call("GET", "/partitions"))["partitions"]
    assert {row["key"] for row in shown.values()} == {f"orders:1.{index}" for index in range(4)}
    assert all(row["is_subscribable"] for row in shown.values())
    assert (shown["1.0"]["lag"], shown["1.0"]["end"]) == (2, 2)
    await running.admin("/yield", {"partitions": ["1.2"]})
    while_gone = (await members.call("GET", "/partitions"))["partitions"]
    assert while_gone.keys() == shown.keys()


async def test_what_the_queue_does_not_have_is_not_marked(running, members):
    """A mark that stands for nothing would be taken for one that works."""
    for what, told in (
        ("partitions/1.9", "unknown_partition"),
        ("partitions/9.0", "unknown_partition"),
        ("partitions/first", "bad_request"),
        ("brokers/orders-7", "not_found"),
    ):
        status, answer = await running.call(
            "PUT", f"/v1/queues/orders/{what}/subscribable", json={"is_subscribable": False}
        )
        assert answer["error"]["code"] == told, (what, status, answer)
    assert "broker orders-7: queue orders has orders-0" in answer["error"]["message"]
    assert all(row["is_subscribable"] for row in (
        await members.call("GET", "/partitions")
    )["partitions"].values())  # fmt: skip
    answers = [
        await running.call(
            "PUT", f"/v1/queues/orders/brokers/{name}/subscribable", json={"is_subscribable": True}
        )
        for name in ("orders-7", "orders-0")
    ]
    assert [status for status, _ in answers] == [404, 200], "a known one needs no mark"
    told = answers[0][1]["error"]["message"]
    assert "broker orders-7: queue orders has orders-0; it has no mark that could be taken" in told


async def test_the_mark_of_a_broker_that_is_forgotten_can_be_taken_back(running, members):
    broker = running.broker
    await Marks(broker.store, broker.keys).set("broker:orders-7", "its disk is gone")
    assert (await members.mark("brokers/orders-7", True))["is_subscribable"] is True
    assert await Marks(broker.store, broker.keys).read() == {}


async def test_a_broker_that_is_away_can_be_marked(running, start_broker, members, peers):
    """As long as the queue remembers it: it has a lease, or was the last owner of a partition."""
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: "orders-1" in running.broker.claims.observer.leases, "its lease is read"
    )
    await other.runner.cleanup()
    assert (await members.mark("brokers/orders-1", False))["is_subscribable"] is False
