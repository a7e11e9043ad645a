"""A store that comes back with older keys: what people wanted since then is asked for once more."""

from dataclasses import replace

import pytest

from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule
from tests.lab.simulate.rescale_mutations import RESCALE_MUTATIONS

CALM = {
    "broker_count": 1, "pod_count": 1, "partition_count": 1, "has_letters": False,
    "pull_share": 0.0, "is_aware": True, "delay_s": 0.0, "work_s": 0.0, "has_second": False,
}  # fmt: skip


def test_a_group_whose_making_the_store_has_forgotten_is_made_once_more():
    events = (
        Event(0.9, "group_life", {"which": 0, "for_s": 0.5, "is_one": False}),
        Event(1.9, "redis_rollback", {"for_s": 0.1, "lost_s": 0.7}),
    )
    outcome = run_schedule(replace(draw_schedule(0, 0, **CALM), events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["group created again"] == 2


def outcome_of_rollback(lost_s, *later):
    """Have the store forget a change, which is prepared at 1.32 s and committed at 1.38 s.

    The coordinator stands still meanwhile: it finds out what is left when all is stored again.
    """
    events = (
        Event(0.8, "rescale", {"to": 3}),
        Event(1.43, "coordinator_freeze", {"for_s": 0.9, "has_second": False}),
        Event(1.45, "redis_rollback", {"for_s": 0.05, "lost_s": lost_s}),
        Event(1.46, "publish", {"count": 20, "gap_s": 0.02}),
        *later,
    )
    outcome = run_schedule(replace(draw_schedule(0, 0, **CALM), events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    return outcome


def test_partitions_that_the_store_has_forgotten_are_made_once_more():
    """The change is begun a second time, and has partitions that the coordinator has made."""
    assert outcome_of_rollback(0.2).effects["gate opened"] == 4


@pytest.mark.parametrize("lost_s", [0.08, 0.1])
def test_nothing_is_stored_by_a_layout_that_the_store_has_forgotten(lost_s):
    """It is only prepared again, and aborted: what its partitions had would be lost."""
    outcome = outcome_of_rollback(lost_s, Event(1.75, "rescale", {"to": 1}))
    assert outcome.effects["forgotten message"] == 0


def test_a_log_is_trimmed_once_more_after_the_store_has_forgotten_it():
    """Else what was published before a change would hold it for ever."""
    events = (
        Event(0.8, "publish", {"count": 10, "gap_s": 0.0}),
        Event(3.0, "redis_rollback", {"for_s": 0.1, "lost_s": 2.0}),
        Event(4.5, "rescale", {"to": 3}),
    )
    outcome = run_schedule(replace(draw_schedule(0, 0, **CALM), events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["forgotten message"] == 0


@pytest.mark.parametrize(
    ("mistake", "invariant", "seed"),
    [
        ("a group has a new partition's messages at once", "R4", 0),
        ("what waits for an append is not looked at again", "R2", 4),
        ("a partition settles before anybody has read it", "R5", 0),
    ],
)
def test_changes_are_judged_after_the_store_has_forgotten_something(
    mistake, invariant, seed, monkeypatch
):
    found = next(each for each in RESCALE_MUTATIONS if each.name == mistake)
    forgets = Event(0.9, "redis_rollback", {"for_s": 0.05, "lost_s": 0.15})
    schedule = found.schedule(seed)
    schedule = replace(schedule, events=(forgets, *schedule.events))
    right = run_schedule(schedule)
    assert right.violation is None, "\n".join(right.lines())
    found.apply(monkeypatch)
    assert run_schedule(schedule).violation.invariant == invariant
