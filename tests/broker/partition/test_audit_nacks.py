"""What the audit record tells of messages that were given back."""

import pytest

from partq.core.ranges import Ranges
from partq.wire import frames
from tests.broker.partition.test_audit import P0, of_kind, resources, told

__all__ = ["resources"]


async def test_a_nack_comes_before_what_it_brings(scene, peers):
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    assert await scene.source.nack(scene.held, [(1, 2)], delay_ms=0) == ""
    await scene.source.find(frames.Deliver)
    records = (await told(scene.running))[7:]
    assert records[0].kind == "ack"
    (nack,) = of_kind(records, "nack")
    assert (nack.first, nack.stop, nack.cause, nack.member) == (1, 2, "nack", "m")
    (deliver,) = of_kind(records, "deliver")
    assert (deliver.first, deliver.stop) == (1, 2), "not what is acknowledged"
    assert (deliver.cause, deliver.delivery) == ("nack", 1)
    assert records.index(nack) < records.index(deliver)


@pytest.mark.parametrize(
    ("begun", "told_of"),
    [
        pytest.param(1, [("release", 1, 3)], id="the rest has not begun: it is released"),
        pytest.param(2, [("nack", 1, 2), ("release", 2, 3)], id="one more has begun"),
        pytest.param(-1, [("nack", 1, 3)], id="all may have begun"),
    ],
)
async def test_an_ordered_nack_tells_of_all_that_it_takes_back(scene, peers, begun, told_of):
    """What comes again behind the message has its reason before it."""
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=0, begun=begun) == ""
    delivered = Ranges()
    while delivered.pairs() != [(0, 3)]:
        frame, _ = await scene.source.find(frames.Deliver)
        delivered.add(frame.start, frame.stop)
    records = (await told(scene.running))[7:]
    before = [record for record in records if record.kind != "deliver"]
    places = [(record.kind, record.first, record.stop) for record in before]
    assert sorted(places) == sorted([("nack", 0, 1), *told_of])
    assert {record.cause for record in before if record.kind == "nack"} == {"nack"}
    first = min(at for at, record in enumerate(records) if record.kind == "deliver")
    assert first == len(before), "nothing comes again before its reason is on record"
    for record in of_kind(records, "deliver"):
        reason = next(each for each in before if each.first <= record.first < each.stop)
        assert record.cause == reason.cause
        assert record.delivery == 1


def consumed_of(scene):
    return scene.running.broker.owned[P0].groups["workers"]


async def test_a_nack_is_answered_behind_the_step_back_that_it_brings(scene, peers):
    """Else its client would hand out what was taken back, while a delivery waits for its record."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    await scene.producer.publish("d")
    await gate.is_reached()
    held = scene.held
    token = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await scene.source.send(frames.Nack(7, *token, held.delivery, [(0, 1)], 60_000))
    assert await scene.source.gets_nothing()
    await scene.running.broker.cursor_writer.settle(consumed_of(scene))
    assert await scene.source.gets_nothing(), "it is stored, and the step back is not told yet"
    gate.opened.set()
    await scene.source.expect(frames.Deliver)
    await scene.source.expect(frames.Rewound)
    confirmed, _ = await scene.source.expect(frames.AckConfirmed)
    assert confirmed.request == 7


@pytest.fixture
async def again(scene, peers):
    """The delivery number of three messages that are redelivered once the gate is opened."""
    gate = peers.Gate(scene.running.broker.audits, "write")
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=0) == ""
    rewound, _ = await scene.source.find(frames.Rewound)
    consumed = consumed_of(scene)

    async def are_taken():
        return consumed.book.position == 3

    await peers.eventually(are_taken, "they wait for their record")
    yield rewound.delivery, gate
    gate.opened.set()


async def test_a_redelivery_that_waits_is_not_acknowledged_by_a_cumulative_ack(scene, again):
    """Nothing was sent under its delivery number; what was in hand before counts one by one."""
    number, gate = again
    assert await scene.source.ack(scene.held, 3, delivery=number) == "not_delivered"
    assert consumed_of(scene).book.cursor == 0
    assert await scene.source.ack(scene.held, ranges=[(0, 1)]) == ""
    gate.opened.set()
    held, _ = await scene.source.deliver()
    while held.stop < 3:
        held, _ = await scene.source.deliver()
    assert held.delivery == number
    assert await scene.source.ack(held, 3) == ""


async def test_a_redelivery_that_waits_is_not_released(scene, again):
    number, _ = again
    held = scene.held
    token = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await scene.source.send(frames.Release(*token, number, 2))
    failed, _ = await scene.source.find(frames.Failed)
    assert failed.code == "not_delivered"
