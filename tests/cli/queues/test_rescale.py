"""`partq rescale` on a queue that runs, with its coordinator: it is planned, done, and seen."""

import asyncio
import json

import aiohttp
import pytest

from partq import Consumer, Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker


async def publish(broker):
    token = broker.tokens.produce
    async with Producer(broker.url, queue="orders", token=token) as producer:
        messages = [Message(f"key-{number}", b"v") for number in range(40)]
        await (await producer.send_many(messages))


@pytest.mark.req("SOL-U10", "SOL-U11")
async def test_a_queue_grows_and_shrinks_and_shows_what_groups_have_to_read_first(tmp_path, partq):
    async with LocalBroker(groups=("workers",), data_dir=tmp_path / "data") as broker:
        await publish(broker)
        await it_is_planned(partq)
        await it_grows(partq)
        await it_is_seen(partq)
        await it_settles(broker, partq)
        await it_shrinks(partq)
        await it_is_overtaken(broker, partq)


async def it_is_planned(partq):
    status, out, err = await partq("rescale", "--partitions", "6", "--plan")
    assert (status, err) == (0, ""), out
    assert out.startswith("4 -> 6 partitions, generation 2; 33.3 % of the keys move")
    assert "new partitions wait until it has acknowledged 40 messages" in out
    assert "waits for" not in out
    status, out, _ = await partq("rescale", "--partitions", "4")
    assert (status, out) == (0, "queue orders has 4 partitions: nothing changes\n")
    _, out, _ = await partq("partitions")
    assert "assignment Server (the coordinator assigns them)" in out
    assert "subscribable" not in out


async def it_grows(partq):
    status, out, err = await partq("rescale", "--partitions", "6", "--wait")
    assert (status, "set its spec.partitions to 6" in err) == (0, True), err
    assert "queue orders is to have 6 partitions\n" in out
    assert out.endswith("\nqueue orders: 6 partitions take messages; generation 2\n")
    status, out, err = await partq("rescale", "--partitions", "6", "--wait", "--json")
    assert (status, err) == (0, "")
    rescale = json.loads(out)["rescale"]
    assert (rescale["phase"], rescale["opened"], rescale["to_open"]) == ("Draining", 2, 2)
    assert rescale["held"] == [{"group": "workers", "partitions": 2, "messages": 40}]


async def it_is_seen(partq):
    status, out, _ = await partq("status")
    assert "default/orders: Available; 6 partitions, 40 messages" in out
    assert (
        "\n6 partitions in force; a change that is not settled: 4 -> 6 partitions, generation 2: "
        "Draining; waits for group workers to acknowledge 40 messages published before the change: "
        "2 partitions held\n"
    ) in out
    assert "group workers: 2 new partitions held until it has acknowledged 40 older messages" in out
    assert ("\n1.0  ----\n" in out, "\n2.4  --\n" in out) == (True, True), out
    status, out, _ = await partq("explain", "4")
    assert (status, "partition 2.4 of queue orders" in out) == (0, True), out
    for command in ("browse", "reset --group workers --to latest --dry-run"):
        status, _, err = await partq(*command.split(), "--partition", "4")
        assert status == 0, f"the partition of this number, whatever its generation: {err}"


async def it_settles(broker, partq):
    async with Consumer(
        broker.url, queue="orders", group="workers", token=broker.tokens.consume, member="m"
    ) as consumer:
        for _ in range(40):
            await consumer.ack(await anext(consumer))
        status, out, err = await partq("rescale", "--partitions", "6", "--wait", "settled")
        assert (status, err) == (0, ""), out
        assert out.endswith("\nqueue orders: 6 partitions take messages; generation 2 is settled\n")
        _, out, _ = await partq("status")
    said = "\n6 partitions in force; the last change: 4 -> 6 partitions, generation 2: Settled\n"
    assert said in out


async def it_shrinks(partq):
    wait = ("--wait", "settled", "--timeout", "0")
    status, _, err = await partq("rescale", "--partitions", "3", *wait)
    assert (status, "not settled after 0 s, and the change continues" in err) == (1, True), err
    status, out, err = await partq("rescale", "--partitions", "3", *wait, "--json")
    assert (status, json.loads(out)["rescale"]["to_count"]) == (1, 3), err
    assert "0 s is too short for settled: partitions without slots stay for 600 s" in err
    status, _, err = await partq("rescale", "--partitions", "3", "--wait")
    assert status == 0, err
    status, out, _ = await partq("status")
    assert "without slots: 1.0, 1.1, 1.2, 1.3, 2.4 and 1 more" in out
    assert "default/orders: Available; 3 partitions, 6 without slots, " in out
    _, out, _ = await partq("queues", "--json")
    assert json.loads(out)[0]["partitions"] == 3
    status, out, _ = await partq("status")
    assert "other changes, the last first: 4 -> 6 Settled" in out
    status, out, _ = await partq("explain", "0")
    assert "partition 3.0 of queue orders" in out
    moved = "\na change of the partition count has moved its keys to other partitions (--key"
    removal = "\nwaits for: its removal, ten minutes after the change at the earliest: "
    assert (moved in out, removal in out) == (False, False)
    status, out, _ = await partq("explain", "1.0")
    assert (status, moved in out, removal in out) == (0, True, True), out
    status, _, err = await partq("explain", "1.4")
    expected = "partition 1.4: not in the queue any more, if it ever was: a change of the partition"
    assert (status, expected in err) == (1, True), err
    status, _, err = await partq("explain", "9")
    expected = "expected a number from 0 to 5, or one that `partq partitions` lists"
    assert (status, expected in err) == (1, True), err
    reset = ("reset", "--group", "workers", "--to", "latest", "--dry-run")
    status, out, err = await partq(*reset, "--partition", "0", "--partition", "5", "--json")
    assert (status, list(json.loads(out)["partitions"])) == (0, ["3.0", "2.5"]), err
    for name in ("1.9", "9"):
        for command in (("browse",), reset):
            status, _, err = await partq(*command, "--partition", name)
            assert (status, name in err) == (1, True), err
    status, _, err = await partq("explain", "0", "--group", "nobody")
    assert (status, "--group: got 'nobody', expected one of: workers" in err) == (1, True), err


async def it_is_overtaken(broker, partq):
    """A number that another one replaces before the coordinator begins the change."""
    status, out, err = await partq("rescale", "--partitions", "9", "--timeout", "5")
    assert (status, out) == (2, "")
    assert "--timeout: got it without --wait; expected both, or neither" in err

    path = "/admin/v1/queues/orders/partitions"
    headers = {"Authorization": f"Bearer {broker.tokens.admin}"}
    async with aiohttp.ClientSession(broker.url, headers=headers) as session:

        async def ask(count, **fields):
            body = {"partitions": count, **fields}
            async with session.post(path, json=body, raise_for_status=True) as answer:
                return await answer.json()

        async def is_recorded():
            return (await ask(9, is_dry_run=True))["is_wanted"]

        broker.queue.coordinator.freeze()
        await partq("rescale", "--partitions", "9")
        status, out, _ = await partq("rescale", "--partitions", "3")
        assert (status, out.startswith("queue orders keeps its 3 partitions\n")) == (0, True), out
        waiting = asyncio.create_task(
            partq("rescale", "--partitions", "9", "--wait", "--timeout", "60")
        )
        await eventually(is_recorded)
        await ask(3)
        status, _, err = await waiting
        broker.queue.coordinator.thaw()
    assert (status, "another number of partitions than 9 is wanted by now" in err) == (1, True), err
    status, out, err = await partq(
        "rescale", "--partitions", "4", "--wait", "settled", "--timeout", "90"
    )
    assert (status, "too short" in err) == (0, False), "what it waits for is not of this change"
    _, out, _ = await partq("rescale", "--partitions", "4")
    assert "\nan earlier change is not settled: 6 -> 3 partitions, generation 3: Draining" in out
