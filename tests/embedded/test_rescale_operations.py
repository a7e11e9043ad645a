"""Changes of the partition count beside an earlier broker, a used-up quota and a pin.

All processes are real.
"""

import aiohttp
import pytest

from partq.client.browser import Browser
from partq.client.consumer import Consumer
from partq.core.model import PartitionId
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually

KEYS = [f"key-{number}" for number in range(24)]
QUOTA_BYTES = 1024 * 1024
RETIRE_AFTER_S = 0.2


class Stage:
    """The queue `orders` with two brokers, as its administrator and its applications see it."""

    def __init__(self, runtime, http):
        self.runtime = runtime
        self.queue = runtime.queue("orders")
        self._http = http

    async def call(self, method, path, token, body=None):
        """Return what the first broker that answers says."""
        url = self.queue.brokers[0].url + path
        headers = {"Authorization": f"Bearer {token}"}
        async with self._http.request(method, url, headers=headers, json=body) as answer:
            return answer.status, await answer.json()

    async def plan(self, count, *, is_dry_run=True):
        body = {"partitions": count, "is_dry_run": is_dry_run}
        path = "/admin/v1/queues/orders/partitions"
        _, answer = await self.call("POST", path, self.queue.tokens.admin, body)
        return answer

    async def status(self):
        _, answer = await self.call("GET", "/v1/queues/orders/status", self.queue.tokens.admin)
        return answer

    async def publish(self, key, value="v"):
        """Return the code of the refusal; empty: it is stored."""
        path, body = "/v1/queues/orders/messages", {"key": key, "value": value}
        status, answer = await self.call("POST", path, self.queue.tokens.produce, body)
        return "" if status == 201 else answer["error"]["code"]

    async def publish_all(self):
        """Publish a message of each key, as often as it takes while a change opens."""
        for key in KEYS:

            async def is_stored(key=key):
                return await self.publish(key) == ""

            await eventually(is_stored, f"a message of {key} is stored")

    def consumer(self):
        return Consumer(
            self.queue.url, queue="orders", group="workers", token=self.queue.tokens.consume,
            member="m", handle_signals=False,
        )  # fmt: skip

    async def change(self, count):
        """Change the count, and wait until all partitions take messages."""
        await self.plan(count, is_dry_run=False)
        await self.reach(count, "Draining", "Settled")

    async def reach(self, count, *phases):
        async def is_there():
            rescale = (await self.status()).get("rescale", {})
            return rescale.get("to_count") == count and rescale["phase"] in phases

        await eventually(is_there, f"{count} partitions: {' or '.join(phases)}", timeout_s=60.0)


@pytest.fixture
async def stage(tmp_path):
    resources = resources_of(
        queue_document(
            "orders", partitions=4, brokers={"replicas": 2}, limits={"maxSpoolBytes": QUOTA_BYTES}
        ),
        group_document("workers", "orders"),
    )
    timeout = aiohttp.ClientTimeout(30)
    async with (
        EmbeddedRuntime(resources, tmp_path, lease_ttl_s=3.0, retire_after_s=RETIRE_AFTER_S) as run,
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        yield Stage(run, http)


async def take(consumer, count):
    """Consume and acknowledge so many messages, and return their keys."""
    keys = []
    for _ in range(count):
        message = await anext(consumer)
        keys.append(message.key)
        await consumer.ack(message, confirmed=True)
    return sorted(keys)


async def test_a_change_waits_for_an_earlier_broker_and_goes_on_when_it_is_replaced(stage):
    earlier = stage.runtime.brokers[1]
    command = earlier._command
    await earlier.stop()
    earlier._command = tuple(
        "tests.embedded.earlier_broker" if each == "partq.cli.main" else each for each in command
    )
    await earlier.start()
    async with stage.consumer() as consumer:
        await stage.plan(6, is_dry_run=False)
        expected = ("Preparing", "Brokers", True)
        wait = f"an update of brokers of an earlier version: {earlier.name}"

        async def is_hindered():
            found = (await stage.status()).get("rescale", {})
            is_named = wait in str(found.get("waits_for"))
            return (found.get("phase"), found.get("hindrance"), is_named) == expected

        await eventually(is_hindered, "the status names it")
        assert wait in str((await stage.plan(6))["waits_for"])
        await stage.publish_all()
        assert await take(consumer, len(KEYS)) == sorted(KEYS)
        await earlier.stop()
        earlier._command = command
        await earlier.start()
        await stage.reach(6, "Draining", "Settled")
        await stage.publish_all()
        assert await take(consumer, len(KEYS)) == sorted(KEYS)


async def test_a_queue_without_room_is_changed_and_its_quota_holds_across_it(stage):
    value = "x" * 24 * 1024
    stored = []

    async def is_full():
        """Whether both brokers refuse, and not because one has used up its share of the rest."""
        codes = [await stage.publish(key, value) for key in KEYS]
        stored.extend(code for code in codes if code == "")
        left = QUOTA_BYTES - (await stage.status())["totals"]["bytes"]
        return set(codes) == {"quota_exceeded"} and left < len(value)

    await eventually(is_full, "the quota is used up")
    await stage.change(6)
    await eventually(is_full, "new partitions bring no new room")
    # A broker that goes by an older sum exceeds it, by less than what was left then.
    assert (await stage.status())["totals"]["bytes"] < 2 * QUOTA_BYTES
    async with stage.consumer() as consumer:
        await take(consumer, len(stored))
        await stage.publish_all()
        assert await take(consumer, len(KEYS)) == sorted(KEYS)


async def test_what_a_pin_keeps_is_browsed_to_its_end_after_the_change(stage):
    await stage.publish_all()
    names = {str(PartitionId(1, index)) for index in range(4)}
    browser = Browser(stage.queue.url, queue="orders", token=stage.queue.tokens.consume, pin="look")
    async with browser:
        messages = browser.messages()
        seen = [(await anext(messages)).message.key]
        await stage.change(2)
        async with stage.consumer() as consumer:
            assert await take(consumer, len(KEYS)) == sorted(KEYS)
        seen += [each.message.key async for each in messages]
        assert sorted(seen) == sorted(KEYS), "every group has done with them, and the pin has not"
        held = (await stage.status())["partitions"].keys() & names
        assert held, "the partitions that it holds are still there"

    async def are_removed():
        return not (await stage.status())["partitions"].keys() & names

    await eventually(are_removed, "they go with the pin", timeout_s=60.0)
