"""Members of a Shared group that have all messages which they may have unacknowledged."""

import pytest

from partq.core.model import MemberId
from partq.testing import eventually
from tests.broker.conftest import LIMITS, queue_and_group
from tests.broker.parts.test_turn_shares import SharedScene


@pytest.fixture
def resources():
    return queue_and_group(limits={**LIMITS, "maxUnackedPerFlow": 2})


async def test_who_has_room_again_is_sent_messages_of_another_partition(running):
    scene = await SharedScene.open(running)
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    flow = running.broker.flow_registry.find("workers", MemberId("m"))
    assert flow.credit.is_at_limit
    await scene.producer.publish("other", partition=1)
    await eventually(lambda: not flow._ready, "it has looked, and has no room")
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    assert await m.values(1) == ["other"]
