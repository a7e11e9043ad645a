"""Every strategy: complete, even, and independent of the order of its input; sticky moves least."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.assignors import (
    ASSIGNORS,
    assignor,
    by_priority,
    exclusive,
    failover,
    modulo,
    moved,
    sticky,
)
from partq.core.model import MemberId, PartitionId
from partq.errors import SettingsError

A, B, C, D = (MemberId(name) for name in "ABCD")
NAMES = st.sampled_from([MemberId(f"m{number}") for number in range(12)])
STRATEGIES = pytest.mark.parametrize("strategy", ASSIGNORS)


def partitions_of(count: int) -> list[PartitionId]:
    return [PartitionId(1, index) for index in range(count)]


@st.composite
def inputs(draw, max_partitions=40, max_members=10):
    """Partitions from index 0, members, and a previous assignment that fits neither quite."""
    count = draw(st.integers(0, max_partitions))
    members = draw(st.sets(NAMES, max_size=max_members))
    known = st.integers(0, max_partitions + 3).map(lambda index: PartitionId(1, index))
    return partitions_of(count), members, draw(st.dictionaries(known, NAMES))


def sizes(target, members):
    counts = Counter(target.values())
    return [counts[member] for member in members]


@pytest.mark.req("SOL-05", "SOL-06", "PUL-130")
@STRATEGIES
@given(inputs())
def test_every_partition_has_one_owner_who_is_a_member(strategy, given_):
    partitions, members, previous = given_
    target = ASSIGNORS[strategy](partitions, members, previous)
    assert set(target) == (set(partitions) if members else set())
    assert set(target.values()) <= members


@pytest.mark.req("SOL-22", "SOL-U02")
@STRATEGIES
@given(inputs())
def test_sizes_differ_by_at_most_one(strategy, given_):
    partitions, members, previous = given_
    held = sizes(ASSIGNORS[strategy](partitions, members, previous), members)
    assert not members or max(held) - min(held) <= 1


@STRATEGIES
@given(inputs(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(strategy, given_, random):
    partitions, members, previous = given_
    expected = ASSIGNORS[strategy](partitions, members, previous)
    turned = [list(partitions), sorted(members), list(previous.items())]
    for part in turned:
        random.shuffle(part)
    # Twice the same partition or member is once.
    assert ASSIGNORS[strategy](turned[0] * 2, turned[1] * 2, dict(turned[2])) == expected


@STRATEGIES
@given(inputs())
def test_the_input_is_left_as_it_was(strategy, given_):
    partitions, members, previous = given_
    copies = list(partitions), set(members), dict(previous)
    ASSIGNORS[strategy](partitions, members, previous)
    assert (partitions, members, previous) == copies


@pytest.mark.req("HND-01")
@given(inputs(max_partitions=6, max_members=3))
def test_sticky_moves_as_few_as_any_even_assignment(given_):
    partitions, members, previous = given_
    names = sorted(members)
    owned = {p: owner for p, owner in previous.items() if p in partitions and owner in members}
    fewest = None if names else 0
    for owners in product(names, repeat=len(partitions)):
        held = [owners.count(name) for name in names]
        if not held or max(held) - min(held) <= 1:
            count = len(moved(owned, dict(zip(partitions, owners, strict=True))))
            fewest = count if fewest is None else min(fewest, count)
    assert len(moved(owned, sticky(partitions, members, previous))) == fewest


@given(inputs())
def test_sticky_repeated_moves_nothing(given_):
    partitions, members, previous = given_
    target = sticky(partitions, members, previous)
    assert sticky(partitions, members, target) == target


@pytest.mark.req("SOL-25")
@given(st.integers(1, 10), st.integers(0, 5))
def test_sticky_moves_nothing_when_another_standby_joins(partition_count, standby_count):
    partitions = partitions_of(partition_count)
    names = [MemberId(f"s{number:02}") for number in range(partition_count + standby_count)]
    target = sticky(partitions, names, {})
    for newcomer in ("a", "z"):
        assert sticky(partitions, [*names, MemberId(newcomer)], target) == target


def test_sticky_lets_a_standby_take_over_one_for_one():
    before = {PartitionId(1, 0): A, PartitionId(1, 1): B}
    assert sticky(partitions_of(2), [B, C], before) == {PartitionId(1, 0): C, PartitionId(1, 1): B}


@pytest.mark.req("PUL-116")
@pytest.mark.parametrize(("strategy", "count", "members", "previous", "expected"), [
    pytest.param("sticky", 5, "AB", "", "AAABB", id="sticky: new group"),
    pytest.param("sticky", 6, "ABC", "AAABBB", "AACBBC", id="sticky: the last ones leave"),
    pytest.param("sticky", 6, "AB", "AACBBC", "AAABBB", id="sticky: only the lost one's move"),
    pytest.param("sticky", 5, "AB", "BBBAA", "BBBAA", id="sticky: the fullest keeps the odd one"),
    pytest.param("sticky", 4, "AB", "AAAA", "AABB", id="sticky: an empty member fills up"),
    pytest.param("sticky", 3, "AB", "XYZ", "AAB", id="sticky: previous owners are all gone"),
    pytest.param("range", 7, "ABC", "", "AAABBCC", id="range: the first has the odd one"),
    pytest.param("range", 2, "ABC", "CC", "AB", id="range: previous does not matter"),
    pytest.param("modulo", 5, "ABC", "CC", "ABCAB", id="modulo: by index"),
    pytest.param("failover", 2, "ABCD", "", "AB", id="failover: PUL-114"),
    pytest.param("failover", 2, "CD", "AB", "CD", id="failover: PUL-115"),
    pytest.param("failover", 9, "ABC", "", "ABCABCABC", id="failover: PUL-116"),
])  # fmt: skip
def test_golden(strategy, count, members, previous, expected):
    partitions = partitions_of(count)
    before = dict(zip(partitions, previous, strict=False))
    target = ASSIGNORS[strategy](partitions, list(members), before)
    assert "".join(target[partition] for partition in partitions) == expected


@pytest.mark.req("PUL-113", "TUB-04")
def test_modulo_goes_by_the_index_of_the_partition_not_by_its_place():
    assert modulo([PartitionId(2, 5), PartitionId(2, 3)], [B, A], {}) == {
        PartitionId(2, 3): B,
        PartitionId(2, 5): B,
    }


@pytest.mark.req("PUL-111", "PUL-112")
def test_failover_gives_partitions_to_the_highest_priority_only():
    priorities = {A: 1, D: 1}
    assert by_priority([D, C, B, A], priorities) == [B, C, A, D]
    target = failover(partitions_of(4), [D, C, B, A], {}, priorities=priorities)
    assert "".join(target.values()) == "BCBC"


def test_exclusive_gives_nothing_without_partitions_or_members():
    assert exclusive([], [A], {}) == {}
    assert exclusive(partitions_of(1), [], {}) == {}


def test_moved_counts_what_leaves_an_owner():
    before = {PartitionId(1, 0): A, PartitionId(1, 1): A, PartitionId(1, 2): B}
    after = {PartitionId(1, 0): B, PartitionId(1, 1): A, PartitionId(1, 3): A}
    assert moved(before, after) == [PartitionId(1, 0), PartitionId(1, 2)]
    assert moved({}, after) == []


@pytest.mark.req("TUB-05")
def test_a_strategy_is_looked_up_by_name():
    assert assignor("sticky") is sticky
    with pytest.raises(SettingsError, match="got 'best', expected one of sticky, range, modulo"):
        assignor("best")


@STRATEGIES
def test_a_hundred_thousand_partitions_over_ten_thousand_members(strategy):
    partitions = partitions_of(100_000)
    members = [MemberId(f"member-{number:05}") for number in range(10_500)]
    previous = sticky(partitions, members[:10_000], {})
    target = ASSIGNORS[strategy](partitions, members[500:], previous)
    assert sizes(target, members[500:]) == [10] * 10_000
    if strategy == "sticky":
        assert len(moved(previous, target)) == 5_000


def test_sticky_gives_what_nobody_has_to_the_preferred_owner():
    new = PartitionId(2, 4)
    partitions = [*partitions_of(4), new, PartitionId(2, 5)]
    owned = dict(zip(partitions_of(4), [A, A, B, B], strict=True))
    assert sticky(partitions, [A, B], owned, {new: B}) == {**owned, new: B, PartitionId(2, 5): A}
    assert sticky(partitions, [A, B], owned, {new: C})[new] == A, "one that is no member"


@given(inputs(), st.dictionaries(st.integers(0, 43).map(lambda i: PartitionId(1, i)), NAMES))
def test_a_preference_moves_nothing_and_keeps_shares_even(given_, preferred):
    partitions, members, previous = given_
    target = sticky(partitions, members, previous, preferred)
    owned = {p: previous[p] for p in partitions if previous.get(p) in members}
    without = sticky(partitions, members, previous)
    assert len(moved(owned, target)) == len(moved(owned, without))
    assert set(target) == set(without)
    found = sizes(target, members)
    assert max(found, default=0) - min(found, default=0) <= 1
