"""A dead-letter queue that takes nothing: what dies meanwhile holds nobody up."""

import pytest

from partq.broker import dead_letters
from tests.broker.conftest import eventually, open_flow
from tests.broker.test_dead_letters import fail, publish, resources, subscription

__all__ = ["resources"]


@pytest.fixture
def patience(monkeypatch):
    """A failed step is not repeated within the test."""
    monkeypatch.setattr(dead_letters, "FIRST_WAIT_S", 3600.0)
    monkeypatch.setattr(dead_letters, "LONGEST_WAIT_S", 3600.0)


async def test_what_dies_while_the_target_is_away_is_moved_at_once(running, patience):
    """Until it is moved nothing is delivered, and the repeat of a failed send may be far off."""
    await running.assign("m", [0])
    await publish(running, "poison", "too", "good")
    for offset in (0, 1):
        await fail(running, offset=offset)
        await fail(running, offset=offset)
        await eventually(
            lambda moved=offset + 1: len(subscription(running).outbox.letters) == moved, "moved"
        )
        await eventually(lambda: subscription(running).outbox.trouble, "a send that has failed")
    flow = await open_flow(running)
    assert await flow.take(1) == ["good"]
