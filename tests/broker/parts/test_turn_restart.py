"""A Shared group through a restart of Redis."""

from partq.core.model import Cause
from tests.broker.ownership.test_failover import own_redis, redis_server
from tests.broker.parts.test_turn_shares import SharedScene

__all__ = ["own_redis", "redis_server"]


async def test_what_members_have_comes_again_after_a_restart_of_redis(running, own_redis):
    scene = await SharedScene.open(running)
    m = await scene.join("m")
    await scene.publish("a0", "a1", "a2")
    held, _ = await m.deliver()
    assert await m.ack(held, ranges=[(1, 2)]) == ""
    own_redis.restart()
    found = []
    while len(found) < 2:
        again, some = await m.deliver()
        assert (again.cause, again.broker_epoch > held.broker_epoch) == (Cause.BROKER_CHANGE, True)
        found += some
        assert await m.ack(held, ranges=[(again.start, again.stop)]) == "fenced"
        assert await m.ack(again, ranges=[(again.start, again.stop)]) == ""
    assert found == ["a0", "a2"]
    assert scene.consumed.book.cursor == 3
