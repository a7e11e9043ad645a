"""What a member holds, and its leave, by name."""

from urllib.parse import quote

import pytest

from partq.store.records.members import Members

GROUP = "/v1/queues/orders/groups/workers"
MEMBER = "0f3a9c1e-1111-4222-8333-123456789abc/main"
PATH = f"{GROUP}/members/{quote(MEMBER, safe='')}"
ALL = ["1.0", "1.1", "1.2", "1.3"]


@pytest.fixture
async def flow(running, peers):
    """The member is bound and has two partitions; one message of the first is in its hands."""
    members = Members(running.store, running.broker.keys)
    await members.list_member("workers", MEMBER, "127.0.0.1")
    await running.assign(MEMBER, [0, 1])
    producer = await peers.open_producer(running)
    flow = await peers.open_flow(running, MEMBER)
    await producer.publish("a")

    async def delivered():
        return (await running.state(0))["in_flight"] == 1

    await peers.eventually(delivered, "the message is delivered")
    return flow


async def test_what_a_member_holds(flow, running, peers):
    status, answer = await running.call("GET", PATH, token=peers.CONSUME)
    assert status == 200
    assert answer == {
        "owned": ALL,
        "held": {
            "1.0": {"in_flight": 1, "state": "Ready"},
            "1.1": {"in_flight": 0, "state": "Ready"},
        },
        "is_bound": True,
        "is_leaving": False,
        "is_known": True,
    }
    _, stranger = await running.call("GET", f"{GROUP}/members/another", token=peers.CONSUME)
    assert stranger == {
        "owned": ALL, "held": {}, "is_bound": False, "is_leaving": False, "is_known": False
    }  # fmt: skip


async def test_a_member_that_leaves_by_name_goes_on_until_it_is_relieved(flow, running, peers):
    for _ in range(2):
        status, answer = await running.call("POST", f"{PATH}/leave", token=peers.CONSUME)
        assert (status, answer["is_leaving"], list(answer["held"])) == (200, True, ["1.0", "1.1"])
    _, state = await running.call("GET", "/admin/v1/queues/orders/state")
    assert [each["is_leaving"] for each in state["flows"]] == [True]
    assert (await running.state(0))["state"] == "Ready"


async def test_a_member_that_is_not_bound_has_nothing_to_leave(running, peers):
    await running.assign(MEMBER, [2])
    status, answer = await running.call("POST", f"{PATH}/leave", token=peers.CONSUME)
    assert (status, answer["is_leaving"]) == (200, False)
    assert answer["held"] == {"1.2": {"in_flight": 0, "state": "Unbound"}}


async def test_nobody_ends_a_member_from_another_address(flow, running, peers):
    bound = running.broker.flow_registry.find("workers", MEMBER)
    bound.address = "10.0.0.9"
    status, answer = await running.call("POST", f"{PATH}/leave", token=peers.CONSUME)
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert not bound.is_leaving


@pytest.mark.parametrize("call", [("GET", ""), ("POST", "/leave")])
async def test_who_may_ask(running, peers, call):
    method, part = call
    for token, expected in ((peers.PRODUCE, 403), (peers.OTHER_GROUP, 403), (None, 401)):
        status, _ = await running.call(method, PATH + part, token=token)
        assert status == expected
    path = f"/v1/queues/orders/groups/nobody/members/m{part}"
    status, answer = await running.call(method, path)
    assert (status, answer["error"]["code"]) == (404, "unknown_group")


# ---- a sign of life beside the connection ----


def alive(running, peers, bound, token=None, **changed):
    body = {"flow": bound.number, "incarnation": bound.incarnation, **changed}
    return running.call("POST", f"{PATH}/alive", token=token or peers.CONSUME, json=body)


async def test_a_flow_is_kept_by_a_sign_of_life_beside_it(flow, running, peers):
    bound = running.broker.flow_registry.find("workers", MEMBER)
    before = bound.last_seen = bound.last_seen - 1
    status, answer = await alive(running, peers, bound)
    assert (status, answer) == (200, {"lease_ms": running.broker.settings.lease_ttl_s * 1000})
    assert bound.last_seen >= before + 1


@pytest.mark.parametrize("changed", [{"flow": 99}, {"incarnation": "another"}])
async def test_a_sign_of_life_counts_for_one_flow(flow, running, peers, changed):
    bound = running.broker.flow_registry.find("workers", MEMBER)
    status, answer = await alive(running, peers, bound, **changed)
    assert (status, answer["error"]["code"]) == (409, "fenced")


async def test_who_may_give_a_sign_of_life(flow, running, peers):
    bound = running.broker.flow_registry.find("workers", MEMBER)
    for token, expected in ((peers.PRODUCE, 403), (peers.OTHER_GROUP, 403)):
        status, _ = await alive(running, peers, bound, token=token)
        assert status == expected
    status, _ = await running.call("POST", f"{PATH}/alive", token=peers.CONSUME, json={"flow": "x"})
    assert status == 400
