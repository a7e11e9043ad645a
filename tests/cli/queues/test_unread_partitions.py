"""What cannot be read on a silent node of a Redis Cluster is told, and never taken for nothing."""

import asyncio
import json
import os

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from tests.broker import conftest
from tests.broker.cluster_outage import outage, redis_server
from tests.broker.conftest import (
    ADMIN,
    CONSUME,
    clock,
    lease_ttl_s,
    open_producer,
    queue_and_group,
    running,
    start_broker,
    tokens_file,
)
from tests.cli.processes import started

__all__ = [
    "clock", "lease_ttl_s", "outage", "redis_server", "running", "start_broker", "tokens_file",
]  # fmt: skip

TIMEOUT_S = 90.0


@pytest.fixture
def resources():
    return queue_and_group(partitions=24)


@pytest.fixture(autouse=True)
def layout(running, monkeypatch):
    """Producers know how many partitions there are."""
    monkeypatch.setattr(conftest, "LAYOUT", running.broker.config.layout)


def where(running, token):
    return {"PARTQ_URL": running.url, "PARTQ_QUEUE": "orders", "PARTQ_TOKEN": token}


async def partq(running, *arguments):
    """Run a command of the queue to its end."""
    env = {**where(running, ADMIN), "COLUMNS": "200"}
    result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)
    assert result.exit_code == 0, result.output
    return result.stdout


def consume(running, *arguments):
    """Start `partq consume`."""
    given = ("consume", "--group", "workers", "--member", "m", "--idle", "0.1", *arguments)
    env = {**os.environ, **where(running, CONSUME)}
    return started(given, env=env, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("outage", ["silent"], indirect=True)
async def test_what_is_on_a_silent_node_is_told_and_waited_for(running, outage):
    lost = sorted(outage.lost)
    await running.assign("m", [partition.index for partition in lost])
    producer = await open_producer(running)
    for partition in lost:
        await producer.publish(str(partition), partition=partition.index)
    await producer.close()
    outage()
    names = [str(partition) for partition in lost]

    with consume(running, "--wait", "5") as waiting:
        _, errors = await asyncio.to_thread(waiting.communicate)
    assert waiting.returncode == 1, errors
    told = [line for line in errors.splitlines() if "cannot be read" in line]
    assert len(told) == 2, "once while it waits, and at the end"
    assert all(f"partition {names[0]}" in line for line in told)

    listed = json.loads(await partq(running, "groups", "--json"))
    assert [each["uncounted"] for each in listed] == [names]
    assert f"not counted: partition {names[0]}" in await partq(running, "groups")
    shown = await partq(running, "status")
    assert "no broker serves" not in shown
    assert f"Redis does not answer for {names[0]}" in shown

    with consume(running) as waiting:
        assert "cannot be read" in await asyncio.to_thread(waiting.stderr.readline)
        outage.end()
        lines = [await asyncio.to_thread(waiting.stdout.readline) for _ in names]
    assert sorted(line.strip() for line in lines) == sorted(names)
