"""Features that meet: the table of docs/simulator.md names what there is, and it has an effect."""

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from partq.core.group.planner import GroupType
from partq.lab.simulate.schedule import KINDS, Event, draw_schedule
from partq.lab.simulate.trial import run_schedule

ROOT = Path(__file__).parents[3]
FEATURES = (
    "reset", "dead letter", "expiry", "nack", "commit", "claim", "quota", "audit", "group life",
    "trim",
)  # fmt: skip
EFFECTS = {
    "reset back", "reset forward", "dead letter", "expired", "taken back", "group created again",
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
    text = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    for path, test in re.findall(r"`(tests/[^`:]+)::([^`]+)`", text):
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), test


def test_every_event_has_a_row():
    text = (ROOT / "docs/simulator.md").read_text(encoding="utf-8")
    section = text.split("## What strikes\n")[1].split("\n## ")[0]
    names = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(names))) == KINDS


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


def test_dead_letters_go_with_their_group():
    """One waits for a queue that has no broker when its group is removed, and created again."""
    schedule = draw_schedule(
        0, 0, broker_count=1, pod_count=1, partition_count=1, has_letters=True, max_redeliveries=0,
        pull_share=0.0, is_aware=True, delay_s=0.0, work_s=0.0, has_second=False,
    )  # fmt: skip
    events = (
        Event(0.8, "broker_kill", {"which": 1, "for_s": 1.5, "is_silent": False}),
        Event(0.9, "bad", {"count": 1}),
        Event(1.2, "publish", {"count": 3, "gap_s": 0.0}),
        Event(1.5, "group_life", {"which": 0, "for_s": 0.3, "is_one": False}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["dropped letter"] == 1
    assert outcome.effects["group created again"] == 1
    assert outcome.effects["dead letter"] == 2, "it is one of the new group, too"


def test_a_broker_that_claims_after_a_group_was_deleted_gives_it_up():
    """Its cursors stand until a coordinator has removed them; the queue names it no more."""
    schedule = draw_schedule(
        0, 0, broker_count=2, pod_count=1, partition_count=2, has_letters=False, pull_share=0.0,
        is_aware=True, delay_s=0.5, work_s=0.03, has_second=False,
        group_type=GroupType.PARTITIONED,
    )  # fmt: skip
    events = (
        Event(0.85, "coordinator_kill", {"for_s": 3.0}),
        Event(0.9, "broker_end", {"which": 0, "for_s": 1.5}),
        Event(1.0, "group_life", {"which": 0, "for_s": 4.0, "is_one": False}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    served = [at for at, text in outcome.trace if text.startswith("broker-1 assigns 1.0")]
    assert served[0] < 1.2, "broker-1 has served it for a moment"


@pytest.mark.parametrize("has_uids", [True, False])
def test_a_group_that_is_made_again_within_one_look_is_served(has_uids):
    """Nothing but the uid tells a coordinator of it; embedded groups have none."""
    schedule = draw_schedule(
        0, 0, broker_count=1, pod_count=2, partition_count=2, has_letters=False, pull_share=0.0,
        is_aware=True, delay_s=0.0, has_second=False, group_type=GroupType.PARTITIONED,
        has_uids=has_uids,
    )  # fmt: skip
    events = (
        Event(1.0, "publish", {"count": 5, "gap_s": 0.0}),
        Event(1.5, "group_life", {"which": 0, "for_s": 3.0, "is_one": True}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["group created again"] == 2


def test_what_a_member_holds_that_was_never_listed_is_free_after_the_delay():
    """It registered and ended while there was no coordinator: nobody had listed it."""
    drawn = draw_schedule(3096, 4, is_client_assigned=True, group_type=GroupType.PARTITIONED)
    schedule = replace(
        drawn,
        events=(
            Event(0.834, "coordinator_kill", {"for_s": 1.446}),
            Event(1.06, "pod_start", {}),
            Event(1.126, "pod_end", {"which": 4, "grace_s": 0.771}),
            Event(1.381, "pod_end", {"which": 0, "grace_s": 0.868}),
        ),
    )
    assert run_schedule(schedule).violation is None


def test_a_group_that_is_made_again_under_an_earlier_time_goes_on():
    """Its epochs and dead letters have higher numbers, though Redis's clock was set back."""
    schedule = draw_schedule(
        0, 0, broker_count=1, pod_count=1, partition_count=1, has_letters=True, max_redeliveries=0,
        pull_share=0.0, is_aware=True, delay_s=0.0, work_s=0.0, has_second=False,
        group_type=GroupType.PARTITIONED,
    )  # fmt: skip
    events = (
        Event(0.9, "bad", {"count": 1}),
        Event(1.4, "redis_clock", {"by_s": -30.0}),
        Event(1.5, "group_life", {"which": 0, "for_s": 0.5, "is_one": False}),
        Event(3.0, "bad", {"count": 1}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["group created again"] == 1
    assert outcome.effects["dead letter"] >= 2


def test_a_broker_goes_on_for_a_moment_with_a_group_whose_cursor_is_gone():
    """What it sends again then has its counts in no record any more."""
    schedule = draw_schedule(
        0, 0, broker_count=1, pod_count=1, partition_count=1, has_letters=False, pull_share=0.0,
        is_aware=True, delay_s=0.5, work_s=0.0, has_second=False, nack_order="Ordered",
        ack_timeout_s=0.0, group_type=GroupType.PARTITIONED,
    )  # fmt: skip
    events = (
        Event(0.9, "nack", {"count": 40}),
        Event(1.0, "publish", {"count": 40, "gap_s": 0.02}),
        Event(1.1, "group_life", {"which": 0, "for_s": 1.5, "is_one": False}),
    )
    outcome = run_schedule(replace(schedule, events=events))
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.effects["taken back"] > 2
