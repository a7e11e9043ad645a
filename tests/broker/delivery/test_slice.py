"""One message's straight road: publish, store, deliver, acknowledge."""

import pytest

from partq.testing.frame_peers import values_of
from partq.wire import frames


@pytest.mark.req("PUL-01")
async def test_published_messages_are_delivered_and_acked(running, peers):
    """What is confirmed comes in order, under a token; an ack is confirmed once it is stored."""
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    flow = await peers.open_flow(running)
    assigned, _ = await flow.expect(frames.Assigned)
    await producer.send(frames.Publish(1, 1, 0, 0), peers.make_batch(["a", "b", "c"]))
    published, _ = await producer.expect(frames.Published)
    assert (published.request, published.offset) == (1, 0)

    deliver, payload = await flow.expect(frames.Deliver)
    assert values_of(deliver, payload) == ["a", "b", "c"]
    assert (deliver.broker_epoch, deliver.epoch) == (assigned.broker_epoch, assigned.epoch)

    token = (deliver.broker_epoch, deliver.epoch, deliver.delivery)
    await flow.send(frames.Ack(7, 1, 0, *token, 2))
    confirmed, _ = await flow.expect(frames.AckConfirmed)
    assert confirmed.request == 7
    state = await running.state(0)
    assert (state["cursor"], state["lag"], state["in_flight"]) == (2, 1, 1)
