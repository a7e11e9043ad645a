"""A store that comes back with older keys: what people wanted since then is asked for once more."""

from dataclasses import replace

from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule


def test_a_group_whose_making_the_store_has_forgotten_is_made_once_more():
    schedule = draw_schedule(
        0, 0, broker_count=1, pod_count=1, partition_count=1, has_letters=False, pull_share=0.0,
        is_aware=True, delay_s=0.0, work_s=0.0, has_second=False,
    )  # fmt: skip
    events = (
        Event(0.9, "group_life", {"which": 0, "for_s": 0.5, "is_one": False}),
        Event(1.9, "redis_rollback", {"for_s": 0.1, "lost_s": 0.7}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["group created again"] == 2
