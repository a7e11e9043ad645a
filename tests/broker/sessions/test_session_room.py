"""Sessions whose member may have few messages unacknowledged: each of them gets on."""

import pytest

from partq.core.hashing import slot_of
from partq.core.model import MemberId
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import LIMITS, queue_and_group
from tests.broker.sessions.locks import OF_PARTITION_0, A, B, Sessions

OF_4 = OF_PARTITION_0[:4]
ELSEWHERE = next(f"s{i}" for i in range(200) if 16_384 <= slot_of(f"s{i}") < 32_768)
"""A session of partition 1.1."""


@pytest.fixture
def resources():
    return queue_and_group(limits={**LIMITS, "maxUnackedPerFlow": 4})


@pytest.fixture
async def scene(running):
    return await Sessions.open(running)


@pytest.mark.parametrize("credit", [4, 1000])
async def test_a_long_session_does_not_use_up_the_limit_of_unacknowledged_messages(scene, credit):
    await scene.publish(*[A] * 12, B, B)
    m = await scene.join(credit=credit)
    long = await m.accept(A)
    assert list(await m.messages(long, 2)) == [0, 1]
    delivery = m.delivery
    await m.send(frames.Credit(2, 0))  # handed out, and not acknowledged
    other = await m.accept(B)
    assert await m.messages(other, 1) == {12: f"{B}/12"}
    assert await m.ack_offsets(long, 0, 1, delivery=delivery) == ""
    assert list(await m.messages(long, 1)) == [2]


async def test_a_session_gets_on_once_those_of_other_partitions_are_acknowledged(scene):
    m = await scene.join()
    sessions = []
    for key in OF_4:
        await scene.publish(key)
        sessions.append(await m.accept(key))
        assert len(await m.messages(sessions[-1], 1)) == 1
    flow = scene.running.broker.flow_registry.find("workers", MemberId("m"))
    assert flow.credit.is_at_limit
    await scene.publish(ELSEWHERE, index=1)
    late = await m.accept(ELSEWHERE)
    await eventually(lambda: not flow._ready, "it has looked, and has no room")
    assert await m.ack_offsets(sessions[0], 0) == ""
    assert await m.messages(late, 1) == {0: f"{ELSEWHERE}/0"}
