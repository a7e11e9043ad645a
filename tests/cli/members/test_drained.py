"""`partq drained` beside a consumer that pulls by plain HTTP, against real brokers."""

import asyncio
import json
import os
from contextlib import asynccontextmanager, suppress

import pytest
import pytest_asyncio
from aiohttp import ClientSession

from partq import Consumer, Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.cli.processes import PARTQ
from tests.even_shares import even_shares

PARTITIONS = 4
WAIT_S = 60.0
PATIENT = {"rebalance": {"maxHandoffSeconds": 300}}
"""Drains last as long as a test lets them."""


class PullingMember:
    """A consumer in any language: pulls from every broker, acknowledges when it is told to."""

    def __init__(self, broker, session, name):
        self._broker = broker
        self._session = session
        self.name = name
        self.may_ack = asyncio.Event()
        self.held = {}
        """broker → partitions that it has given to this member"""
        self.unacked = []

    @property
    def partitions(self):
        return {partition for some in self.held.values() for partition in some}

    async def _call(self, url, path, body):
        headers = {"Authorization": f"Bearer {self._broker.tokens.consume}"}
        where = f"{url}/v1/queues/orders/groups/workers{path}"
        async with self._session.post(where, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def work(self, urls):
        """Pull from all brokers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for url in urls:
                tasks.create_task(self._work_at(url))

    async def _work_at(self, url):
        last = None
        while True:
            pull = {"member": self.name, "incarnation": "i", "last_answer": last, "wait_ms": 200}
            status, answer = await self._call(url, "/pull", {**pull, "max_messages": 100})
            if status != 200:
                await asyncio.sleep(0.05)
                continue
            last, self.held[url] = answer["answer"], answer["held"]
            self.unacked += [(url, answer["flow"], message) for message in answer["messages"]]
            if self.may_ack.is_set():
                await self._ack()

    async def _ack(self):
        taken, self.unacked = self.unacked, []
        for url, flow, message in taken:
            token = {k: message[k] for k in ("partition", "broker_epoch", "epoch", "delivery")}
            acks = [{**token, "upto": 0, "offsets": [message["offset"]]}]
            await self._call(url, "/acks", {"member": self.name, "flow": flow, "acks": acks})


@pytest.fixture
async def broker():
    async with LocalBroker(
        partitions=PARTITIONS, broker_count=2, spec=PATIENT, lease_ttl_s=10.0
    ) as broker:
        await even_shares(broker.queue)
        yield broker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_broker():
    """A queue that nobody consumes, for calls that never come to asking."""
    spec = {"rebalance": {"delaySeconds": 300}}  # for so long a member that left is listed
    async with LocalBroker(spec=spec, lease_ttl_s=10.0) as broker:
        yield broker


@pytest.fixture
async def joined(broker):
    """Return the maker of members that pull; they end with the test."""
    async with ClientSession() as session:
        headers = {"Authorization": f"Bearer {broker.tokens.consume}"}
        async with session.get(
            f"{broker.url.split(',')[0]}/v1/queues/orders/layout", headers=headers
        ) as answer:
            urls = [each["url"] for each in (await answer.json())["brokers"]]
        tasks = []

        def join(name):
            member = PullingMember(broker, session, name)
            tasks.append(asyncio.create_task(member.work(urls)))
            return member

        yield join
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def drained(broker, *arguments, **env):
    """Run `partq drained`; it is ended with the block."""
    process = await asyncio.create_subprocess_exec(
        *PARTQ,
        *("drained", "--json", *arguments),
        env=os.environ
        | {
            "PARTQ_URL": broker.url,
            "PARTQ_QUEUE": "orders",
            "PARTQ_GROUP": "workers",
            "PARTQ_TOKEN": broker.tokens.consume,
            **env,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def outcome(process):
    """Return exit status, JSON and standard error."""
    async with asyncio.timeout(WAIT_S):
        out, err = await process.communicate()
    return process.returncode, json.loads(out) if out else None, err.decode()


async def publish(broker):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await (await producer.send_many([Message(f"key-{n}", b"x") for n in range(64)]))


async def test_a_member_works_until_it_is_drained_and_others_take_over(broker, joined):
    ends = joined("pod/ends")
    await eventually(lambda: len(ends.partitions) == PARTITIONS, "it has all partitions")
    await publish(broker)
    await eventually(lambda: len(ends.unacked) == 64, "all messages are in its hands")
    stays = joined("pod/stays")
    stays.may_ack.set()

    async with drained(broker, PARTQ_MEMBER=ends.name) as asks:
        status, answer, _ = await outcome(asks)
    assert (status, answer["drained"]) == (3, False)
    assert answer["members"][ends.name]["is_bound"]
    assert sum(answer["members"][ends.name]["partitions"].values()) == 64
    assert answer["unknown"] == answer["troubles"] == []

    async with drained(broker, "--wait", "2", PARTQ_MEMBER=ends.name) as waits:
        status, answer, _ = await outcome(waits)
    assert (status, answer["drained"]) == (3, False), "it has not finished in time"

    async with drained(broker, "--wait", PARTQ_MEMBER=ends.name) as waits:
        ends.may_ack.set()
        status, answer, _ = await outcome(waits)
    assert (status, answer["drained"]) == (0, True)
    assert answer["members"][ends.name]["partitions"] == {}
    await eventually(lambda: len(stays.partitions) == PARTITIONS, "the other has all partitions")


async def test_the_last_member_drains_to_nobody_and_several_at_once(broker, joined):
    one, two = joined("pod/one"), joined("pod/two")
    await eventually(
        lambda: len(one.partitions) == len(two.partitions) == 2, "both have their share"
    )
    async with drained(broker, "--wait", PARTQ_MEMBER=f"{one.name} {two.name}") as waits:
        status, answer, _ = await outcome(waits)
    assert (status, list(answer["members"])) == (0, [one.name, two.name])


@pytest.mark.parametrize(
    ("env", "arguments", "status", "says"),
    [
        pytest.param({}, [], 2, "--member (PARTQ_MEMBER): got 0 names", id="no member"),
        pytest.param(
            {"PARTQ_MEMBER": "m", "PARTQ_GROUP": "x"}, ["--wait"], 1, "group 'x'", id="no group"
        ),
        pytest.param(
            {"PARTQ_MEMBER": "m", "PARTQ_TOKEN": "y"}, ["--wait"], 1, "token", id="no right"
        ),
        pytest.param(
            {"PARTQ_MEMBER": "m"}, [], 1, "member m: no broker knows it in group workers",
            id="a member that nobody knows",
        ),
        pytest.param({"PARTQ_MEMBER": "m"}, ["--wait", "0"], 2, "--wait", id="no time"),
        pytest.param(
            {"PARTQ_MEMBER": "m", "PARTQ_URL": "http://127.0.0.1:1"}, [], 1, "127.0.0.1:1",
            id="no broker",
        ),
    ],
)  # fmt: skip
async def test_what_cannot_be_asked_is_an_error(one_broker, env, arguments, status, says):
    async with drained(one_broker, *arguments, **env) as process:
        found, answer, err = await outcome(process)
    assert (found, answer) == (status, None)
    assert says in err


async def test_a_hook_does_not_fail_for_a_member_that_has_left_and_is_forgotten(one_broker):
    async with drained(one_broker, "--wait", PARTQ_MEMBER="m") as hook:
        status, answer, err = await outcome(hook)
    assert (status, answer["drained"]) == (0, True)
    assert err == (
        "partq: member m: no broker knows it in group workers, expected the name that the consumer "
        "binds with; it may have left: nothing is to be handed over\n"
    )
    assert not answer["members"]["m"]["is_known"]


async def test_a_member_that_has_just_left_is_drained(one_broker):
    url, token = one_broker.url, one_broker.tokens.consume
    async with Consumer(url, queue="orders", group="workers", token=token, member="m") as consumer:
        await eventually(lambda: len(consumer.partitions) == PARTITIONS, "it has all partitions")
    async with drained(one_broker, PARTQ_MEMBER="m") as asks:
        status, answer, err = await outcome(asks)
    assert (status, answer["drained"], err) == (0, True, "")


async def test_brokers_that_are_away_are_asked_until_the_time_is_over(one_broker):
    env = {"PARTQ_MEMBER": "m", "PARTQ_URL": "http://127.0.0.1:1"}
    async with drained(one_broker, "--wait", "1", **env) as process:
        status, answer, _ = await outcome(process)
    assert (status, answer["drained"], answer["unknown"]) == (3, False, ["all"])
    assert "127.0.0.1:1" in answer["troubles"][0]
