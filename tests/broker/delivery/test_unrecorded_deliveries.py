"""Deliveries that wait for their audit record, and the control frames behind them."""

from partq.broker.delivery.unrecorded_deliveries import UnrecordedDeliveries, UnrecordedDelivery
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.windows import Window
from partq.core.model import BrokerEpoch, Cause
from partq.store.records.log import Entry
from partq.wire import frames
from tests.broker.delivery.consumed import consumed


def delivery(part, start, stop, *, number=0, new_from=None, is_in_turn=True):
    """Return the delivery of a window in a batch of ten bytes."""
    entry = Entry(first=0, count=10, broker_epoch=BrokerEpoch(1), at_ms=0, data=b"x" * 10)
    fields = (1, 1, number, 1, 0, 0, start, stop, Cause.NONE, [], [], 0, "", -1)
    new_from = start if new_from is None else new_from
    window = Window(start, stop, [], Cause.NONE, [], stop - start, new_from, is_in_turn=is_in_turn)
    return UnrecordedDelivery(part, frames.Deliver(*part.partition, *fields), entry, window)


def test_control_frames_that_wait_are_counted():
    """So that a client which makes frames wait is not read from without end."""
    one, two = consumed(0, GroupCursor(0)), consumed(1, GroupCursor(0))
    waiting = UnrecordedDeliveries()
    assert not waiting.follow(one.partition, b"early"), "nothing is in its way"
    sent = delivery(one, 0, 2)
    for each in (sent, delivery(two, 0, 2)):
        waiting.add(each)
        assert waiting.follow(each.consumed.partition, b"frame")
    assert waiting.control_count == 2
    waiting.recorded(sent)
    waiting.next()
    assert waiting.control_count == 2
    assert waiting.next() == b"frame"
    assert waiting.control_count == 1
    assert waiting.forget(two) == (2, 10, [b"frame"])
    assert waiting.control_count == 0


def test_what_waits_of_other_sessions_stays_when_one_is_given_up():
    """A flow has several sessions of a partition, and ends them one by one."""
    one, two = consumed(0, GroupCursor(0)), consumed(0, GroupCursor(0))
    one.session, two.session = "ann", "bob"
    waiting = UnrecordedDeliveries()
    first, second = delivery(one, 0, 2), delivery(two, 4, 7)
    waiting.add(first)
    assert waiting.follow(one.partition, b"early")
    waiting.add(second)
    assert waiting.follow(one.partition, b"late")
    waiting.recorded(second)
    assert waiting.forget(one) == (2, 10, [b"early"])
    assert (waiting.unsent(two.partition).pairs(), waiting.control_count) == ([(4, 7)], 1)
    assert waiting.next() is not None, "it is recorded, and nothing is in its way any more"
    assert (waiting.next(), waiting.next()) == (b"late", None)


def test_what_was_sent_is_told_by_its_delivery_number():
    """What is sent out of turn lies below, and says nothing of it."""
    part = consumed(0, GroupCursor(0))
    waiting = UnrecordedDeliveries()
    assert waiting.sent_in_turn_upto(part.partition, 1) is None
    waiting.add(delivery(part, 1, 2, number=1, new_from=2, is_in_turn=False))
    assert waiting.sent_in_turn_upto(part.partition, 1) is None
    waiting.add(delivery(part, 4, 6, number=1, new_from=8))
    waiting.add(delivery(part, 6, 9, number=1, new_from=8))
    assert waiting.sent_in_turn_upto(part.partition, 1) == 4
    assert waiting.sent_in_turn_upto(part.partition, 0) is None
    assert waiting.sent_upto(part.partition) == 8
