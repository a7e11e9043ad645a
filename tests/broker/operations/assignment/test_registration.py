"""Members take the partitions that they choose: one holder each, and late calls do nothing."""

import asyncio

import pytest

from partq.core.model import MemberId
from partq.errors import StoreUnavailableError
from partq.store.records.members import Members as Records
from partq.wire import frames


@pytest.mark.req("TUB-06", "TUB-10", "TUB-11", "TUB-12")
async def test_a_member_gets_the_partition_that_it_registers_until_it_unregisters(
    running, members, producer, peers
):
    await producer.publish("a", "b", "c")
    shown = await members.look()
    assert (shown["member"], shown["state"], shown["is_subscribable"]) == ("", "Unassigned", True)
    flow = await peers.open_flow(running, "m")
    registered = await members.register("m", epoch=shown["epoch"])
    assert registered["is_new"]
    assert registered["cursor"] == 0
    assigned, _ = await flow.expect(frames.Assigned)
    assert (assigned.partition, assigned.epoch) == (0, registered["epoch"])
    held, values = await flow.deliver()
    assert values == ["a", "b", "c"]
    assert (await members.look())["member"] == "m"

    refused = await members.unregister("m", epoch=registered["epoch"], wait_ms="0")
    assert refused == {"is_free": False, "in_flight": 3, "epoch": registered["epoch"]}
    await flow.expect(frames.Paused)
    waiting = asyncio.create_task(members.unregister("m", epoch=registered["epoch"]))
    assert await flow.ack(held, 3) == ""
    freed = await waiting
    assert freed["is_free"]
    assert freed["epoch"] > registered["epoch"]
    shown = await members.look()
    assert (shown["member"], shown["cursor"], shown["epoch"]) == ("", 3, freed["epoch"])
    await flow.expect(frames.Revoked)
    # Who registers it next goes on where the group is.
    other = await peers.open_flow(running, "n")
    assert (await members.register("n", epoch=freed["epoch"]))["cursor"] == 3
    await producer.publish("d")
    assert (await other.deliver())[1] == ["d"]


@pytest.mark.req("TUB-32")
async def test_another_member_is_refused_and_told_who_holds_it(running, members, peers):
    taken = await members.register("m")
    assert await members.register("n", epoch=taken["epoch"]) == "partition_in_use"
    assert await members.register("n", epoch=0) == "partition_in_use"
    status, answer = await running.call(
        "PUT",
        "/v1/queues/orders/groups/workers/members/n/partitions/1.0",
        json={"incarnation": "i", "epoch": taken["epoch"]},
        token=peers.CONSUME,
    )
    assert (status, "member m holds it" in answer["error"]["message"]) == (409, True)
    assert (await members.look())["member"] == "m"


async def test_a_repeat_has_the_same_answer_and_a_late_call_does_nothing(members):
    before = (await members.look())["epoch"]
    first = await members.register("m", epoch=before)
    assert await members.register("m", epoch=before) == {**first, "is_new": False}
    freed = await members.unregister("m", epoch=first["epoch"])
    assert freed["is_free"]
    assert await members.register("m", epoch=before) == "fenced", "late"
    assert await members.unregister("m", epoch=first["epoch"]) == {**freed, "in_flight": 0}
    again = await members.register("m", epoch=freed["epoch"])
    assert await members.unregister("m", epoch=first["epoch"]) == "fenced", "late"
    assert await members.unregister("n", epoch=again["epoch"]) == "fenced", "not its own"
    assert (await members.look())["member"] == "m"


@pytest.mark.req("TUB-17", "TUB-18", "TUB-U02")
async def test_an_offset_replaces_the_stored_one_and_is_clamped(running, members, producer, peers):
    await producer.publish("a", "b", "c")
    flow = await peers.open_flow(running, "m")
    taken = await members.register("m", offset=2)
    assert (taken["cursor"], taken["is_clamped"]) == (2, False)
    held, values = await flow.deliver()
    assert values == ["c"]
    assert await members.register("m", epoch=taken["epoch"], offset=0) == "conflict", "connected"
    assert (await members.look())["member"] == "m"
    assert await flow.ack(held, 3) == ""
    freed = await members.unregister("m", epoch=taken["epoch"])
    stays = await members.register("m", epoch=freed["epoch"])
    assert (stays["cursor"], stays["is_clamped"]) == (3, False)
    freed = await members.unregister("m", epoch=stays["epoch"])
    back = await members.register("m", epoch=freed["epoch"], offset=1)
    assert back["cursor"] == 1
    assert await members.register("m", epoch=freed["epoch"], offset=1) == {**back, "is_new": False}
    freed = await members.unregister("m", epoch=back["epoch"], is_forced="true")
    beyond = await members.register("m", epoch=freed["epoch"], offset=2**50)
    assert (beyond["cursor"], beyond["is_clamped"]) == (3, True)
    assert await members.register("n", "1.1", offset=-2) == "bad_json"


async def test_what_is_in_flight_goes_to_the_next_member_when_it_is_forced(
    running, members, producer, peers
):
    await producer.publish("a", "b")
    flow = await peers.open_flow(running, "m")
    taken = await members.register("m")
    held, _ = await flow.deliver()
    freed = await members.unregister("m", epoch=taken["epoch"], is_forced="true")
    assert freed["is_free"]
    assert await flow.ack(held, 2) == "fenced"
    other = await peers.open_flow(running, "n")
    await members.register("n", epoch=freed["epoch"])
    frame, values = await other.deliver()
    assert (values, frame.cause != 0) == (["a", "b"], True)


async def test_another_process_of_the_member_is_refused(running, members, peers):
    await peers.open_flow(running, "m", "j")
    assert await members.register("m") == "fenced"
    assert (await members.look())["member"] == ""


async def test_a_member_that_binds_later_gets_what_it_has_registered(running, members, peers):
    taken = await members.register("m")
    assert (await members.look())["state"] == "Unbound"
    flow = await peers.open_flow(running, "m")
    assigned, _ = await flow.expect(frames.Assigned)
    assert assigned.epoch > taken["epoch"]
    # The epoch has grown by its own bind: what it registered, it may give back.
    assert (await members.unregister("m", epoch=taken["epoch"]))["is_free"]


async def test_a_member_that_is_not_listed_is_refused(members):
    assert await members.register("stranger", epoch=0) == "not_listed"


async def test_any_broker_passes_a_call_on_to_the_owner(running, start_broker, members, peers):
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: other.broker.claims.owner_url(peers.partition_id(0)), "it knows the owner"
    )
    epoch = (await members.look(at=other))["epoch"]
    taken = await members.register("m", epoch=epoch, at=other)
    assert taken["is_new"]
    assert await members.register("n", epoch=epoch, at=other) == "partition_in_use"
    assert await members.register("stranger", epoch=epoch, at=other) == "not_listed"
    assert (await members.look())["member"] == "m"
    assert (await members.unregister("m", epoch=taken["epoch"], at=other))["is_free"]


@pytest.mark.req("TUB-32")
async def test_of_two_that_race_one_gets_it_each_time(running, start_broker, members, peers):
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: other.broker.claims.owner_url(peers.partition_id(0)), "it knows the owner"
    )
    epoch, winners = (await members.look())["epoch"], []
    for _ in range(100):
        answers = await asyncio.gather(
            members.register("m", epoch=epoch), members.register("n", epoch=epoch, at=other)
        )
        won = [each for each in answers if isinstance(each, dict)]
        assert len(won) == 1, answers
        assert "partition_in_use" in answers
        record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
        assert record.member == won[0]["member"]
        winners.append(won[0]["member"])
        epoch = (await members.unregister(won[0]["member"], epoch=won[0]["epoch"]))["epoch"]


async def test_a_broker_that_takes_over_knows_what_was_registered(running, members, peers):
    taken = await members.register("m")
    partition = peers.partition_id(0)
    await running.admin("/yield", {"partitions": ["1.0"]})
    await peers.eventually(lambda: partition in running.broker.owned, "it is claimed again")
    assert await members.register("n", epoch=taken["epoch"]) == "partition_in_use"
    flow = await peers.open_flow(running, "m")
    await flow.expect(frames.Assigned)
    assert (await members.unregister("m", epoch=taken["epoch"]))["is_free"]


async def test_the_store_that_does_not_answer_leaves_one_holder(running, members, peers):
    """The script went through and its answer was lost: a repeat of the call finds out."""
    epoch = (await members.look())["epoch"]
    register = running.broker.partitions.register

    async def lose_the_answer(*args, **kwargs):
        running.broker.partitions.register = register
        await register(*args, **kwargs)
        raise StoreUnavailableError("no answer")

    running.broker.partitions.register = lose_the_answer
    assert await members.register("m", epoch=epoch) == "store_unavailable"

    async def registered():
        found = await members.register("m", epoch=epoch)
        return found if isinstance(found, dict) else None

    found = await peers.eventually(registered, "a repeat finds out")
    assert not found["is_new"]
    assert (await members.look())["member"] == "m"


async def test_coordinators_are_told_how_long_ago_a_partition_was_registered(
    running, members, peers
):
    """A registration that follows begins again; what nobody registered says nothing."""

    async def registered_s():
        path = "/admin/v1/queues/orders/state"
        status, state = await running.call("GET", path)
        assert status == 200, state
        groups = {name: each["groups"]["workers"] for name, each in state["partitions"].items()}
        assert {name for name, each in groups.items() if "registered_s" in each} <= {"1.0"}
        return groups["1.0"].get("registered_s")

    assert await registered_s() is None
    taken = await members.register("m")
    assert await registered_s() == 0
    await peers.eventually(registered_s, "time passes")
    freed = await members.unregister("m", epoch=taken["epoch"])
    await members.register("m", epoch=freed["epoch"])
    assert await registered_s() == 0


async def test_who_claims_to_be_a_broker_is_judged_by_its_address(
    running, start_broker, members, peers, store
):
    """Else whoever has a token would register for a member that is listed elsewhere."""
    other = await start_broker("orders-1")
    records = Records(store, running.broker.keys)
    await records.list_member("workers", MemberId("far"), "10.0.0.9")
    body = {"incarnation": "i", "epoch": (await members.look())["epoch"]}
    node = {"incarnation": "i", "source_count": 2, "node_id": 0}
    for forged in (
        {},
        {"Partq-Forwarded": "orders-1"},
        {"Partq-Forwarded": "orders-1", "Partq-Forward-Token": ""},
        {"Partq-Forwarded": "orders-1", "Partq-Forward-Token": peers.CONSUME},
    ):
        for path, sent in (("partitions/1.0", body), ("node", node)):
            told = await members.call(
                "PUT", f"/members/far/{path}", json=sent, headers=dict(forged)
            )
            assert told == "not_listed", (forged, path)
    assert (await members.look())["member"] == ""
    # What a broker forwards is judged by that broker.
    assert (await members.register("m", at=other))["is_new"]
    assert await members.register("far", "1.1", at=other) == "not_listed"
