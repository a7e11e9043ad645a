"""Partitions whose application has paused them: the broker delivers nothing of them."""

from partq.core.model import PartitionId
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import connect_flow, open_producer


async def test_nothing_is_delivered_until_it_resumes_and_only_its_token_counts(running):
    await running.assign("m", [0])
    flow = await connect_flow(running)
    await flow.send(frames.Bind("m", "i", 1000))
    bound, _ = await flow.expect(frames.Bound)
    assert bound.takes_withholds
    assigned, _ = await flow.expect(frames.Assigned)
    place = (1, 0, assigned.broker_epoch, assigned.epoch)
    consumed = running.broker.owned[PartitionId(1, 0)].groups["workers"]
    await flow.send(frames.Withhold(*place, is_on=True))
    await eventually(lambda: consumed.is_withheld, "it is withheld")
    await flow.send(frames.Withhold(*place[:3], assigned.epoch - 1, is_on=False))
    producer = await open_producer(running)
    await producer.publish("a")
    await flow.send(frames.Ping(1))
    await flow.expect(frames.Pong)
    assert consumed.is_withheld, "another token ended nothing"
    assert consumed.book.in_flight == 0
    assert await told(running) == [True, True], "status and snapshot tell it"
    await flow.send(frames.Withhold(*place, is_on=False))
    header, _ = await flow.deliver()
    assert (header.start, header.cause) == (0, 0)
    await flow.send(frames.Withhold(*place, is_on=True))
    await eventually(lambda: consumed.is_withheld, "it is withheld again")
    await flow.close()
    await eventually(lambda: consumed.flow is None, "the flow is lost")
    assert not consumed.is_withheld, "the next member gets everything"
    assert await told(running) == [False, False]
    await producer.close()


async def told(running):
    """Return whether the status and the group's snapshot say that partition 1.0 is withheld."""
    _, status = await running.call("GET", "/v1/queues/orders/status")
    _, picture = await running.call("GET", "/v1/queues/orders/groups/workers/picture")
    state = picture["brokers"][running.broker.id]["state"]
    return [
        status["groups"]["workers"]["partitions"]["1.0"]["is_withheld"],
        state["partitions"]["1.0"]["groups"]["workers"]["is_withheld"],
    ]
