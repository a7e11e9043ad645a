"""The time to live of the queue that a test's broker serves."""

import pytest

from partq.embedded.provision import provision
from tests.broker.conftest import UID


@pytest.fixture
def set_ttl(store, resources, running):
    """Change the queue's time to live, in seconds; None: it has none."""

    async def set_ttl(seconds):
        queue = resources.queues[0]
        spec = queue.spec.model_copy(update={"message_ttl_seconds": seconds})
        await provision(store, queue.model_copy(update={"spec": spec}), resources, uid=UID)
        await running.broker.refresh()

    return set_ttl
