"""Running totals that are kept in states alone: right through kills and changes of the count."""

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from partq import Message, Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.key_states import decode_state
from tests.examples.programs import WAIT_S, start

ACCOUNTS = [f"account-{number}" for number in range(16)]
ROUNDS = 8
STEPS = 5


class Consumers:
    """Two processes of the example; the one that has printed last is at work."""

    def __init__(self, *given):
        self.given = given
        self.readers = {}
        self.last = None
        self.printed = asyncio.Event()

    async def start(self):
        process = await start("running_totals.py", *self.given)
        self.readers[process] = asyncio.create_task(self._read(process))

    async def _read(self, process):
        while await process.stdout.readline():
            self.last = process
            self.printed.set()

    async def kill_one_at_work(self):
        self.printed.clear()
        await self.printed.wait()
        await self.kill(self.last)

    async def kill(self, process):
        process.kill()
        await process.wait()
        await self.readers.pop(process)


@pytest.mark.req("HND-03")
@pytest.mark.req("HND-23")
@pytest.mark.req("HND-25")
@pytest.mark.parametrize("order", ["Ordered"])
async def test_each_total_counts_each_message_once(order):
    groups = {"workers": {"nack": {"order": order}}}
    spec = {"rebalance": {"maxHandoffSeconds": 1, "delaySeconds": 0}}
    async with LocalBroker(partitions=2, broker_count=2, groups=groups, spec=spec) as local:
        consumers = Consumers("--url", local.url, "--token", local.tokens.consume)
        headers = {"Authorization": f"Bearer {local.tokens.admin}"}
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as http,
                Producer(local.url, queue="orders", token=local.tokens.produce) as producer,
                asyncio.timeout(WAIT_S),
            ):
                await consumers.start()
                for step in range(STEPS):
                    await consumers.start()
                    sending = asyncio.create_task(publish(producer, step))
                    await consumers.kill_one_at_work()
                    if step % 2 == 0:
                        await local.queue.brokers[step // 2 % 2].kill()
                    else:
                        await change(local, http, {1: 3, 3: 2}[step])
                    await sending
                await until_right(local, http)
        finally:
            for each in list(consumers.readers):
                await consumers.kill(each)


async def publish(producer, step):
    for number in range(ROUNDS):
        value = str(step * ROUNDS + number).encode()
        await producer.send_many([Message(each, value) for each in ACCOUNTS])
        await producer.flush()


async def change(local, http, count):
    """Change the number of partitions; a broker may be starting again."""

    async def is_asked():
        for broker in local.queue.brokers:
            url = f"{broker.url}/admin/v1/queues/orders/partitions"
            with suppress(aiohttp.ClientError):
                async with http.post(url, json={"partitions": count}) as response:
                    if response.ok:
                        return True
        return False

    await eventually(is_asked, "a broker takes the new number", timeout_s=WAIT_S)


async def until_right(local, http):
    """Wait until all is counted; no total may ever be above that."""
    total = sum(range(ROUNDS * STEPS))
    for account in ACCOUNTS:

        async def is_right(account=account):
            found = await total_of(local, http, account)
            assert found <= total, account
            return found == total

        await eventually(is_right, f"{account} has its total", timeout_s=WAIT_S)


async def total_of(local, http, account):
    for broker in local.queue.brokers:
        url = f"{broker.url}/v1/queues/orders/groups/workers/state?key={account}"
        with suppress(aiohttp.ClientError):
            async with http.get(url) as response:
                if response.ok:
                    return int(decode_state((await response.json())["state"] or "MA=="))
    return 0
