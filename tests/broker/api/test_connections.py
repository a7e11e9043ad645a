"""What a broker does about connections to Redis that are of no use, and what its probes say."""

import pytest

from partq.store.server import Channel
from partq.testing import eventually
from partq.testing.redis_server import RedisServer

STUCK, HELPLESS = 3, 10
"""Lengths of the lease: connections are opened again, and another process is wanted."""


@pytest.fixture
def redis_server(tmp_path):
    """A server that the test may configure and stop."""
    with RedisServer() as server:
        server.start(tmp_path / "redis")
        yield server


async def health(running):
    status, answer = await running.call("GET", "/healthz", token=None)
    return status, answer["status"]


async def lapse(running, clock, lengths):
    """Let so many lengths of the lease pass, none of which could be renewed."""
    await eventually(lambda: not running.broker.lease.is_valid or _pass(clock, 0.5), "it is over")
    clock.ahead_s += lengths * running.settings.lease_ttl_s


def _pass(clock, seconds):
    clock.ahead_s += seconds


async def test_connections_of_no_use_are_opened_again(running, clock):
    """Whatever it is that makes them so: here, one is logged in as somebody who may do nothing."""
    store = running.store
    await store.read("ACL", "SETUSER", "limited", "on", ">pw", "+info", "+ping")
    await store.read("AUTH", "limited", "pw", channel=Channel.CONTROL)
    await lapse(running, clock, STUCK)
    await eventually(lambda: running.broker.is_ready, "the broker has its lease again")
    assert await health(running) == (200, "ok")


async def test_a_broker_whose_password_is_no_longer_taken_wants_to_be_restarted(running, clock):
    """Its environment has the old one as long as it lives."""
    store = running.store
    await store.read("ACL", "SETUSER", "default", "resetpass", ">new")
    await store.read("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await lapse(running, clock, HELPLESS)
    text = "Redis refuses the user or the password that this process was started with"
    await eventually(lambda: running.broker.lease.trouble == text, "another process is wanted")
    assert await health(running) == (503, text)


async def test_a_redis_that_is_away_is_no_reason_to_restart_brokers(running, clock, redis_server):
    redis_server.kill()
    await lapse(running, clock, HELPLESS)
    await eventually(lambda: not running.broker.lease.trouble, "the lease was tried again")
    assert not running.broker.lease.is_valid
    assert await health(running) == (200, "ok")
