"""Features that meet: the table of docs/simulator.md names what there is, and it has an effect."""

import re
from collections import Counter
from itertools import combinations
from pathlib import Path

from partq.simulate.schedule import KINDS, draw_schedule
from partq.simulate.trial import run_schedule

ROOT = Path(__file__).parents[2]
FEATURES = (
    "reset", "dead letter", "expiry", "nack", "commit", "claim", "quota", "audit", "group life",
    "trim",
)  # fmt: skip
EFFECTS = {
    "reset back", "reset forward", "dead letter", "expired", "taken back", "group made again",
    "refused for room", "trimmed", "late",
}  # fmt: skip
MAX_SEEDS = 40


def cells():
    """Return what covers each pair of features, as the table has it."""
    text = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z ]+) \| ([a-z ]+) \| (.+) \|$", text, re.MULTILINE)
    return {(one, other): cell for one, other, cell in rows if {one, other} <= {*FEATURES}}


def test_no_cell_is_empty():
    assert cells().keys() == set(combinations(FEATURES, 2))


def test_what_is_named_exists():
    for pair, cell in cells().items():
        named = re.findall(r"`([^`]+)`", cell)
        assert named or cell.startswith("no meeting point: "), pair
        for name in named:
            path, _, test = name.partition("::")
            if test:
                assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), name
            else:
                assert name in KINDS, name


def test_the_events_have_an_effect():
    """An event that meets nothing shows nothing."""
    only = {"reset", "bad", "nack", "expire", "quota", "group_life", "late", "pod_start"}
    seen = Counter()
    for seed in range(MAX_SEEDS):
        outcome = run_schedule(draw_schedule(seed, 20, only=only, has_letters=True))
        assert outcome.violation is None, "\n".join(outcome.lines())
        seen.update(+outcome.effects)
        if seen.keys() >= EFFECTS:
            return
    assert seen.keys() >= EFFECTS
