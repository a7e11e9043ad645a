"""Maps of parts to members: those of Pulsar by golden maps, and what holds for all of them."""

from collections import Counter
from itertools import groupby
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.assignors import sticky
from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT, MemberId
from partq.core.parts.hash_ranges import (
    POINTS,
    auto_split,
    balanced,
    consistent_hash,
    ring_of,
)

NAMES = st.sets(st.sampled_from([MemberId(f"m{number}") for number in range(9)]), max_size=9)


def ring(partition_count: int, parts: int) -> dict:
    layout = Layout.first(partition_count)
    return ring_of({each: layout.first_slots(each) for each in layout.partitions()}, parts)


RING = ring(4, 4)
"""16 parts of 4,096 slots each."""


def split(members: str, previous: dict, slots=RING) -> dict:
    return auto_split([*slots], [MemberId(each) for each in members], previous, ring=slots)


def regions(target: dict, slots=RING) -> str:
    """Return `b0 a8`: b from part 0 of the ring on, a from part 8 on."""
    owners = [target[part] for part in sorted(target, key=lambda each: (slots[each], each))]
    found, at = [], 0
    for owner, run in groupby(owners):
        found.append(f"{owner}{at}")
        at += len([*run])
    return " ".join(found)


def test_the_ring_has_the_parts_in_the_order_of_their_slots():
    assert [*RING.values()] == [*range(0, SLOT_COUNT, 4096)]
    assert [str(each) for each in RING][:5] == ["1.0/0", "1.0/1", "1.0/2", "1.0/3", "1.1/0"]


@pytest.mark.req("PUL-128", "PUL-130", "PUL-131", "PUL-132", "PUL-133", "PUL-U01", "PUL-U02")
def test_regions_are_split_and_merged_as_in_pulsar():
    """One after the other joins, then they leave: the lower half, and the region to the right."""
    steps = [
        ("a", "a0"),
        ("ab", "b0 a8"),
        ("abc", "c0 b4 a8"),
        ("abcd", "c0 b4 d8 a12"),
        ("abcde", "e0 c2 b4 d8 a12"),
        ("abde", "e0 b2 d8 a12"),
        ("bde", "e0 b2 d8"),
        ("bdef", "e0 b2 f8 d12"),
        ("d", "d0"),
        ("x", "x0"),
    ]
    held: dict = {}
    for members, expected in steps:
        held = split(members, held)
        assert regions(held) == expected
    assert split("", held) == {}


@pytest.mark.req("PUL-U01")
def test_a_region_of_one_part_is_not_split():
    two = ring(2, 1)
    held = split("abc", {}, two)
    assert regions(held, two) == "b0 a1"
    assert split("abcd", held, two) == held


@pytest.mark.req("PUL-133")
def test_a_member_has_one_region_however_parts_were_left():
    ordered = [*RING]
    held = dict(zip(ordered, map(MemberId, "aabbbacc" + "cccabbbb"), strict=True))
    assert regions(split("abc", held)) == "a0 c2 b11"
    assert regions(split("abc", {ordered[3]: MemberId("b")})) == "c0 a4 b8"


@given(st.sampled_from([(1, 1), (3, 2), (4, 4), (5, 16)]), st.lists(NAMES, max_size=6))
def test_regions_cover_the_ring_and_move_as_little_as_they_can(size, changes):
    slots, held, before = ring(*size), {}, set()
    for members in changes:
        after = auto_split([*slots], members, held, ring=slots)
        assert auto_split([*reversed(slots)], sorted(members), after, ring=slots) == after
        if not members:
            assert after == {}
            held, before = {}, set()
            continue
        assert after.keys() == slots.keys()
        starts = regions(after, slots).split()
        assert len(starts) == len(set(after.values()))
        if held and len(members ^ before) == 1:
            moved = {held[part] for part in held if held[part] != after[part]}
            gained = {after[part] for part in held if held[part] != after[part]}
            assert len(moved) <= 1
            assert len(gained) <= 1
        held, before = after, members


@pytest.mark.req("PUL-128", "PUL-130", "PUL-U04", "PUL-U06")
def test_consistent_hashing_gives_the_golden_map():
    members = [MemberId(f"orders-aggregator-pod-2345-consumer{number}") for number in (1, 2, 3)]
    found = consistent_hash([*RING], members, {}, ring=RING)
    assert "".join(found[part][-1] for part in RING) == "2121131123232323"


@pytest.mark.req("PUL-131", "PUL-132")
@given(NAMES, st.sampled_from([f"new-{number}" for number in range(9)]))
def test_with_consistent_hashing_only_parts_of_the_newcomer_move(members, name):
    slots, newcomer = ring(8, 16), MemberId(name)
    before = consistent_hash([*slots], members, {}, ring=slots)
    after = consistent_hash([*slots], {*members, newcomer}, {}, ring=slots)
    assert before.keys() == (slots.keys() if members else set())
    assert after.keys() == slots.keys()
    stayed = {part for part in before if before[part] == after[part]}
    others = {after[part] for part in slots.keys() - stayed}
    # At a point that several have, the list grows, and another one of it may come to be chosen.
    assert not others - {newcomer} or len(members) > 1
    assert Counter(after.values())[newcomer] <= len(slots)


def test_a_point_of_several_members_is_shared_by_their_list():
    names = [MemberId(f"m{number}") for number in range(400)]
    slots = ring(64, 64)
    found = consistent_hash([*slots], names, {}, ring=slots)
    assert found == consistent_hash([*slots], names[::-1], {}, ring=slots)
    assert len(set(found.values())) > 300
    assert POINTS == 100


def shares(target: dict) -> int:
    """Return in how many partitions members have parts, in all."""
    return len({(part.partition, member) for part, member in target.items()})


@given(st.sampled_from([(1, 1), (3, 2), (4, 4), (5, 16)]), st.lists(NAMES, max_size=6))
def test_balanced_is_even_and_moves_least(size, changes):
    slots, held = [*ring(*size)], {}
    for members in changes:
        after = balanced(slots, members, held)
        assert after == balanced(slots[::-1], sorted(members), held)
        assert balanced(slots, members, after) == after
        assert set(after) == (set(slots) if members else set())
        sizes = [Counter(after.values())[member] for member in members]
        assert not sizes or max(sizes) - min(sizes) <= 1
        moved = [part for part in held if held[part] in members and held[part] != after.get(part)]
        least = sticky(slots, members, held)
        assert len(moved) == sum(
            held[part] in members and held[part] != least.get(part) for part in held
        )
        held = after


def test_balanced_gives_a_vacant_part_to_its_preferred_member():
    a, b = MemberId("a"), MemberId("b")
    slots = [*ring(2, 2)]
    found = balanced(slots, [a, b], {}, preferred={slots[3]: "a", slots[0]: "b", slots[1]: "x"})
    assert (found[slots[3]], found[slots[0]]) == (a, b)


def test_balanced_keeps_partitions_together_while_members_come_and_go():
    """Each member of a partition is sent its batches, so their number is what is paid for."""
    slots, rng = [*ring(16, 16)], Random(7)
    members, held = [MemberId(f"m{number}") for number in range(8)], {}
    counts = []
    for number in range(8, 60):
        held = balanced(slots, members, held)
        counts.append(shares(held) / 16)
        if rng.random() < 0.5 and len(members) > 4:
            members.remove(rng.choice(members))
        else:
            members.append(MemberId(f"m{number}"))
    assert counts[0] == 1
    assert max(counts) < 2.5
