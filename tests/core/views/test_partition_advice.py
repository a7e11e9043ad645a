"""Which number of partitions is advised, by members and lag of the groups."""

import pytest

from partq.core.views.partition_advice import WINDOW_COUNT, AdviceReason, GroupLoad, advise

GROWING = range(100, 100 + WINDOW_COUNT)


def samples(members, lags, *, largest=0.1):
    return [
        {"workers": GroupLoad(members, lag, round(lag * largest))}
        for lag in ([lags] * WINDOW_COUNT if isinstance(lags, int) else lags)
    ]


@pytest.mark.parametrize(("found", "count", "reason"), [
    pytest.param(samples(8, 0), 16, AdviceReason.ENOUGH, id="nothing asks for more"),
    pytest.param(samples(17, 0), 32, AdviceReason.MEMBERS_STAND_BY, id="a multiple"),
    pytest.param(samples(40, 0), 48, AdviceReason.MEMBERS_STAND_BY, id="the first that is enough"),
    pytest.param(samples(16, 500), 16, AdviceReason.ENOUGH, id="a lag that stays"),
    pytest.param(samples(16, GROWING), 32, AdviceReason.LAG_GROWS, id="a lag that grows"),
    pytest.param(samples(9, GROWING), 16, AdviceReason.FEW_MEMBERS, id="members first"),
    pytest.param(samples(16, GROWING, largest=0.6), 16, AdviceReason.SKEWED, id="one partition"),
    pytest.param(samples(0, GROWING), 16, AdviceReason.ENOUGH, id="nobody consumes"),
    pytest.param([], None, None, id="no group"),
])  # fmt: skip
def test_what_is_advised_for_16_partitions(found, count, reason):
    advice = advise(found or [{}], 16, least=1, most=4096)
    assert (advice.partitions, advice.reason) == (count or 16, reason or AdviceReason.ENOUGH)


def test_members_count_only_if_they_were_there_all_the_time():
    """A rollout has more for a while."""
    found = samples(16, 0)
    found[3:8] = samples(20, 0)[3:8]
    assert advise(found, 16, least=1, most=4096).reason is AdviceReason.ENOUGH
    found = [*samples(20, 0)[:-1], {}]
    assert advise(found, 16, least=1, most=4096).reason is AdviceReason.ENOUGH, "the group is gone"


def test_the_group_that_needs_the_most_decides():
    found = [
        {**one, "archive": GroupLoad(1, lag, 0), "big": GroupLoad(33, 0, 0)}
        for one, lag in zip(samples(17, 0), GROWING, strict=True)
    ]
    advice = advise(found, 16, least=1, most=4096)
    assert advice.partitions == 48
    assert advice.text == "group big has 33 members for 16 partitions: 17 of them get no messages"


def test_the_policy_bounds_the_number_and_is_named():
    advice = advise(samples(40, 0), 16, least=1, most=24)
    assert advice.partitions == 24
    assert advice.text.endswith("; partitionsPolicy allows 1 to 24")


def test_a_lag_in_one_partition_is_told_with_its_share():
    advice = advise(samples(16, GROWING, largest=0.9), 16, least=1, most=4096)
    assert "90% of them in one partition" in advice.text
