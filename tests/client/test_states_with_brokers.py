"""States of keys, with real brokers: they change with the acks, and stay with the keys."""

import asyncio
import base64
import json

import aiohttp
import pytest
import pytest_asyncio
from click.testing import CliRunner

from partq import (
    ClientAssignedConsumer,
    Consumer,
    Message,
    PartitionId,
    PartitionKey,
    Producer,
    sync,
)
from partq.cli.commands import cli
from partq.errors import BadRequestError, FencedError, StatesFullError
from partq.testing.local_broker import LocalBroker

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 60.0
KEYS = [f"key-{number}" for number in range(12)]
GROUPS = {
    "ordered": {},
    "keyed": {"nack": {"order": "Key", "delaySeconds": 0}},
    "free": {"nack": {"order": "Free"}},
    "few": {"ack": {"maxStates": 2}},
    "cumulative": {"ack": {"maxStates": 2}},
    "twice": {},
    "handler": {},
    "pulled": {},
    "blocking": {},
    "chosen": {"assignment": "Client"},
    "restarted": {"nack": {"order": "Key"}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local():
    spec = {"rebalance": {"maxHandoffSeconds": WAIT_S, "delaySeconds": 0}}
    async with LocalBroker(partitions=1, broker_count=2, groups=GROUPS, spec=spec) as local:
        async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
            await producer.send(b"0")
            for number in range(1, 6):
                await producer.send_many([Message(key, str(number).encode()) for key in KEYS])
        yield local


def consumer_of(local, group, member="m", **options):
    return Consumer(
        local.url, queue="orders", group=group, token=local.tokens.consume, member=member,
        handle_signals=False, **options,
    )  # fmt: skip


async def call(local, method, path, role="admin", **options):
    """Make a call at the first broker; return the answer's status and JSON."""
    headers = {"Authorization": f"Bearer {getattr(local.tokens, role)}"}
    url = f"{local.queue.brokers[0].url}/v1/queues/orders/groups/{path}"
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.request(method, url, **options) as response,
    ):
        return response.status, await response.json()


async def partq(local, *arguments):
    """Run a command; return its exit status and what it prints."""
    env = {"PARTQ_DATA_DIR": str(local.runtime.data_dir), "COLUMNS": "200"}
    given = (*arguments, "--group", "twice")
    result = await asyncio.to_thread(CliRunner().invoke, cli, given, env=env)
    return result.exit_code, result.stdout


async def stored_states(local, group):
    _, answer = await call(local, "GET", f"{group}/states?partition=1.0")
    return {each["key"]: base64.b64decode(each["state"]) for each in answer["states"]}


@pytest.mark.parametrize("group", ["ordered", "keyed"])
async def test_a_message_reads_what_the_one_before_it_has_left(local, group):
    read = {key: [] for key in KEYS}
    async with asyncio.timeout(WAIT_S):
        for member, stop in (("a", 25), ("b", 60)):
            async with consumer_of(local, group, member) as consumer:
                async for message in consumer:
                    if message.key is None:
                        await consumer.ack(message)
                        continue
                    state = int(await message.state() or 0)
                    read[message.key].append(state)
                    # None of these waits until it is stored.
                    await consumer.ack(message, state=str(state + int(message.value)).encode())
                    if sum(map(len, read.values())) >= stop:
                        break
                await consumer.flush()
    assert read == {key: [0, 1, 3, 6, 10] for key in KEYS}
    assert await stored_states(local, group) == dict.fromkeys(KEYS, b"15")


async def test_what_cannot_have_a_state_is_refused_and_stays_to_be_done(local):
    async with asyncio.timeout(WAIT_S), consumer_of(local, "free") as consumer:
        keyless, message, *_ = await consumer.getmany(61)
        for refused in (keyless.state(), consumer.ack(keyless, state=b"s")):
            with pytest.raises(BadRequestError, match="without a key"):
                await refused
        with pytest.raises(BadRequestError, match="65,537 bytes"):
            await consumer.ack(message, state=bytes(65_537))
        with pytest.raises(TypeError, match="got a batch"):
            await consumer.ack(message.batch, state=b"s")
        with pytest.raises(TypeError, match="got str"):
            await consumer.ack(message, state="s")
        for refused in (message.state(), consumer.ack(message, state=b"s", confirmed=True)):
            with pytest.raises(BadRequestError, match=r"`nack.order` is Free"):
                await refused
        await consumer.nack(message, delay_s=0)
        while (await anext(consumer)).offset != message.offset:
            pass


async def test_beyond_the_bound_an_ack_is_refused_and_a_removal_makes_room(local):
    async with asyncio.timeout(WAIT_S), consumer_of(local, "few") as consumer:
        messages = {}
        for each in await consumer.getmany(61):
            messages.setdefault(each.key, []).append(each)
        first, second, third = (messages[key] for key in KEYS[:3])
        await consumer.ack(first[0], state=b"1")
        await consumer.ack(second[0], state=b"2")
        with pytest.raises(StatesFullError, match=r"2 keys have a state.*`ack.maxStates`"):
            await consumer.ack(third[0], state=b"3", confirmed=True)
        await consumer.ack(first[1], state=b"11")
        assert await third[0].state() is None
        await consumer.ack(second[1], state=None)
        await consumer.ack(third[0], state=b"3", confirmed=True)
        assert [await each[0].state() for each in (first, second, third)] == [b"11", None, b"3"]
    assert await stored_states(local, "few") == {KEYS[0]: b"11", KEYS[2]: b"3"}


async def test_an_ack_behind_a_state_that_waits_for_room_does_not_overtake_it(local):
    async with asyncio.timeout(WAIT_S), consumer_of(local, "cumulative") as consumer:
        _, first, second, third, fourth, *_ = messages = await consumer.getmany(61)
        await consumer.ack(first, state=b"1")
        await consumer.ack(second, state=b"2", confirmed=True)
        await consumer.ack(next(e for e in messages[5:] if e.key == first.key), state=None)
        await asyncio.gather(  # the third waits for a look at the store
            consumer.ack(third, state=b"3", confirmed=True),
            consumer.ack_cumulative(fourth, confirmed=True),
        )
    assert await stored_states(local, "cumulative") == {KEYS[1]: b"2", KEYS[2]: b"3"}


async def test_an_ack_that_counts_for_nothing_more_changes_no_state(local):
    async with asyncio.timeout(WAIT_S), consumer_of(local, "twice") as consumer:
        messages = [each for each in await consumer.getmany(61) if each.key == KEYS[0]]
        await consumer.ack(messages[0], state=b"first")
        await consumer.ack(messages[1], state=b"second")
        await consumer.ack(messages[0], state=b"late", confirmed=True)
        assert await messages[2].state() == b"second"
        await consumer.ack(messages[2], confirmed=True)
        assert await consumer.state(messages[3]) == b"second"
    assert await partq(local, "state", "get", KEYS[0]) == (0, "second")
    assert (await partq(local, "state", "get", KEYS[1]))[0] == 1
    status, said = await partq(local, "state", "list", "--json")
    row = {"partition": "1.0", "key": KEYS[0], "bytes": 6, "state": "c2Vjb25k"}
    assert (status, json.loads(said)) == (0, row)
    status, said = await partq(local, "state", "list", "--partition", "0")
    assert (status, "1 key has a state" in said) == (0, True)
    assert (await partq(local, "reset", "--to", "earliest", "--yes"))[0] == 0
    assert await stored_states(local, "twice") == {KEYS[0]: b"second"}
    assert (await partq(local, "reset", "--to", "latest", "--clear-states", "--yes"))[0] == 0
    assert await stored_states(local, "twice") == {}


async def test_a_handler_leaves_states_and_the_rest_is_acknowledged_for_it(local):
    seen = 0

    async def add(message):
        nonlocal seen
        seen += 1
        if message.key is not None:
            total = int(await message.state() or 0) + int(message.value)
            await consumer.ack(message, state=str(total).encode())
        if seen == 61:
            consumer.leave()

    async with asyncio.timeout(WAIT_S), consumer_of(local, "handler", auto_ack=True) as consumer:
        await consumer.run(add, concurrency=4)
    assert await stored_states(local, "handler") == dict.fromkeys(KEYS, b"15")
    async with asyncio.timeout(WAIT_S), consumer_of(local, "handler") as other:
        assert await other.getmany(1, timeout_s=0.5) == []


async def test_states_by_plain_http(local):
    pull = {"member": "p", "incarnation": "i", "all_brokers": True, "wait_ms": 100}
    pulled = {"messages": []}
    async with asyncio.timeout(WAIT_S):
        while not pulled["messages"]:
            _, pulled = await call(local, "POST", "pulled/pull", "consume", json=pull)
    receipts = {each.get("key"): each["receipt"] for each in reversed(pulled["messages"])}
    key = KEYS[3]
    ack = {"receipts": [receipts[key]], "key": key, "state": base64.b64encode(b"17").decode()}
    status, _ = await call(local, "POST", "pulled/acks", "consume", json=ack)
    assert status == 200
    path = f"pulled/state?key={key}"
    assert await call(local, "GET", path, "consume") == (200, {"state": ack["state"]})
    assert await call(local, "GET", "pulled/state?key=other") == (200, {"state": None})
    wrongs = {400: {"key": key}, 400.1: {"state": "MTc="}, 207: {"key": key, "state": "#"}}
    for expected, wrong in wrongs.items():
        body = {"receipts": [receipts[KEYS[4]]], **wrong}
        status, _ = await call(local, "POST", "pulled/acks", "consume", json=body)
        assert status == int(expected)
    two = {**ack, "receipts": [receipts[KEYS[4]], receipts[KEYS[5]]]}
    assert (await call(local, "POST", "pulled/acks", "consume", json=two))[0] == 400


def sum_up_blocking(local):
    options = {"queue": "orders", "group": "blocking", "token": local.tokens.consume}
    with sync.Consumer(local.url, member="m", **options) as consumer:
        for _, message in zip(range(61), consumer, strict=False):
            if message.key is None:
                consumer.ack(message)
                continue
            total = int(consumer.state(message) or 0) + int(message.value)
            consumer.ack(message, state=str(total).encode())


async def test_a_blocking_consumer_reads_and_leaves_them(local):
    async with asyncio.timeout(WAIT_S):
        await asyncio.to_thread(sum_up_blocking, local)
    assert await stored_states(local, "blocking") == dict.fromkeys(KEYS, b"15")


async def test_they_pass_between_members_that_choose_their_partitions(local):
    place = PartitionKey("orders", PartitionId(1, 0))
    done = 0
    for member, stop in (("a", 25), ("b", 61)):
        async with (
            asyncio.timeout(WAIT_S),
            ClientAssignedConsumer(
                local.url, queue="orders", group="chosen", token=local.tokens.consume,
                member=member, handle_signals=False,
            ) as consumer,
        ):  # fmt: skip
            await consumer.register(place)
            while done < stop:
                batch = await consumer.get(place)
                for message in batch.deliveries() if batch is not None else ():
                    done += 1
                    if message.key is None:
                        await consumer.ack(message)
                        continue
                    total = int(await message.state() or 0) + int(message.value)
                    await consumer.ack(message, state=str(total).encode())
            await consumer.flush()
            await consumer.unregister(place)
    assert await stored_states(local, "chosen") == dict.fromkeys(KEYS, b"15")


async def test_sums_go_on_through_a_restart_of_redis(local):
    """It is killed with acks under way: what was not stored is redelivered, and counts once."""
    count, acks = 0, []
    async with asyncio.timeout(WAIT_S), consumer_of(local, "restarted") as consumer:
        async for message in consumer:
            count += 1
            if count == 20:
                await local.runtime.redis.kill()
            if message.key is None:
                await consumer.ack(message)
                continue
            try:
                total = int(await message.state() or 0) + int(message.value)
                await consumer.ack(message, state=str(total).encode())
            except FencedError:
                continue
            if message.value == b"5":
                acks.append(message.key)
            if set(acks) == {*KEYS}:
                break
        await consumer.flush()
    assert await stored_states(local, "restarted") == dict.fromkeys(KEYS, b"15")
