"""A broker whose Redis is switched over to its replica, while every connection stays open."""

import pytest

from partq.testing import eventually
from partq.wire import frames
from tests.failover import FailoverPair


@pytest.fixture
async def redis_server(tmp_path_factory):
    """The address of the pair stands for the session's server."""
    async with FailoverPair().started(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


async def test_a_broker_goes_over_to_the_new_master_by_itself(redis_server, running, peers):
    producer = await peers.open_producer(running)
    await producer.publish("a")
    await redis_server.switch_over()

    async def stores():
        """Whether the next batch is confirmed; what was refused before is sent again."""
        await producer.offer(1, "b")
        answer, _ = await producer.expect((frames.Published, frames.PublishRefused, frames.Moved))
        return isinstance(answer, frames.Published)

    await eventually(stores, "the broker stores again")
    assert running.broker.is_ready
