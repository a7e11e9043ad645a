"""What of a change is worth an Event."""

from dataclasses import replace

import pytest

from partq.coordinator.view import GroupView
from partq.core.group.membership import MemberState
from partq.core.group.records import RebalanceRecord
from partq.core.model import MemberId
from partq.kube.names import ConditionReason, ConditionType
from partq.kube.status import event_diff
from partq.kube.status.conditions import Finding, bad, good

A, B = MemberId("a"), MemberId("b")
STORE = ConditionType.STORE_REACHABLE
AWAY = bad(STORE, ConditionReason.STORE_UNREACHABLE, "no answer")
CALM = GroupView(
    partitions={},
    members={A: MemberState.BOUND},
    unseen_count=0,
    moving_count=0,
    is_waiting=False,
    rebalances=(),
)
WAITING = replace(CALM, is_waiting=True, members={A: MemberState.WAITING})
DONE = RebalanceRecord("member_joined", 2, 1, 1000, 1250, 40)


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        pytest.param([], [good(STORE)], [], id="good from the start is no news"),
        pytest.param([], [AWAY], ["StoreUnreachable"], id="bad from the start"),
        pytest.param([good(STORE)], [AWAY], ["StoreUnreachable"], id="turned bad"),
        pytest.param([AWAY], [replace(AWAY, message="still")], [], id="no repeat of the same"),
        pytest.param([AWAY], [good(STORE)], ["Recovered"], id="good again"),
        pytest.param(
            [], [Finding(STORE, None, ConditionReason.PENDING)], [], id="not known is no news"
        ),
        pytest.param(
            [],
            [bad(ConditionType.READY, ConditionReason.STORE_UNREACHABLE, "x")],
            [],
            id="a sum is no news",
        ),
        pytest.param(
            [Finding(ConditionType.PAUSED, False, ConditionReason.NOT_PAUSED)],
            [Finding(ConditionType.PAUSED, True, ConditionReason.ANNOTATION)],
            ["Paused"],
            id="paused",
        ),
    ],
)
def test_conditions(before, after, reasons):
    notes = event_diff.of_conditions(before, after)
    assert [note.reason for note in notes] == reasons


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        pytest.param(None, WAITING, [], id="what was there at the start"),
        pytest.param(CALM, CALM, [], id="nothing"),
        pytest.param(
            CALM,
            replace(CALM, members={A: MemberState.BOUND, B: MemberState.BOUND}),
            ["MemberJoined"],
            id="joined",
        ),
        pytest.param(
            CALM, replace(CALM, members={A: MemberState.LEAVING}), [], id="leaving is still there"
        ),
        pytest.param(CALM, WAITING, ["RebalanceScheduled"], id="lost"),
        pytest.param(WAITING, CALM, ["RebalanceCancelled"], id="back in time"),
        pytest.param(
            WAITING,
            replace(CALM, members={A: MemberState.GONE}, moving_count=3),
            ["MemberLeft", "RebalanceStarted"],
            id="too late",
        ),
        pytest.param(
            CALM, replace(CALM, members={}, is_complete=False), [], id="a broker did not answer"
        ),
        pytest.param(
            CALM,
            replace(CALM, members={A: MemberState.BOUND, B: MemberState.WAITING}),
            [],
            id="listed, and not connected yet",
        ),
        pytest.param(
            replace(CALM, moving_count=3),
            replace(CALM, rebalances=(DONE,)),
            ["RebalanceCompleted"],
            id="over",
        ),
        pytest.param(
            replace(CALM, moving_count=3),
            replace(CALM, rebalances=(replace(DONE, timed_out=2),)),
            ["RebalanceCompleted", "PartitionHandoffTimedOut"],
            id="over, and somebody had not finished",
        ),
        pytest.param(
            WAITING,
            replace(CALM, members={}, rebalances=(DONE,)),
            ["MemberLeft", "RebalanceStarted", "RebalanceCompleted"],
            id="late, and all of it between two looks",
        ),
        pytest.param(
            CALM,
            replace(CALM, moving_count=3, rebalances=(DONE,)),
            ["RebalanceStarted", "RebalanceCompleted"],
            id="one over, the next under way",
        ),
    ],
)
def test_group(before, after, reasons):
    last = event_diff.with_members(None, before) if before is not None else None
    view = event_diff.with_members(last, after)
    assert [note.reason for note in event_diff.of_group(last, view, str)] == reasons


def test_a_note_names_a_bounded_number_of_members():
    many = replace(CALM, members={MemberId(f"pod-{n:02}"): MemberState.BOUND for n in range(12)})
    (note,) = event_diff.of_group(replace(CALM, members={}), many, str)
    assert note.text.endswith("pod-09 and 2 more")


def test_what_a_rebalance_did_is_told_alike_however_long_it_took():
    slower = replace(DONE, started_at_ms=5000, ended_at_ms=14_000, longest_pause_ms=800)
    for done in (DONE, slower):
        started, completed = event_diff.of_group(CALM, replace(CALM, rebalances=(done,)), str)
        assert started.text == "3 partitions are handed over"
        assert completed.text == "member_joined: 2 partitions moved, 1 assigned"
