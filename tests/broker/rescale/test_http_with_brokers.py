"""Numbered messages by plain HTTP, while a queue of real brokers gets more partitions, then fewer.

Requests go to any broker, some are cut off, and what has no answer is repeated elsewhere.
"""

import asyncio
import random

import aiohttp
import pytest

from partq import LogReader
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch

KEYS = [f"k{number}" for number in range(20)]
STORED = {200, 201}
AGAIN = {"not_stored", "not_owner", "outcome_unknown", "unavailable"}


class KeyPublisher:
    """Publishes the numbers 0, 1, 2, ... of one key, each until it is stored."""

    def __init__(self, local, http, key, chance):
        self.local = local
        self.http = http
        self.key = key
        self.chance = chance
        self.sent = 0
        self.generation = 0
        """Of the partition that stores the last one."""

    async def run(self, is_over):
        while not is_over.is_set():
            is_stored = False
            while not is_stored:  # also the last one: it may be stored without an answer
                is_stored = await self._is_stored()
            self.sent += 1

    async def _is_stored(self):
        """Send the next number; some requests are cut off, so that nobody knows what they did."""
        url = self.chance.choice(self.local.queue.brokers).url
        headers = {"Partq-Producer": "p", "Partq-Sequence": str(self.sent)}
        limit = aiohttp.ClientTimeout(total=self.chance.choice([0.01, 30.0, 30.0]))
        try:
            async with self.http.post(
                f"{url}/v1/queues/orders/messages",
                json={"key": self.key, "value": str(self.sent)},
                headers=headers,
                timeout=limit,
            ) as response:
                answer = await response.json()
        except (aiohttp.ClientError, TimeoutError):
            return False
        if response.status not in STORED:
            assert answer["error"]["code"] in AGAIN, answer
            return False
        self.generation = int(answer["partition"].partition(".")[0])
        return True


@pytest.fixture
async def local():
    async with LocalBroker(queue="orders", partitions=4, broker_count=2) as local:
        yield local


async def test_each_number_is_stored_once_and_in_order(local):
    is_over, chance = asyncio.Event(), random.Random(5)
    producing = {"Authorization": f"Bearer {local.tokens.produce}"}
    changing = {"Authorization": f"Bearer {local.tokens.admin}"}
    async with aiohttp.ClientSession(headers=producing) as http:
        publishers = [KeyPublisher(local, http, key, chance) for key in KEYS]
        async with asyncio.TaskGroup() as tasks:
            for each in publishers:
                tasks.create_task(each.run(is_over))
            for generation, count in ((2, 6), (3, 3)):
                seen = [each.sent for each in publishers]
                await eventually(
                    lambda seen=seen: all(
                        each.sent > before for each, before in zip(publishers, seen, strict=True)
                    ),
                    "each key has another message",
                )
                url = f"{local.queue.brokers[0].url}/admin/v1/queues/orders/partitions"
                async with http.post(url, json={"partitions": count}, headers=changing) as response:
                    assert response.ok, await response.text()
                await eventually(
                    lambda wanted=generation: wanted in {each.generation for each in publishers},
                    "slots have moved",
                )
            is_over.set()
    by_key = {key: [] for key in KEYS}
    async with LogReader(local.url, queue="orders", token=local.tokens.admin) as reader:
        for partition in sorted(await reader.partitions()):
            async for entry in reader.entries(partition, 0):
                for message in batch.decode(entry.data):
                    by_key[message.key].append(int(message.value))
    assert by_key == {each.key: list(range(each.sent)) for each in publishers}
