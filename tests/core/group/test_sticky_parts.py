"""Groups with `hashRange: Sticky`: members have the parts that they declare, nobody the rest."""

from dataclasses import replace

import pytest

from partq.core.group.membership import assess
from partq.core.group.partition_wait import WaitsFor, wait_of
from partq.core.group.planner import plan
from partq.core.model import MemberId
from partq.core.parts.hash_ranges import HashRange
from partq.core.parts.part_id import PartId
from partq.core.rescale.layout_steps import commit, prepare
from tests.core.group.test_key_shared import BALANCED, FOUR, seen

A, B = MemberId("a"), MemberId("b")
STICKY = replace(BALANCED, hash_range=HashRange.STICKY)
HALVES = {A: [(0, 32_768)], B: [(32_768, 65_536)]}
LOWER = [PartId(1, index, part) for index in (0, 1) for part in range(4)]
UPPER = [PartId(1, index, part) for index in (2, 3) for part in range(4)]


def planned(observation):
    moves = plan(observation, assess(observation, STICKY.membership), STICKY, {})
    return {move.partition: move.target for move in moves}


@pytest.mark.req("PUL-U05")
def test_members_get_what_they_declare():
    expected = {**dict.fromkeys(LOWER, A), **dict.fromkeys(UPPER, B)}
    assert planned(seen({}, {A, B}, ranges=HALVES)) == expected
    assert planned(seen(expected, {A, B}, ranges=HALVES)) == {}


def test_a_hole_has_no_member_also_once_its_member_is_gone():
    holes = {A: [(0, 16_384)]}
    mine = dict.fromkeys(LOWER[:4], A)
    assert planned(seen({}, {A}, ranges=holes)) == mine
    lost = seen({**mine, **dict.fromkeys(UPPER, B)}, {A}, lost={B}, ranges=HALVES)
    assert planned(lost) == {**dict.fromkeys(LOWER[4:], A), **dict.fromkeys(UPPER, None)}


def test_what_a_member_declares_no_more_is_taken_from_it():
    had = {**dict.fromkeys(LOWER, A), **dict.fromkeys(UPPER, B)}
    less = {A: [(0, 16_384)], B: HALVES[B]}
    assert planned(seen(had, {A, B}, ranges=less)) == dict.fromkeys(LOWER[4:], None)


def test_of_two_that_declare_a_part_the_one_that_has_it_keeps_it():
    both = {A: [(0, 65_536)], B: [(0, 65_536)]}
    had = dict.fromkeys([*LOWER, *UPPER], B)
    assert planned(seen(had, {A, B}, ranges=both)) == {}
    assert set(planned(seen({}, {A, B}, ranges=both)).values()) == {A}


def test_what_a_hole_waits_for_is_told():
    observation = seen({}, {A}, ranges={A: [(0, 16_384)]})

    def waits_for(part):
        told = {"observation": observation, "rules": STICKY, "handoffs": {}, "held": {}}
        return wait_of(part, **told, now_ms=1).what

    assert waits_for(UPPER[0]) is WaitsFor.RANGE
    assert waits_for(LOWER[0]) is WaitsFor.COORDINATOR


@pytest.mark.req("PUL-U05")
def test_parts_that_go_have_the_member_that_declares_their_slots():
    """With three partitions the slots of each part are others, and those of older ones stay."""
    halves = {A: [(0, 32_768)], B: [(32_768, 65_536)]}
    had = {**dict.fromkeys(LOWER, A), **dict.fromkeys(UPPER, B)}
    fewer = commit(prepare(FOUR, 3), 1)
    moves = planned(seen(had, {A, B}, layout=fewer, ranges=halves))
    assert not moves.keys() & had.keys()
    gone = planned(seen(had, {A}, layout=fewer, lost={B}, ranges={A: halves[A]}))
    assert {part: gone.get(part) for part in had if part in gone} == dict.fromkeys(UPPER, None)
