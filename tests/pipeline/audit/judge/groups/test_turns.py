"""A group of type Shared: any member may have any message, and each message one member."""

import pytest

from tests.pipeline.audit.judge.groups.test_shares import findings
from tests.pipeline.audit.judge.small_record import BEGIN, ack, deliver, found, publish
from tests.pipeline.audit.planting import busy
from tests.pipeline.audit.shared_plants import A, B
from tests.pipeline.audit.turn_plants import TURN_PLANTS, TurnRun


@pytest.mark.parametrize("plant", TURN_PLANTS, ids=lambda each: each.__name__)
def test_a_planted_fault_is_found_and_nothing_else(plant):
    planted = plant(busy("1.0"))
    assert findings(planted.partition) == [planted.what]


def test_messages_have_no_order_and_a_key_may_be_at_two_members():
    run = busy("1.0")
    at = TurnRun(run)
    at.deliver(A, at.later, *at.rest)
    at.deliver(B, at.lower)
    at.ack(A, at.later, *at.rest)
    at.ack(B, at.lower)
    assert findings(run) == []


def test_what_failed_waits_while_new_messages_are_sent_and_goes_to_another_member():
    run = busy("1.0")
    at = TurnRun(run)
    first, second, third, *new = at.offsets
    at.deliver(A, first, second, third)
    at.write(A, "nack", first, first + 1, cause="nack")
    at.write(A, "nack", second, second + 1, cause="ack_timeout")
    for each in new:
        at.deliver(B, each)
        at.ack(B, each)
    at.deliver(B, first, cause="nack")
    at.deliver(B, second, cause="ack_timeout")
    at.ack(B, first, second)
    at.write(A, "release", third, third + 1, flags="keyed")
    at.deliver(B, third)
    at.ack(B, third)
    assert findings(run) == []


def test_acks_of_a_lost_member_may_be_recorded_behind_its_end():
    run = busy("1.0")
    at = TurnRun(run)
    at.deliver(A, *at.offsets)
    at.lose(A)
    at.ack(A, *at.offsets)
    assert findings(run) == []


def turns(kind, epoch, member="a", **fields):
    return (kind, 0, {"member": member, "epoch": epoch, "flags": "turns", **fields})


def sent(first, stop, epoch, member="a", **fields):
    return deliver(0, first, stop, epoch=epoch, member=member, flags="turns", **fields)


def test_the_next_broker_sends_all_again_at_once_also_what_waited():
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 0, 4), turns("bind", 2),
        sent(0, 2, 2), ("nack", 0, {"epoch": 2, "first": 0, "stop": 1, "cause": "nack"}),
        ("claim", 0, {"stop": 4}), turns("bind", 2, "b"),
    ]  # fmt: skip
    again = sent(0, 2, 2, "b", cause="broker_change")
    new = [
        sent(2, 3, 2, "b"), ack(0, 2, 3, member="b", epoch=2),
        sent(3, 4, 2, "b"), ack(0, 3, 4, member="b", epoch=2), publish(0, 4, 5),
        publish(0, 5, 6), sent(4, 5, 2, "b"), ack(0, 4, 5, member="b", epoch=2),
    ]  # fmt: skip
    assert found(*told, again, *new) == []
    assert found(*told, *new) == ["lost"], "0 and 1 have one history"


def test_members_of_a_group_that_was_created_again_are_shown_by_their_first_bind():
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 0, 2), turns("bind", 2),
        ("end", 0, {"member": ""}), ("begin", 0, {"member": "", "epoch": 4}),
        sent(0, 2, 2), turns("unbind", 2, cause="flow_lost"), turns("bind", 5), sent(0, 2, 5),
    ]  # fmt: skip
    assert found(*told, ack(0, 0, 2, epoch=5)) == []
    assert found(*told, sent(0, 2, 5)) == ["duplicate_without_cause"]


def test_a_removed_group_passes_no_gate_of_the_one_that_is_created_again():
    """Its broker has not noticed its end when it sends to those that it knows."""
    opened = {"group": "", "first": 0, "target": "1.9:0:0-65536"}
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), ("claim", 0, {}), turns("bind", 2),
        ("gate", 0, {"member": "", "target": "1.9:0:3"}), ("open", 0, opened), publish(0, 0, 2),
        ("end", 0, {"member": ""}), ("begin", 0, {"member": "", "epoch": 4}), sent(0, 2, 2),
    ]  # fmt: skip
    assert found(*told, turns("unbind", 2)) == []
    assert found(*told, turns("bind", 5), sent(0, 2, 5)) == ["delivered_before_gate"]


def test_a_reset_sends_again_what_members_had():
    told = [
        BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 0, 2), turns("bind", 2),
        sent(0, 2, 2), ack(0, 0, 1, epoch=2), ("reset", 0, {"member": "", "epoch": 3, "number": 1}),
    ]  # fmt: skip
    again = [sent(0, 2, 4, cause="reset"), ack(0, 0, 2, epoch=4)]
    assert found(*told, turns("bind", 4), *again) == []
