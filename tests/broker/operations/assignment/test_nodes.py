"""Nodes of a client-assigned group say which of how many they are, and agree."""

import pytest

from partq.core.model import MemberId
from partq.store.records.members import Members as Records


@pytest.mark.req("TUB-23")
async def test_nodes_that_agree_are_shown(members):
    assert await members.node("m", 2, 0) == {"source_count": 2, "node_id": 0}
    assert await members.node("m", 2, 0) == {"source_count": 2, "node_id": 0}, "a repeat"
    assert await members.node("n", 2, 1) == {"source_count": 2, "node_id": 1}
    shown = await members.call("GET", "/partitions")
    assert shown["nodes"] == {
        "m": {"source_count": 2, "node_id": 0},
        "n": {"source_count": 2, "node_id": 1},
    }
    await members.register("n")
    assert (await members.look())["node_id"] == 1


@pytest.mark.req("TUB-24")
async def test_another_count_than_the_rest_is_refused_and_both_are_named(running, members, peers):
    await members.node("m", 2, 0)
    status, answer = await running.call(
        "PUT",
        "/v1/queues/orders/groups/workers/members/n/node",
        json={"incarnation": "i", "source_count": 3, "node_id": 1},
        token=peers.CONSUME,
    )
    assert (status, answer["error"]["code"]) == (409, "source_count_differs")
    assert "source_count 3, but member m has 2" in answer["error"]["message"]
    # Alone, a node may say another count: nobody contradicts it.
    assert await members.node("m", 3, 2) == {"source_count": 3, "node_id": 2}


@pytest.mark.req("TUB-25")
async def test_a_number_that_is_in_use_is_refused_until_it_is_free(running, members):
    await members.node("m", 2, 0)
    assert await members.node("n", 2, 0) == "node_in_use"
    params = {"incarnation": "earlier"}
    assert await members.call("DELETE", "/members/m/node", params=params) == "fenced"
    assert await members.node("n", 2, 0) == "node_in_use", "a late word of an earlier process"
    for _ in range(2):  # and a repeat
        cleared = await members.call("DELETE", "/members/m/node", params={"incarnation": "i"})
        assert cleared == {"member": "m"}
    assert await members.node("n", 2, 0) == {"source_count": 2, "node_id": 0}


@pytest.mark.parametrize(
    ("member", "code", "text"),
    [
        ("stranger", "not_listed", "member stranger may not join workers yet"),
        ("m" * 1000, "bad_request", "got 1000 characters, expected at most 253"),
        ("a%0Ab", "bad_request", "expected printable characters"),
    ],
)
async def test_a_member_that_cannot_be_a_node_is_told_why(running, peers, member, code, text):
    path = f"/v1/queues/orders/groups/workers/members/{member}"
    body = {"incarnation": "i", "source_count": 2, "node_id": 0}
    _, answer = await running.call("PUT", f"{path}/node", json=body, token=peers.CONSUME)
    assert (answer["error"]["code"], text in answer["error"]["message"]) == (code, True), answer
    body = {"incarnation": "i", "epoch": 1}
    _, answer = await running.call("PUT", f"{path}/partitions/1.0", json=body, token=peers.CONSUME)
    assert (answer["error"]["code"], text in answer["error"]["message"]) == (code, True), answer


@pytest.mark.req("TUB-25")
async def test_a_number_is_free_when_its_member_is_not_listed_any_more(running, members, store):
    """Whether or not who unlisted it, of whatever version, took its number off."""
    await members.node("m", 2, 0)
    keys = running.broker.keys
    await store.read("HDEL", keys.members("workers"), "member:m")
    assert await members.node("n", 2, 0) == {"source_count": 2, "node_id": 0}
    assert (await members.call("GET", "/partitions"))["nodes"].keys() == {"n"}


@pytest.mark.req("TUB-25")
async def test_a_restarted_node_keeps_its_number(members):
    await members.node("m", 2, 0, incarnation="first")
    assert await members.node("m", 2, 0, incarnation="second") == {
        "source_count": 2, "node_id": 0
    }  # fmt: skip


@pytest.mark.req("TUB-25")
async def test_a_late_word_of_an_earlier_process_is_refused(members):
    await members.node("m", 3, 0, incarnation="first")
    await members.node("m", 3, 1, incarnation="second")
    assert await members.node("m", 3, 0, incarnation="first") == "fenced", "a late repeat"
    assert (await members.call("GET", "/partitions"))["nodes"]["m"]["node_id"] == 1
    assert await members.node("n", 3, 1) == "node_in_use"
    # Of one that has said that it ends, too: its number is free.
    await members.call("DELETE", "/members/m/node", params={"incarnation": "second"})
    assert await members.node("m", 3, 1, incarnation="second") == "fenced", "a late repeat"
    assert await members.node("n", 3, 1) == {"source_count": 3, "node_id": 1}
    assert await members.node("m", 3, 0, incarnation="third") == {"source_count": 3, "node_id": 0}


async def test_what_has_ended_of_a_member_is_bounded_and_forgotten_with_it(running, members, store):
    for number in range(20):
        await members.node("m", 3, 0, incarnation=f"process-{number}")
    key = running.broker.keys.members("workers")
    ended = (await store.read("HGET", key, "ended:m")).decode().split("\n")
    assert ended == [f"process-{number}" for number in range(3, 19)]
    await Records(store, running.broker.keys).unlist("workers", MemberId("m"))
    assert await store.read("HGET", key, "ended:m") is None


async def test_no_other_process_speaks_for_a_member_that_is_connected(members, running, peers):
    await peers.open_flow(running, "m", "j")
    assert await members.node("m", 3, 0, incarnation="i") == "member_in_use"
    assert await members.node("m", 3, 1, incarnation="j") == {"source_count": 3, "node_id": 1}


@pytest.mark.parametrize("incarnation", ["", "a\nb", "\x00"])
async def test_an_incarnation_that_no_bind_can_have_is_refused(members, incarnation):
    assert await members.node("m", 3, 0, incarnation=incarnation) == "bad_request"
    params = {"incarnation": incarnation}
    assert await members.call("DELETE", "/members/m/node", params=params) == "bad_request"
    assert await members.register("m", incarnation=incarnation) == "bad_request"
    assert (await members.look())["member"] == ""


@pytest.mark.req("TUB-27")
async def test_below_0_nothing_is_compared(members):
    await members.node("m", 2, 0)
    assert await members.node("n", -1, -1) == {"source_count": -1, "node_id": -1}
    assert await members.node("m", 3, 2) == {"source_count": 3, "node_id": 2}


@pytest.mark.req("TUB-34")
@pytest.mark.parametrize(("count", "node_id"), [(3, 3), (3, -1), (0, 0)])
async def test_a_number_that_there_is_not_is_refused_with_both_numbers(
    running, peers, count, node_id
):
    status, answer = await running.call(
        "PUT",
        "/v1/queues/orders/groups/workers/members/m/node",
        json={"incarnation": "i", "source_count": count, "node_id": node_id},
        token=peers.CONSUME,
    )
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    message = answer["error"]["message"]
    assert f"node_id {node_id}" in message
    assert f"source_count {count}" in message
