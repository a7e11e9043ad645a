"""A producer against real brokers while its queue gets more partitions, and then fewer."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from itertools import cycle, repeat
from socket import SHUT_RDWR

import aiohttp
import pytest

from partq import LogReader, Message, Producer
from partq.client.transport.session import Session
from partq.core import rescale
from partq.core.model import PartitionId
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.layouts import Layouts, Seals
from partq.store.records.partitions import Partitions
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch

KEYS = [f"k{number}" for number in range(40)]
WAIT_S = 60.0


class Change:
    """Changes of the partition count by the records, as a coordinator makes them."""

    def __init__(self, local: LocalBroker, store: Store):
        self.local = local
        keys = Keys("partq", "default", local.queue.name, local.queue.uid)
        self.layouts = Layouts(store, keys)
        self.seals = Seals(store, keys)
        self.partitions = Partitions(store, keys)

    async def prepare(self, count: int) -> None:
        """Make the new partitions, and their owners."""
        layout = rescale.prepare((await self.layouts.read()).layout, count)
        await self.layouts.write(layout)
        assert layout.next is not None
        new = layout.next.lineage
        for partition, predecessors in new.items():
            await self.seals.create_successor(partition, predecessors)
            await self.partitions.add_group(partition, "workers", start="Earliest")
        await self.tell("/refresh")
        await self.tell("/claim", *({"partitions": [str(each)]} for each in new))

    async def commit(self) -> None:
        """Put the change in force, and wait until all new partitions are open."""
        layout = (await self.layouts.read()).layout
        assert layout.next is not None
        new = layout.next.lineage

        async def are_open():
            return all([(await self.partitions.read(each)).layout.is_open for each in new])

        await self.layouts.write(rescale.commit(layout, int(time.time() * 1000)))
        await self.tell("/refresh")
        await eventually(are_open, "the new partitions are open")

    async def tell(self, call: str, *bodies: object) -> None:
        """Make a call of the coordinator: at all brokers, or with a body at each in turn."""
        urls = [broker.url for broker in self.local.queue.brokers]
        headers = {"Authorization": f"Bearer {self.local.tokens.admin}"}
        turns = zip(cycle(urls), bodies) if bodies else zip(urls, repeat(None))
        async with aiohttp.ClientSession(headers=headers) as http:
            for url, body in turns:
                path = f"{url}/admin/v1/queues/orders{call}"
                async with http.post(path, json=body) as response:
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

    async with asyncio.timeout(WAIT_S), AsyncExitStack() as stack:
        store = await Store.open(local.runtime.redis_url, prefix="partq", timeout_s=WAIT_S)
        stack.push_async_callback(store.close)
        change = Change(local, store)
        async with Producer(
            local.url, queue="orders", token=local.tokens.produce, linger_ms=1, max_batch_count=16,
            max_pending_messages=400,
        ) as producer:  # fmt: skip
            publishing = asyncio.create_task(publish(producer))
            for count in (6, 3):
                await change.prepare(count)
                cuts.share = 0.3
                await cuts.more()
                await change.commit()
                await cuts.more()
                cuts.share = 0.0
            is_over.set()
            await publishing
            await producer.flush()
    found = await stored(local)
    assert {partition.generation for partition in found} == {1, 2, 3}
    by_key: dict[str, list[int]] = {key: [] for key in KEYS}
    for messages in found.values():
        for message in messages:
            by_key[message.key].append(int(message.value))
    assert by_key == {key: list(range(sent[key])) for key in KEYS}
