"""Transactions by plain HTTP: one write stores all messages of a request, or none."""

import pytest

from partq.broker.operations.publish import message_forwarder
from partq.errors import QuotaExceededError
from partq.wire import batch
from partq.wire.frame import ATOMIC, FEATURES

MESSAGES = "/v1/queues/orders/messages?atomic=true"


async def post(running, peers, body, **kwargs):
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, **kwargs)


def of_key(key, *values):
    return [{"key": key, "value": value} for value in values]


def numbered(key, first, *values):
    return [
        {"key": key, "value": value, "sequence": number}
        for number, value in enumerate(values, first)
    ]


async def entries(running, peers, partition):
    """Return how many entries the log of a partition has."""
    key = running.broker.keys.log(peers.partition_id(partition))
    return await running.broker.store.read("XLEN", key)


async def give_to(running, peers, other, partition):
    """Let another broker own a partition, and wait until the first one knows it."""
    name = str(peers.partition_id(partition))
    await running.admin("/yield", {"partitions": [name]})
    await other.admin("/claim", {"partitions": [name]})
    await peers.eventually(
        lambda: running.broker.claims.owner_url(peers.partition_id(partition)), "the owner is known"
    )


async def test_it_is_one_entry_of_the_log_whichever_broker_gets_it(running, peers, start_broker):
    await give_to(running, peers, await start_broker("orders-1"), 1)
    for partition in (0, 1):
        status, answer = await post(running, peers, of_key(peers.key_of(partition), *"abc"))
        places = [{"partition": f"1.{partition}", "offset": offset} for offset in range(3)]
        assert (status, answer) == (201, {"results": places})
        assert await entries(running, peers, partition) == 1


async def test_one_message_alone_may_be_one(running, peers):
    status, answer = await post(running, peers, {"key": peers.key_of(0), "value": "a"})
    assert (status, answer) == (201, {"partition": "1.0", "offset": 0})
    status, answer = await post(running, peers, {"value": "a"})
    assert (status, answer["error"]["code"]) == (400, "transaction_without_key")


@pytest.mark.parametrize(
    ("last", "status", "code"),
    [
        ({"value": "c"}, 400, "transaction_without_key"),
        ({"key": "another", "value": "c"}, 400, "transaction_over_keys"),
        ({"value_base64": "?"}, 400, "bad_request"),
        ({"value": "c", "headers": {"SessionId": "another"}}, 400, "key_conflict"),
        ({"value": "c" * 5000}, 413, "message_too_large"),
        ({"value": "c", "sequence": 7}, 400, "bad_request"),
    ],
)
async def test_one_wrong_message_refuses_all(running, peers, last, status, code):
    key = peers.key_of(0)
    own = {} if code == "transaction_without_key" else {"key": key}
    found, answer = await post(running, peers, [*of_key(key, "a", "b"), {**own, **last}])
    assert (found, answer["error"]["code"]) == (status, code)
    assert [await entries(running, peers, partition) for partition in range(4)] == [0] * 4


async def test_more_than_a_batch_is_refused(running, peers, monkeypatch):
    monkeypatch.setattr(batch, "MAX_BATCH_BYTES", 4000)
    status, answer = await post(running, peers, of_key(peers.key_of(0), "a" * 3000, "b" * 3000))
    assert (status, answer["error"]["code"]) == (413, "batch_too_large")
    assert "expected at most 4000" in answer["error"]["message"]
    assert await entries(running, peers, 0) == 0


async def test_a_refusal_of_the_store_is_one_error_for_all(running, peers, monkeypatch):
    def full(*_args, **_kwargs):
        raise QuotaExceededError("the quota is used up; consume, and publish again")

    with monkeypatch.context() as patch:
        patch.setattr(running.broker, "publish", full)
        status, answer = await post(running, peers, of_key(peers.key_of(0), *"abc"))
    assert (status, answer["error"]["code"]) == (429, "quota_exceeded")
    status, answer = await post(running, peers, of_key(peers.key_of(0), *"abc"))
    assert (status, len(answer["results"])) == (201, 3)


async def test_with_numbers_a_repeat_is_stored_once_also_at_another_broker(
    running, peers, start_broker
):
    key, headers = peers.key_of(1), {"Partq-Producer": "p"}
    status, answer = await post(running, peers, numbered(key, 0, *"abc"), headers=headers)
    assert (status, [each["offset"] for each in answer["results"]]) == (201, [0, 1, 2])
    await give_to(running, peers, await start_broker("orders-1"), 1)
    status, answer = await post(running, peers, numbered(key, 0, *"abc"), headers=headers)
    assert status == 201
    assert [(each["offset"], each["is_duplicate"]) for each in answer["results"]] == [
        (offset, True) for offset in range(3)
    ]
    body = numbered(key, 3, "d", "e")
    body[1]["sequence"] = 5
    status, answer = await post(running, peers, body, headers=headers)
    assert (status, answer["error"]["code"]) == (400, "bad_request")
    assert "message 1: sequence 5, expected 4" in answer["error"]["message"]


async def test_numbers_of_which_some_are_stored_are_not_completed(running, peers):
    """Else a part of a transaction would be stored by a write for itself."""
    key, headers = peers.key_of(0), {"Partq-Producer": "p"}
    await post(running, peers, numbered(key, 0, "a"), headers=headers)
    status, answer = await post(running, peers, numbered(key, 0, *"abc"), headers=headers)
    assert (status, answer["error"]["code"], answer["error"]["due"]) == (409, "resend_from", 1)
    assert await entries(running, peers, 0) == 1


async def test_an_owner_of_an_earlier_version_stores_nothing(
    running, peers, start_broker, monkeypatch
):
    """It does not know the parameter, and refuses the call: nothing is stored one by one."""
    await give_to(running, peers, await start_broker("orders-1"), 1)
    monkeypatch.setattr(message_forwarder, "ATOMIC", "later")
    monkeypatch.setattr(message_forwarder, "UNKNOWN_PARAMETER", "got the unknown parameter later")
    status, answer = await post(running, peers, of_key(peers.key_of(1), *"abc"))
    assert (status, answer["error"]["code"]) == (501, "unsupported")
    assert "upgrade brokers first" in answer["error"]["message"]
    assert await entries(running, peers, 1) == 0


async def test_the_layout_says_that_the_broker_can(running, peers):
    _, answer = await running.call("GET", "/v1/queues/orders/layout", token=peers.PRODUCE)
    assert answer["features"] == list(FEATURES)
    assert ATOMIC in FEATURES


@pytest.mark.req("AZR-20", "AZR-50")
async def test_while_its_partition_is_away_it_fails_and_others_do_not(running, peers):
    await running.admin("/yield", {"partitions": ["1.0"]})
    status, answer = await post(running, peers, of_key(peers.key_of(0), *"abc"))
    assert (status, answer["error"]["code"]) == (503, "not_stored")
    status, answer = await post(running, peers, of_key(peers.key_of(1), *"abc"))
    assert (status, len(answer["results"])) == (201, 3)
    ends = [(await running.broker.partitions.read(peers.partition_id(p))).next for p in range(4)]
    assert ends == [0, 3, 0, 0], "stored nowhere else"
