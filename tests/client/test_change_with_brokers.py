"""A producer against real brokers while its queue gets more partitions, and then fewer."""

import asyncio
import random
from collections import Counter
from functools import partial
from socket import SHUT_RDWR

import aiohttp
import pytest

from partq import LogReader, Message, Producer, Reader
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch

KEYS = [f"k{number}" for number in range(40)]
WAIT_S = 60.0


async def change(local: LocalBroker, count: int) -> None:
    """Ask for another number of partitions."""
    url = f"{local.queue.brokers[0].url}/admin/v1/queues/orders/partitions"
    headers = {"Authorization": f"Bearer {local.tokens.admin}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(url, json={"partitions": count}) as response,
    ):
        assert response.ok, await response.text()


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2) as local:
        yield local


class Cuts:
    """Cuts connections of producers behind some of the frames that they send."""

    def __init__(self):
        self.share = 0.0
        """Of the frames, how many are the last of their connection."""
        self.count = 0
        self._chance = random.Random(5)

    async def more(self):
        """Wait for some more of them."""
        enough = self.count + 4
        await eventually(lambda: self.count >= enough, "connections are cut")

    def watch(self, socket):
        send = socket.send_bytes

        async def send_and_cut(data):
            await send(data)
            if self._chance.random() < self.share:
                self.count += 1
                socket.get_extra_info("socket").shutdown(SHUT_RDWR)

        socket.send_bytes = send_and_cut
        return socket


@pytest.fixture
def cuts(monkeypatch):
    connect, cuts = Session.connect, Cuts()

    async def connect_to_cut(self, url, path):
        return cuts.watch(await connect(self, url, path))

    monkeypatch.setattr(Session, "connect", connect_to_cut)
    return cuts


async def stored(local) -> dict[PartitionId, list[Message]]:
    """Return the messages of each partition, the oldest generation first."""
    found: dict[PartitionId, list[Message]] = {}
    async with LogReader(local.url, queue="orders", token=local.tokens.admin) as reader:
        for partition in await reader.partitions():
            found[partition] = []
            async for each in reader.entries(partition, 0):
                found[partition] += batch.decode(each.data)
    return found


async def test_nothing_is_lost_or_stored_twice_and_each_key_keeps_its_order(local, cuts):
    sent: Counter[str] = Counter()
    is_over = asyncio.Event()
    chance = random.Random(3)

    def are_in(producer: Producer, generation: int) -> bool:
        return generation in {producer.partition_of(key).generation for key in KEYS}

    async def publish(producer: Producer) -> None:
        while not is_over.is_set():
            chosen = chance.choices(KEYS, k=20)
            messages = []
            for key in chosen:
                messages.append(Message(key, b"%d" % sent[key]))
                sent[key] += 1
            future = await producer.send_many(messages)
            if chance.random() < 0.2:
                await future

    read: dict[str, list[int]] = {key: [] for key in KEYS}
    again: dict[str, list[int]] = {key: [] for key in KEYS}

    async def follow(found: dict[str, list[int]], fetch_bytes: int) -> None:
        token = local.tokens.admin
        async with Reader(
            local.url, queue="orders", token=token, fetch_bytes=fetch_bytes
        ) as reader:
            async for each in reader:
                message = each.message
                assert message is not None
                assert message.key is not None
                found[message.key].append(int(message.value))

    async with asyncio.timeout(WAIT_S):
        reading = asyncio.create_task(follow(read, 1 << 20))
        async with Producer(
            local.url, queue="orders", token=local.tokens.produce, linger_ms=1, max_batch_count=16,
            max_pending_messages=400,
        ) as producer:  # fmt: skip
            publishing = asyncio.create_task(publish(producer))
            for generation, count in ((2, 6), (3, 3)):
                cuts.share = 0.3
                await change(local, count)
                await eventually(partial(are_in, producer, generation), "slots have moved")
                await cuts.more()
                cuts.share = 0.0
            is_over.set()
            await publishing
            await producer.flush()
        await eventually(lambda: sum(map(len, read.values())) == sent.total(), "all is read")
        reading.cancel()
        # This one finds all partitions at once.
        reading = asyncio.create_task(follow(again, 1))
        await eventually(lambda: sum(map(len, again.values())) == sent.total(), "all is read")
        reading.cancel()
    assert again == read == {key: list(range(sent[key])) for key in KEYS}
    found = await stored(local)
    assert {partition.generation for partition in found} == {1, 2, 3}
    by_key: dict[str, list[int]] = {key: [] for key in KEYS}
    for messages in found.values():
        for message in messages:
            by_key[message.key].append(int(message.value))
    assert by_key == {key: list(range(sent[key])) for key in KEYS}
