"""Plain HTTP while the partition count changes: messages find their partition, and are not doubled.

What a producer numbers by key goes on in the partition that the key has now.
"""

import asyncio
import base64

import pytest

from partq.broker.ownership import claims
from partq.broker.retention import periodic_work
from partq.core.model import PartitionId
from partq.core.producer_series import series_name
from partq.store.records.layout.seals import PRODUCERS_STAY_MS
from partq.testing import eventually
from tests.broker.rescale.change import ChangeByHand, batch_of, keys_for_five, values

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
MESSAGES = "/v1/queues/orders/messages"


@pytest.fixture
def rescaler(running):
    return ChangeByHand(running)


async def post(running, peers, body, **headers):
    return await running.call("POST", MESSAGES, token=peers.PRODUCE, json=body, headers=headers)


async def numbered(running, peers, key, sequence, value="v"):
    """Publish a numbered message; return its place, or a refusal's code and the due number."""
    body = {"key": key, "value": value}
    headers = {"Partq-Producer": "p", "Partq-Sequence": str(sequence)}
    _, answer = await post(running, peers, body, **headers)
    if "error" in answer:
        return answer["error"]["code"], answer["error"].get("due")
    return answer["partition"], answer["offset"], answer.get("is_duplicate", False)


async def due(running, peers, key):
    path = f"/v1/queues/orders/producers/p?key={key}"
    _, answer = await running.call("GET", path, token=peers.PRODUCE)
    return answer["due"]


async def test_a_series_goes_on_where_its_key_is_now(running, rescaler, peers):
    moves, stays = keys_for_five(await rescaler.layout())
    for sequence in range(3):
        assert await numbered(running, peers, moves, sequence) == ("1.0", sequence, False)
    assert await numbered(running, peers, stays, 0) == ("1.0", 3, False)
    await rescaler.change(5)

    assert await due(running, peers, moves) == {"2.4": 3}
    assert await numbered(running, peers, moves, 1) == ("1.0", 1, True), "the answer of then"
    assert await numbered(running, peers, moves, 2, "other") == ("number_reused", None)
    assert await numbered(running, peers, moves, 5) == ("out_of_sequence", 3)
    assert await numbered(running, peers, moves, 3) == ("2.4", 0, False)
    assert await numbered(running, peers, moves, 3) == ("2.4", 0, True)
    assert await numbered(running, peers, moves, 4) == ("2.4", 1, False)
    assert await numbered(running, peers, moves, 6) == ("out_of_sequence", 5)
    assert await numbered(running, peers, stays, 1) == ("1.0", 4, False)
    assert await due(running, peers, moves) == {"2.4": 5}
    # What was before the first message here is not remembered here, as with any old repeat.
    assert await numbered(running, peers, moves, 0) == ("2.4", None, True)


async def test_a_series_that_rests_during_two_changes(running, rescaler, peers):
    moves, _ = keys_for_five(await rescaler.layout())
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, False)
    await rescaler.change(5)
    layout = await rescaler.change(4)
    place = layout.partition_for(moves)
    assert place.generation == 3
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, True)
    assert await numbered(running, peers, moves, 1) == (str(place), 0, False)


async def test_a_series_that_rests_until_the_partition_between_is_removed(running, rescaler, peers):
    """What 2.4 had its slots from is known as long as what its predecessors know of producers."""
    moves, _ = keys_for_five(await rescaler.layout())
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, False)
    await rescaler.change(5)
    layout = await rescaler.change(4)
    for partition in layout.retired:
        await rescaler.seals.erase(partition)
        await rescaler.seals.erase(partition)  # a repeat
    place = str(layout.partition_for(moves))
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, True)
    assert await numbered(running, peers, moves, 1) == (place, 0, False)
    store, keys = running.store, running.broker.keys
    for partition in (OLD, NEW):
        left = await store.read("PTTL", keys.removal(partition))
        assert 0 < int(left) <= PRODUCERS_STAY_MS


async def test_a_series_that_nobody_knows_begins_at_zero(running, rescaler, peers):
    moves, _ = keys_for_five(await rescaler.layout())
    await rescaler.change(5)
    assert await due(running, peers, moves) == {"2.4": 0}
    assert await numbered(running, peers, moves, 4) == ("unknown_producer", None)
    assert await numbered(running, peers, moves, 0) == ("2.4", 0, False)


async def test_a_part_of_a_request_is_a_repeat(running, rescaler, peers):
    moves, _ = keys_for_five(await rescaler.layout())
    rows = [{"key": moves, "value": str(n), "sequence": n} for n in range(5)]
    await post(running, peers, rows[:3], **{"Partq-Producer": "p"})
    await rescaler.change(5)
    status, answer = await post(running, peers, rows, **{"Partq-Producer": "p"})
    assert status == 201
    assert [(r["partition"], r["offset"]) for r in answer["results"]] == [
        ("1.0", 0), ("1.0", 1), ("1.0", 2), ("2.4", 0), ("2.4", 1),
    ]  # fmt: skip


async def test_messages_placed_by_the_layout_of_before_are_placed_again(running, rescaler, peers):
    """The seal comes while they wait; they are stored in order, and those that stay stay."""
    moves, stays = keys_for_five(await rescaler.layout())
    await rescaler.prepare(5)
    gate = peers.Gate(running.broker.log, "append")
    first = asyncio.create_task(post(running, peers, {"key": stays, "value": "first"}))
    await gate.is_reached()
    body = [{"key": each, "value": f"{each}{n}"} for n in range(2) for each in (moves, stays)]
    rest = asyncio.create_task(post(running, peers, body))
    appender = running.broker.owned[OLD].appender
    await eventually(lambda: len(appender._pending) == 1, "a batch waits behind the first")
    await rescaler.commit()
    await running.broker.refresh()
    gate.opened.set()
    assert (await first)[0] == 201
    status, answer = await rest
    assert (status, [r["partition"] for r in answer["results"]]) == (201, ["2.4", "1.0"] * 2)
    assert await values(running, NEW) == [f"{moves}0", f"{moves}1"]
    assert await values(running, OLD) == ["first", f"{stays}0", f"{stays}1"]


async def test_a_request_waits_a_moment_for_a_partition_that_opens(running, rescaler, peers):
    moves, _ = keys_for_five(await rescaler.layout())
    await rescaler.prepare(5)
    gate = peers.Gate(running.broker.layout_follower.opener._seals, "open_partition")
    await rescaler.commit()
    await running.broker.refresh()
    await gate.is_reached()
    status, answer = await post(running, peers, {"key": moves, "value": "a"})
    assert (status, answer["error"]["code"]) == (503, "not_stored")
    path = f"/v1/queues/orders/producers/p?key={moves}"
    _, found = await running.call("GET", path, token=peers.PRODUCE)
    assert found == {"due": {}, "unavailable": ["2.4"]}
    waiting = asyncio.create_task(post(running, peers, {"key": moves, "value": "b"}))
    keyless = await post(running, peers, [{"value": "c"}] * 20)
    assert {r["partition"] for r in keyless[1]["results"]} <= {f"1.{p}" for p in range(4)}
    gate.opened.set()
    assert await waiting == (201, {"partition": "2.4", "offset": 0})


async def test_another_broker_that_knows_the_layout_of_before(
    running, start_broker, peers, monkeypatch
):
    """It forwards to the owner of before, which is not the owner now, and looks again."""
    rescaler = ChangeByHand(running)
    moves, stays = keys_for_five(await rescaler.layout())
    other, third = await start_broker("orders-1"), await start_broker("orders-2")
    await eventually(lambda: len(other.broker.claims.owners) == 4, "it knows the owners")
    monkeypatch.setattr(periodic_work, "LOOK_GAP_S", 3600.0)
    await rescaler.prepare(5)
    await running.admin("/yield", {"partitions": [str(NEW)]})
    await third.broker.refresh()
    (claimed,) = await third.admin("/claim", {"partitions": [str(NEW)]})
    assert "error" not in claimed
    await rescaler.commit()
    await asyncio.gather(running.broker.refresh(), third.broker.refresh())
    await eventually(lambda: third.broker.owned[NEW].layout.is_open, "it is open")
    body = [{"key": each, "value": each} for each in (moves, stays, moves)]
    status, answer = await post(other, peers, body)
    assert (status, [r["partition"] for r in answer["results"]]) == (201, ["2.4", "1.0", "2.4"])
    assert other.broker.config.layout.generation == 2
    assert await values(running, NEW) == [moves, moves]


async def test_a_broker_knows_the_owners_of_new_partitions_with_the_layout(
    running, rescaler, start_broker, peers, monkeypatch
):
    """Else the first requests would be told that no broker serves them."""
    moves, _ = keys_for_five(await rescaler.layout())
    other = await start_broker("orders-1")
    monkeypatch.setattr(claims, "WATCH_GAP_S", 3600.0)
    await eventually(lambda: len(other.broker.claims.owners) == 4, "it knows the owners")
    await rescaler.change(5)
    await other.broker.refresh()
    assert await post(other, peers, {"key": moves, "value": "a"}) == (
        201, {"partition": "2.4", "offset": 0},
    )  # fmt: skip


async def test_an_outbox_of_dead_letters_is_carried_over(running, rescaler, peers):
    """A letter whose answer was lost is not stored again in the partition that has its slot now."""
    moves, stays = keys_for_five(await rescaler.layout())

    async def send(partition, number, key):
        body = {
            "partition": str(partition), "producer": "dlq:u#1.0/g", "number": number,
            "batch_base64": base64.b64encode(batch_of(key)).decode(),
        }  # fmt: skip
        status, answer = await running.call(
            "POST", "/v1/queues/orders/dead-letters", token=running.broker.peer_token, json=body
        )
        return status, answer.get("error", {}).get("code") or answer["offset"]

    assert await send(OLD, 4, moves) == (201, 0)
    assert await send(OLD, 7, stays) == (201, 1)
    await rescaler.change(5)
    assert await send(OLD, 9, moves) == (409, "stale_generation")
    assert await send(NEW, 4, moves) == (200, 0)
    assert await send(NEW, 6, moves) == (200, -1), "numbers of an outbox only grow"
    assert await send(NEW, 9, moves) == (201, 0)
    assert await send(NEW, 9, moves) == (200, 0)
    assert await values(running, NEW) == [moves]


async def forget(running, key, partition):
    """Have a partition forget a series, as with too many keys."""
    broker = running.broker
    fields = [0, series_name("p", key)]
    await broker.store.run("write_fields", [broker.keys.series(partition)], fields)
    fields = [1, "series_forgotten_ms", "1"]
    await broker.store.run("write_fields", [broker.keys.meta(partition)], fields)
    broker.owned[partition].known_producers.clear()  # as with the next owner


async def test_a_series_that_had_to_go_does_not_go_on_where_it_was_before(running, rescaler, peers):
    """With too many keys the oldest are forgotten: the numbers of before are not due again."""
    moves, _ = keys_for_five(await rescaler.layout())
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, False)
    await rescaler.change(5)
    assert await numbered(running, peers, moves, 1) == ("2.4", 0, False)
    await forget(running, moves, NEW)
    assert await numbered(running, peers, moves, 1) == ("unknown_producer", None)
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, True)
    assert len(await values(running, NEW)) == 1


@pytest.mark.parametrize("is_removed", [False, True])
async def test_nor_where_it_was_before_the_partition_that_had_to_forget_it(
    running, rescaler, peers, is_removed
):
    moves, _ = keys_for_five(await rescaler.layout())
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, False)
    await rescaler.change(5)
    assert await numbered(running, peers, moves, 1) == ("2.4", 0, False)
    await forget(running, moves, NEW)
    last = (await rescaler.change(4)).partition_for(moves)
    if is_removed:
        await rescaler.seals.erase(NEW)
    for number in (1, 2):
        assert await numbered(running, peers, moves, number) == ("unknown_producer", None)
    assert await numbered(running, peers, moves, 0) == ("1.0", 0, True)
    assert await values(running, last) == []
