"""A Redis Cluster of which a test kills or stops the node that has nothing but partitions."""

import os
import signal

import pytest

from partq.testing.redis_cluster import RedisCluster, command


@pytest.fixture
def redis_server(tmp_path_factory):
    """Masters without replicas, each of which serves its keys whatever becomes of the others."""
    cluster = RedisCluster(has_replicas=False)
    with cluster:
        cluster.start(tmp_path_factory.mktemp("redis"))
        for master in cluster.masters:
            command(master.port, "CONFIG", "SET", "cluster-require-full-coverage", "no")
        yield cluster


@pytest.fixture
def outage(running, redis_server, request):
    """Kill or stop the master that has nothing but partitions, and return those."""
    store, keys = running.broker.store, running.broker.keys
    needed = {store.server_of(key) for key in (keys.config(), keys.group_config("workers"))}
    (victim,) = [
        master
        for master in redis_server.masters
        if not any(name.endswith(f":{master.port}") for name in needed)
    ]
    lost = {
        partition
        for partition in running.broker.owned
        if store.server_of(keys.meta(partition)).endswith(f":{victim.port}")
    }
    assert 0 < len(lost) < len(running.broker.owned)

    def begin():
        if is_silent:
            os.kill(victim.pid, signal.SIGSTOP)
        else:
            victim.kill()
        return lost

    is_silent = getattr(request, "param", "") == "silent"
    begin.lost = lost
    begin.end = lambda: os.kill(victim.pid, signal.SIGCONT)
    yield begin
    if is_silent:
        os.kill(victim.pid, signal.SIGCONT)
