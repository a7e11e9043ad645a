"""A store that comes back with older keys: what people wanted since then is asked for once more."""

from dataclasses import replace

from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule

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


def test_a_change_whose_partitions_the_store_has_forgotten_is_prepared_once_more():
    """The coordinator looks again when that is wanted again, and has made such partitions before."""
    events = (
        Event(0.8, "rescale", {"to": 3}),
        Event(0.85, "coordinator_freeze", {"for_s": 0.6, "has_second": False}),
        Event(0.9, "redis_rollback", {"for_s": 0.1, "lost_s": 0.15}),
        Event(1.2, "publish", {"count": 6, "gap_s": 0.02}),
    )
    outcome = run_schedule(replace(draw_schedule(0, 0, **CALM), events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["gate opened"] == 2
