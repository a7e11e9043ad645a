"""The embedded runtime with real processes: it serves, survives what is killed, keeps its data."""

import os
from pathlib import Path

import aiohttp
import psutil
import pytest

from partq.embedded.runtime import EmbeddedRuntime
from partq.errors import SettingsError
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from tests.even_shares import even_shares

LOOK_S = 0.05
MIB = 2**20


def runtime_in(data_dir: Path, *, partitions=2, group="workers", brokers=1, **options):
    """Each process takes a second to start: more brokers than one only where it matters."""
    resources = resources_of(
        queue_document("orders", partitions=partitions, brokers={"replicas": brokers}),
        group_document(group, "orders"),
    )
    return EmbeddedRuntime(resources, data_dir, lease_ttl_s=20.0, **options)


class Http:
    """A client that has nothing but HTTP."""

    def __init__(self, runtime, http):
        self.queue = runtime.queue("orders")
        self.http = http
        self.answers = {}

    async def call(self, role, path, body, *, broker=0):
        url = f"{self.queue.brokers[broker].url}/v1/queues/orders{path}"
        headers = {"Authorization": f"Bearer {getattr(self.queue.tokens, role)}"}
        method = "GET" if body is None else "POST"
        async with self.http.request(method, url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def has_one_partition(self):
        _, layout = await self.call("produce", "/layout", None)
        return "table" in layout and [*layout["table"], *layout["retired"]] == ["2.0"]

    async def publish(self, value):
        """Publish until it is confirmed."""

        async def confirmed():
            try:
                body = {"key": value, "value": value}
                status, answer = await self.call("produce", "/messages", body)
            except aiohttp.ClientError:
                return None
            assert status in (201, 503, 504), answer
            return answer if status == 201 else None

        return await eventually(confirmed, f"{value} is stored", interval_s=LOOK_S)

    async def pull_and_ack(self, wanted, group="workers"):
        """Pull from all brokers and ack until all of `wanted` came."""
        came = set()

        async def have_come():
            for broker in range(len(self.queue.brokers)):
                came.update(await self._turn(broker, group))
            return came >= wanted

        await eventually(have_come, f"{wanted} come", interval_s=LOOK_S)
        return came

    async def _turn(self, broker, group):
        body = {
            "member": "me",
            "incarnation": "1",
            "max_messages": 100,
            "wait_ms": 100,
            "last_answer": self.answers.get(broker),
        }
        status, answer = await self.call("consume", f"/groups/{group}/pull", body, broker=broker)
        if status != 200:
            assert answer["error"]["code"] in ("not_listed", "broker_closing"), answer
            return set()
        self.answers[broker] = answer["answer"]
        acks = [
            {
                **{name: message[name] for name in ("partition", "broker_epoch", "epoch")},
                "delivery": message["delivery"],
                "offsets": [message["offset"]],
            }
            for message in answer["messages"]
        ]
        if acks:
            body = {"member": "me", "flow": answer["flow"], "acks": acks}
            status, results = await self.call(
                "consume", f"/groups/{group}/acks", body, broker=broker
            )
            assert status == 200, results
        return {message["value"] for message in answer["messages"]}


@pytest.fixture
async def http():
    timeout = aiohttp.ClientTimeout(60)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        yield session


async def test_http_alone_publishes_pulls_and_acks(tmp_path, http):
    async with runtime_in(tmp_path, brokers=2) as runtime:
        await even_shares(runtime.queue("orders"))
        client = Http(runtime, http)
        values = {f"message {number}" for number in range(5)}
        for value in values:
            await client.publish(value)

        assert await client.pull_and_ack(values) == values

        status, answer = await client.call("admin", "/status", None)
        assert status == 200
        lags = [row["lag"] for row in answer["groups"]["workers"]["partitions"].values()]
        assert lags == [0, 0]
        assert answer["store"]["appendfsync"] == "always"


async def test_the_next_runtime_takes_up_data_and_tokens_and_the_groups_that_left_the_file(
    tmp_path, http
):
    """Another number of partitions is changed while it runs; what was read is removed."""
    async with runtime_in(tmp_path, partitions=2) as runtime:
        before = runtime.queue("orders")
        await Http(runtime, http).publish("kept")

    async with runtime_in(tmp_path, partitions=1, group="others", retire_after_s=0.0) as runtime:
        after = runtime.queue("orders")
        assert (after.uid, after.tokens) == (before.uid, before.tokens)
        assert after.groups == ("others", "workers")
        client = Http(runtime, http)
        assert await client.pull_and_ack({"kept"}, "workers") == {"kept"}
        client.answers.clear()
        assert await client.pull_and_ack({"kept"}, "others") == {"kept"}
        await eventually(client.has_one_partition, "the others are removed", interval_s=LOOK_S)
        await client.publish("behind the change")


async def test_killed_processes_come_back(tmp_path, http):
    async with runtime_in(tmp_path, brokers=2) as runtime:
        client = Http(runtime, http)
        await client.publish("before")

        await runtime.redis.kill()
        await client.publish("after Redis")
        await runtime.brokers[0].kill()
        await runtime.coordinators[0].kill()
        await client.publish("after a broker and the coordinator")

        everything = {"before", "after Redis", "after a broker and the coordinator"}
        assert await client.pull_and_ack(everything) >= everything
        counts = [runtime.redis.restart_count, runtime.brokers[0].restart_count]
        assert counts == [1, 1]


async def test_a_second_one_is_refused_and_harms_nobody_and_nothing_is_left_behind(tmp_path, http):
    """On the directory or on the port of the first."""
    async with runtime_in(tmp_path / "one") as runtime:
        children = [runtime.redis, *runtime.brokers, *runtime.coordinators]
        pids = [child.pid for child in children]
        assert len(pids) == 3
        with pytest.raises(SettingsError, match=f"process {os.getpid()} is using it"):
            await runtime_in(tmp_path / "one").start()
        port = int(runtime.brokers[0].url.rpartition(":")[2])
        with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 is in use"):
            await runtime_in(tmp_path / "two", port=port).start()
        await Http(runtime, http).publish("still served")
        assert (runtime.data_dir / "dev.json").exists()

    assert not any(map(psutil.pid_exists, pids))
    assert not (tmp_path / "one" / "dev.json").exists()


@pytest.mark.parametrize("broker_count", [0, 65])
def test_wrong_number_of_brokers(tmp_path, broker_count):
    with pytest.raises(SettingsError, match=f"brokers: got {broker_count}, expected 1 to 64"):
        runtime_in(tmp_path, broker_count=broker_count)


async def test_brokers_keep_to_the_limits_of_their_queue(tmp_path):
    """What `brokers.limits` does not name stays at its default."""
    brokers = {"replicas": 1, "limits": {"pendingBytes": 7 * MIB}}
    resources = resources_of(queue_document("orders", partitions=1, brokers=brokers))
    async with EmbeddedRuntime(resources, tmp_path, lease_ttl_s=20.0) as runtime:
        (broker,) = runtime.brokers
        async with aiohttp.ClientSession() as http, http.get(f"{broker.url}/metrics") as response:
            lines = (await response.text()).splitlines()
    found = [line for line in lines if line.startswith("partq_buffer_limit_bytes{")]
    limits = {line.split('buffer="')[1].split('"')[0]: float(line.split()[-1]) for line in found}
    assert limits == {"pending": 7 * MIB, "tail": 64 * MIB, "read_ahead": 64 * MIB}
