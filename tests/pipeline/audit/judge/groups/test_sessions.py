"""A group of type Session: who has which session, and what is sent under its lock."""

import pytest

from partq.core.hashing import slot_of
from partq.pipeline.audit.judge.groups.lanes import LaneHighs
from partq.pipeline.audit.judge.groups.session_lanes import KeyedLanes, SessionLanes
from tests.pipeline.audit.judge.groups.test_shares import findings
from tests.pipeline.audit.judge.small_record import BEGIN, ack, deliver, judged, read_lines
from tests.pipeline.audit.model import Group, Line, Partition
from tests.pipeline.audit.planting import busy
from tests.pipeline.audit.session_plants import SESSION_PLANTS, SessionRun
from tests.pipeline.audit.shared_plants import A, B


@pytest.mark.parametrize("plant", SESSION_PLANTS, ids=lambda each: each.__name__)
def test_a_planted_fault_is_found_and_nothing_else(plant):
    planted = plant(busy("1.0"))
    assert findings(planted.partition) == [planted.what]


def test_sessions_have_no_order_between_them_and_a_flow_has_several():
    run = busy("1.0")
    at = SessionRun(run)
    others = [each for each in at.rest if at.key(each) != at.one]
    at.lock(A, at.one, *{at.key(each) for each in others})
    at.deliver(A, *others)
    at.deliver(A, *at.mine)
    at.ack(A, *at.mine)
    at.unlock(A, at.one)
    at.ack(A, *others)
    assert findings(run) == []


def test_a_lock_lasts_on_at_the_next_broker_and_for_a_flow_that_comes_back():
    run = busy("1.0")
    at = SessionRun(run)
    at.lock(A, at.one)
    at.deliver(A, at.mine[0])
    at.cut(A, at.one)
    at.lock(A, at.one, number=at.numbers[at.one])
    at.deliver(A, at.mine[0], cause="flow_lost")
    claim(run)
    at.lock(A, at.one, number=at.numbers[at.one])
    at.deliver(A, at.mine[0], cause="broker_change")
    at.deliver(A, *at.mine[1:])
    at.ack(A, *at.mine)
    at.finish_rest()
    assert findings(run) == []


def claim(run):
    run.broker, run.broker_epoch = "broker-9", run.draw()
    run.write(Line("claim", fields={"first": 0, "stop": run.end}))


def test_nobody_else_gets_a_session_from_the_next_broker_before_its_lock_has_ended():
    for ends, what in ((True, []), (False, ["session_shared"])):
        run = busy("1.0")
        at = SessionRun(run)
        at.lock(A, at.one)
        at.deliver(A, at.mine[0])
        claim(run)
        if ends:
            at.unlock(A, at.one, cause="expired")
        at.lock(B, at.one)
        at.deliver(B, at.mine[0], cause="broker_change")
        at.deliver(B, *at.mine[1:])
        at.ack(B, *at.mine)
        at.finish_rest()
        assert findings(run) == what


def test_an_end_that_the_store_does_not_have_yet_leaves_the_lock_at_the_next_broker():
    run = busy("1.0")
    at = SessionRun(run)
    at.lock(A, at.one)
    at.unlock(A, at.one)
    claim(run)
    at.lock(A, at.one, number=at.numbers[at.one])
    at.deliver(A, *at.mine)
    at.ack(A, *at.mine)
    at.finish_rest()
    assert findings(run) == []


def test_what_failed_comes_again_before_the_rest_and_what_a_close_gives_back_has_no_cause():
    run = busy("1.0")
    at = SessionRun(run)
    first, second = at.mine[:2]
    at.lock(A, at.one)
    at.deliver(A, first, second)
    at.ended(A, "nack", first, cause="nack")
    at.ended(A, "release", second, flags="keyed")
    at.deliver(A, first, cause="nack")
    at.deliver(A, second)
    at.ack(A, first)
    at.ended(A, "release", second, flags="keyed")
    at.unlock(A, at.one)
    at.lock(B, at.one)
    at.deliver(B, *at.mine[1:])
    at.ack(B, *at.mine[1:])
    at.finish_rest()
    assert findings(run) == []


def test_a_dead_letter_frees_what_is_behind_it_and_acks_may_be_recorded_after_the_end():
    run = busy("1.0")
    at = SessionRun(run)
    first, *rest = at.mine
    at.lock(A, at.one)
    at.deliver(A, *at.mine)
    at.ended(A, "dead_letter", first, cause="maxRedeliveries")
    at.ended(A, "nack", first, cause="nack")
    at.unlock(A, at.one)
    at.ack(A, *rest)
    at.ended(A, "dead_letter", first, flags="sent")
    at.finish_rest()
    assert findings(run) == []


def test_the_process_that_had_a_lock_may_have_it_again_and_no_other_and_no_lower_one():
    told = [*START, lock(2, 11), unlock(11, cause="expired")]
    assert found_of(*told, lock(3, 11), sent(0, 1, 3)) == []
    assert found_of(*told, lock(3, 11, member="b")) == ["lock_not_raised"]
    assert found_of(*told, lock(3, 10)) == ["lock_not_raised"]


def test_a_broker_that_takes_all_back_itself_sends_it_again_as_after_its_change():
    told = [*START, lock(2, 11), sent(0, 2, 2)]
    back = ("unbind", 0, {"epoch": 2, "cause": "broker_change", "flags": "sessions"})
    again = [lock(3, 11), sent(0, 2, 3, cause="broker_change")]
    assert found_of(*told, back, *again) == []


# ---- records of a few lines ----------------------------------------------------------------------

ANN = slot_of("ann")


def publish(first, stop, *slots):
    return ("publish", 0, {"first": first, "stop": stop, "slots": slots})


def lock(epoch, number, session="ann", member="a", **fields):
    told = {"epoch": epoch, "number": number, "target": session, "flags": "sessions"}
    return ("lock", 0, {"member": member, **told, **fields})


def unlock(number, session="ann", member="a", **fields):
    told = {"epoch": -1, "number": number, "target": session, "flags": "sessions"}
    return ("unlock", 0, {"member": member, **told, **fields})


def sent(first, stop, epoch, **fields):
    return deliver(0, first, stop, epoch=epoch, flags="sessions", **fields)


def found_of(*told):
    """Return which findings lines come to; a publish has the slots that it names."""
    run = Partition("1.0", seed=1)
    run.record = []
    for kind, at_ms, fields in told:
        slots = b"".join(each.to_bytes(2, "little") for each in fields.get("slots", ()))
        given = {"group": "workers", "member": "a", "epoch": 1, "first": 0, "stop": 0}
        if kind in ("publish", "claim", "trim"):
            given = {"first": 0, "stop": 0, "append_broker_epoch": 1}
        named = {name: value for name, value in fields.items() if name != "slots"}
        run.record.append(Group(at_ms, "broker-0", 1, [Line(kind, slots, given | named)]))
    return [each.what for each in judged(read_lines(run))[1]]


START = [
    BEGIN, ("begin", 0, {"member": "", "epoch": 1}), ("claim", 0, {}),
    publish(0, 4, ANN, ANN, ANN, 7),
]  # fmt: skip


def test_two_sessions_may_have_one_slot():
    """They are told apart by their locks: the later message of the other one passes nothing."""
    told = [*START, lock(2, 11), lock(3, 12, "bob")]
    same = [publish(4, 5, slot_of("bob")), sent(4, 5, 3), sent(0, 1, 2)]
    assert found_of(*told, *same) == []
    assert found_of(*told, sent(4, 5, 3)) == ["delivered_unpublished"]


def test_a_message_is_of_one_session_for_good():
    run = SessionLanes()
    assert run.learn(0, 3, "ann") is None
    assert run.learn(5, 6, None) is None
    assert run.learn(1, 6, "bob") == 1
    assert [run.session(at) for at in range(7)] == ["ann"] * 3 + ["bob"] * 2 + [None] * 2
    assert list(run.within(0, 3000)) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, -6)]
    assert list(KeyedLanes(run).within(2, 6)) == [(2, 1), (3, 2), (4, 2)]
    run.learn(1500, 1501, "bob")
    run.free(1024)
    assert list(run.within(0, 3000)) == [(1500, 2)]
    assert run.learn(0, 2, "bob") is None, "it was freed"


def test_sessions_are_forgotten_with_their_last_message_in_the_log():
    run = SessionLanes()
    highs = LaneHighs(KeyedLanes(run))
    for at in range(2048):
        run.learn(at, at + 1, f"order-{at}")
    run.learn(2048, 2050, "order-7")
    run.learn(2050, 2051, None)
    highs.note(0, 2051, "token")
    gone = run.free(2048)
    highs.forget(gone)
    assert (len(gone), list(run._numbers), list(run._names), list(highs._highs)) == (
        *(2047, ["order-7"], [8], [8]),
    )
    assert run.learn(2051, 2052, "order-1") is None
    assert [run.session(at) for at in (1, 2048, 2051)] == [None, "order-7", "order-1"]
    assert list(run.within(2049, 2052)) == [(2049, 8), (2050, -2051), (2051, 2049)]
    assert run.learn(2048, 2049, "order-3") == 2048, "it is of another one"
    assert "order-3" not in run._numbers


def test_a_message_without_a_key_is_a_session_for_itself():
    told = [*START, lock(2, 11, "@1.0:3"), sent(3, 4, 2), ack(0, 3, 4, epoch=2)]
    assert found_of(*told) == []
    assert found_of(*told, lock(3, 12, "@1.0:0"), sent(1, 2, 3)) == ["outside_lock"]


def test_the_session_of_the_empty_key_is_one_as_all_are():
    told = [*START, publish(4, 6, slot_of(""), slot_of("")), lock(2, 11, ""), sent(4, 6, 2)]
    assert found_of(*told) == []
    assert found_of(*told, lock(3, 12, "", "b")) == ["session_shared"]


def test_sessions_that_were_locked_before_the_record_began_are_not_judged():
    told = [BEGIN, ("begin", 0, {"member": "", "epoch": 1}), publish(0, 3, ANN, ANN, ANN)]
    old = [sent(0, 2, 5), sent(0, 1, 6, cause="flow_lost"), ack(0, 0, 1, epoch=6)]
    new = [unlock(10), lock(7, 11, member="b"), sent(1, 3, 7, member="b", cause="flow_lost")]
    assert found_of(*told, *old, *new) == []
    assert found_of(*told, *new, sent(0, 1, 8)) == ["outside_lock"], "later ones are on record"


def test_locks_of_a_removed_group_say_nothing_of_the_next_one():
    told = [
        *START, lock(2, 11), sent(0, 2, 2), ("end", 0, {"member": ""}),
        ("begin", 0, {"member": "", "epoch": 4}), sent(2, 3, 2), unlock(11),
        lock(5, 12, member="b"), sent(0, 3, 5, member="b"), ack(0, 0, 3, member="b", epoch=5),
    ]  # fmt: skip
    assert found_of(*told) == []
    assert found_of(*told, lock(6, 13)) == ["session_shared"]


def test_a_reset_sends_again_what_members_had():
    told = [
        *START, lock(2, 11), sent(0, 2, 2), ack(0, 0, 1, epoch=2),
        ("unbind", 0, {"epoch": 2, "cause": "reset", "flags": "sessions", "target": "ann"}),
        ("reset", 0, {"member": "", "epoch": 3, "number": 1}), lock(4, 11),
    ]  # fmt: skip
    assert found_of(*told, sent(0, 2, 4, cause="reset"), ack(0, 0, 2, epoch=4)) == []


def test_what_was_never_sent_is_lost_once_the_log_has_freed_it():
    """Of which session it is nobody knows: later ones of its slot may be of another."""
    told = [*START, lock(2, 11), sent(1, 3, 2), ack(0, 1, 3, epoch=2)]
    assert found_of(*told) == []
    assert found_of(*told, ("trim", 0, {"first": 0, "stop": 2})) == ["lost"]
