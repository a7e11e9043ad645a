"""Changes of the partition count in the simulator, alone and with every other event."""

from collections import Counter

import pytest

from partq.lab.simulate.parallel import SeedOptions
from partq.lab.simulate.schedule import draw_schedule
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
