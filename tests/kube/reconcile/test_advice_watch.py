"""When an advice changes, and what a new operator knows of it."""

from datetime import UTC, datetime, timedelta

from partq.core.views.partition_advice import WINDOW_COUNT, AdviceReason, GroupLoad
from partq.kube.reconcile.advice_watch import AdviceWatch
from partq.resources.models import PartitionsPolicy

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(seconds=PartitionsPolicy().cooldown_seconds)
STANDING_BY, CALM = {"workers": GroupLoad(20, 0, 0)}, {"workers": GroupLoad(4, 0, 0)}


def watch_for(watch, groups, *, at=NOW, times=WINDOW_COUNT, count=16, **policy):
    for _ in range(times):
        watch.add(groups, count, PartitionsPolicy(**policy), at)
    return watch.advice


def test_nothing_is_advised_before_the_window_is_full():
    watch = AdviceWatch()
    assert watch_for(watch, STANDING_BY, times=WINDOW_COUNT - 1) is None
    assert watch_for(watch, STANDING_BY, times=1).partitions == 32
    assert watch.since == NOW


def test_a_number_stays_until_the_cooldown_is_over():
    watch = AdviceWatch()
    watch_for(watch, STANDING_BY)
    assert watch_for(watch, CALM, at=NOW + HOUR / 2).partitions == 32
    later = NOW + HOUR
    assert watch_for(watch, CALM, at=later).partitions == 16
    assert watch.since == later


def test_another_reason_for_the_same_number_is_told_at_once_and_its_figures_stay():
    watch = AdviceWatch()
    text = watch_for(watch, STANDING_BY).text
    more = {"workers": GroupLoad(21, 0, 0)}
    assert watch_for(watch, more, at=NOW + HOUR).text == text, "no write for each new figure"
    watch.forget_samples()
    advice = watch_for(watch, more, at=NOW + HOUR / 2, count=32)
    assert (advice.partitions, advice.reason, watch.since) == (32, AdviceReason.ENOUGH, NOW)


def test_a_number_that_the_policy_refuses_is_replaced_at_once():
    watch = AdviceWatch()
    watch_for(watch, STANDING_BY)
    assert watch_for(watch, STANDING_BY, times=1, max=24).partitions == 24


def test_the_next_operator_goes_on_with_what_the_status_says():
    told = {"partitions": 32, "reason": "LagGrows", "message": "m", "since": "2026-11-20T12:00:00Z"}
    watch = AdviceWatch()
    watch.recall({"status": {"advice": told}})
    assert (watch.advice, watch.since) == ((32, AdviceReason.LAG_GROWS, "m"), NOW)
    assert watch_for(watch, CALM, at=NOW + HOUR / 2).partitions == 32
    for broken in ({}, {**told, "reason": "Other"}, {**told, "since": "x"}, "text", None):
        other = AdviceWatch()
        other.recall({"status": {"advice": broken}})
        assert (other.advice, other.since) == (None, None)
