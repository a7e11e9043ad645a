"""A whole queue on a Redis Cluster: the demo, and a master that dies under load."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.embedded.runtime import EmbeddedRuntime
from partq.lab.demo.run import QUEUE
from partq.lab.demo.scenario import STEPS
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.judge import judge
from partq.lab.workload.stage import Stage
from partq.resources import group_document, queue_document, resources_of
from partq.store.cluster_slots import slot_of
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.testing.redis_cluster import RedisCluster, command

PARTITION_COUNT = 12
MESSAGE_COUNT = 4000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RedisCluster() as cluster:
        cluster.start(tmp_path_factory.mktemp("cluster"))
        yield cluster


def test_the_demo_runs_on_a_cluster_and_leaves_nothing_there(cluster, tmp_path):
    source, report = tmp_path / "events.ndjson", tmp_path / "verdict.json"
    source.write_text("".join(json.dumps({"key": f"k{n % 200}"}) + "\n" for n in range(3000)))
    arguments = ["demo", "--input", str(source), "--duration", "30", "--json", str(report)]
    result = CliRunner().invoke(cli, [*arguments, "--redis", cluster.url])
    assert result.exit_code == 0, result.output
    verdict = json.loads(report.read_text())
    assert (verdict["published"], verdict["delivered"]) == (3000, 3000)
    assert (verdict["lost"], verdict["out_of_order"], verdict["failures"]) == (0, 0, [])
    assert [each["trigger"] for each in verdict["rebalances"]] == [step.trigger for step in STEPS]
    used = [command(master.port, "INFO", "commandstats") for master in cluster.masters]
    assert all("cmdstat_xadd" in text for text in used)
    keys = ("EVAL", "return table.concat(redis.call('KEYS', '*'), ' ')", "0")
    left = [key for master in cluster.masters for key in command(master.port, *keys).split()]
    stays = [key for key in left if ":ended:" not in key]
    assert len(stays) <= 1, f"beside the stream of events: {left}, {QUEUE}"
    assert len(left) - len(stays) <= 1, "what keeps the deleted queue from coming back expires"


async def test_a_master_dies_under_load_and_nothing_that_was_confirmed_is_lost(cluster, tmp_path):
    """It holds the brokers' leases, too: the worst one to lose."""
    resources = resources_of(
        queue_document("orders", partitions=PARTITION_COUNT, brokers={"replicas": 2}),
        group_document("workers", "orders"),
    )
    runtime = EmbeddedRuntime(resources, tmp_path / "data", redis_url=cluster.url)
    async with runtime:
        queue = runtime.queue("orders")
        stage = Stage(
            queue, group="workers", partition_count=PARTITION_COUNT, directory=tmp_path / "stage"
        )
        async with stage:
            for number in range(2):
                await stage.start_consumer(f"consumer-{number}")
            assert await stage.until(stage.is_balanced, 60), stage.imbalance()
            load = ("--messages", str(MESSAGE_COUNT), "--keys", "50", "--per-s", "400")
            publisher = await stage.start_publisher("publisher", *load)
            progress = stage.progress
            assert await stage.until(lambda: progress.published_count > 400, 60)
            keys = Keys("partq", queue.namespace, queue.name, queue.uid)
            number = await asyncio.to_thread(fail_over, cluster, slot_of(keys.brokers()))
            assert await stage.until(lambda: publisher.exit_code is not None, 90)
            assert publisher.exit_code == 0, publisher.last_words()
            assert await stage.until(lambda: progress.has_all, 60)
            assert await stage.until(stage.is_balanced, 60), stage.imbalance()
    verdict = judge(in_order(progress.published), in_order(progress.deliveries))
    assert verdict.is_good, verdict.findings
    assert verdict.published == MESSAGE_COUNT
    store = await Store.open(cluster.url, timeout_s=60.0)
    served = {node.name for node in store.nodes()}
    await store.close()
    assert f"127.0.0.1:{cluster.replicas[number].port}" in served


def fail_over(cluster, slot):
    """Kill the master of a slot, wait until its replica serves, and return its number."""
    number = slot * 3 // 16_384
    cluster.set_node_timeout(3000)
    cluster.masters[number].kill()
    cluster.await_takeover(number)
    return number
