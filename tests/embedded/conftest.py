"""A running queue with a group whose members may choose their partitions."""

from contextlib import asynccontextmanager

import aiohttp
import pytest

from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from tests.embedded.client_group import Group


@pytest.fixture
async def started(tmp_path):
    @asynccontextmanager
    async def start(*, brokers, partitions, delay_s, handoff_s=3, assignment="Client", **queue):
        resources = resources_of(
            queue_document(
                "orders",
                partitions=partitions,
                brokers={"replicas": brokers},
                rebalance={"delaySeconds": delay_s, "maxHandoffSeconds": handoff_s},
                **queue,
            ),
            group_document("workers", "orders", assignment=assignment),
        )
        timeout = aiohttp.ClientTimeout(60)
        async with (
            EmbeddedRuntime(resources, tmp_path, lease_ttl_s=3.0) as runtime,
            aiohttp.ClientSession(timeout=timeout) as http,
        ):
            yield runtime, Group(runtime, http)

    return start
