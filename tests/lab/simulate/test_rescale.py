"""Changes of the partition count in the simulator, alone and with every other event."""

from collections import Counter
from dataclasses import replace

import pytest

from partq.lab.simulate.parallel import SeedOptions
from partq.lab.simulate.schedule import Event, draw_schedule
from partq.lab.simulate.trial import run_schedule

EFFECTS = {
    "rescaled", "change aborted", "sealed", "opened", "gate opened", "settled", "removed",
}  # fmt: skip
ALONE, WITH_ALL = range(16, 24), range(12)
"""Seeds without any fault, and with all of them; nightly runs have many more."""


def test_a_seed_with_changes_is_drawn_from_its_seed_alone():
    drawn = draw_schedule(7, 20, has_rescales=True)
    assert drawn == draw_schedule(7, 20, has_rescales=True)
    assert any(event.kind == "rescale" for event in drawn.events)
    assert not any(event.kind == "rescale" for event in draw_schedule(7, 20).events)


def test_changes_have_an_effect():
    seen = Counter()
    for seed in ALONE:
        outcome = run_schedule(draw_schedule(seed, 30, only={"rescale"}))
        assert outcome.violation is None, "\n".join(outcome.lines())
        seen.update(+outcome.effects)
    assert seen.keys() >= EFFECTS


@pytest.mark.parametrize("first", WITH_ALL[::6])
def test_changes_meet_every_other_event(first):
    for seed in range(first, first + 6):
        outcome = run_schedule(draw_schedule(seed, 20, has_rescales=True))
        assert outcome.violation is None, "\n".join(outcome.lines())


def test_every_seed_can_have_changes():
    some = [seed for seed in range(16) if _has_changes(SeedOptions(2).schedule(seed))]
    every = [s for s in range(16) if _has_changes(SeedOptions(2, is_rescaled=True).schedule(s))]
    assert (some, every) == ([6, 14], [*range(16)])


def _has_changes(schedule):
    return any(event.kind == "rescale" for event in schedule.events)


def test_a_group_that_is_away_when_a_partition_goes_does_not_need_its_messages():
    setting = draw_schedule(
        0, 0, broker_count=1, pod_count=1, partition_count=2, delay_s=0.5, has_idle=True,
        has_second=False, has_letters=False, pull_share=0.0, nack_order="Ordered",
        on_exhausted="Skip", is_audited=False,
    )  # fmt: skip
    events = (
        Event(0.8, "publish", {"count": 8, "gap_s": 0.0}),
        Event(1.5, "group_life", {"which": 1, "for_s": 4.0, "is_one": False}),
        Event(1.8, "rescale", {"to": 1}),
        Event(4.5, "publish", {"count": 2, "gap_s": 0.0}),
    )
    outcome = run_schedule(replace(setting, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["removed"] == 2
    assert any("group_life: idle" in line for line in outcome.lines())
