"""Groups of the type KeyShared: what is planned for partitions is planned for their parts."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.handoff import (
    Attempt,
    Commit,
    Committed,
    Committing,
    Owned,
    Refused,
    Seen,
    Targeted,
    Vacant,
    step,
)
from partq.core.group.membership import OwnershipState, assess
from partq.core.group.moves import Forced
from partq.core.group.observation import (
    FlowSeen,
    GroupObservation,
    LossSeen,
    MemberFact,
    PartitionOwnership,
)
from partq.core.group.partition_wait import standbys_of
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.layout import Layout, succession_of_parts
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.parts.hash_ranges import HashRange, ring_of
from partq.core.parts.part_id import PartId, parts_of
from partq.core.rescale.layout_steps import commit, prepare

A, B, C, D = map(MemberId, "abcd")
BROKER = BrokerId("b-0")
LONG = 60_000
BALANCED = GroupRules(type=GroupType.KEY_SHARED, parts=4)
SPLIT = replace(BALANCED, hash_range=HashRange.AUTO_SPLIT)
HASHED = replace(BALANCED, hash_range=HashRange.CONSISTENT_HASH)
FOUR = Layout.first(4)
EACH = pytest.mark.parametrize("rules", [BALANCED, SPLIT, HASHED], ids=lambda each: each.hash_range)


def seen(owned, bound, *, layout=FOUR, leaving=(), lost=(), facts=None, parts=4, ranges=None):
    """Return what is seen of a group; `owned`: the member of each part that has one."""
    partitions = layout.all_partitions()
    return GroupObservation(
        partitions={
            part: PartitionOwnership(
                partition=part,
                broker=BROKER,
                broker_epoch=BrokerEpoch(7),
                held_ms=LONG,
                member=owned.get(part),
                epoch=Epoch(3),
                is_bound=owned.get(part) in bound,
            )
            for part in parts_of(partitions, parts)
        },
        flows=[
            FlowSeen(
                member=member,
                broker=BROKER,
                incarnation="i",
                age_ms=LONG,
                is_leaving=member in leaving,
            )
            for member in bound
        ],
        losses=[LossSeen(member=member, broker=BROKER, age_ms=LONG) for member in lost],
        facts=facts or {},
        ranges=ranges or {},
        succession=succession_of_parts(layout.succession(), parts),
        ring=ring_of({each: layout.first_slots(each) for each in partitions}, parts),
    )


def planned(observation, rules, promised=None):
    return plan(observation, assess(observation, rules.membership), rules, {}, promised or {})


def after(observation, moves):
    owned = {part: each.member for part, each in observation.partitions.items() if each.member}
    owned.update({move.partition: move.target for move in moves})
    return owned


def settled(bound, rules, owned=None, **more):
    """Return who has which part once nothing moves any more."""
    owned = owned or {}
    for _ in range(5):
        observation = seen(owned, bound, **more)
        moves = planned(observation, rules)
        if not moves:
            return owned
        owned = after(observation, moves)
    raise AssertionError("the plan does not settle")


@EACH
def test_the_first_members_share_all_parts(rules):
    owned = settled([A, B], rules)
    assert len(owned) == 16
    assert set(owned.values()) == {A, B}


@pytest.mark.req("SOL-28")
def test_more_members_than_partitions_have_parts():
    members = [MemberId(f"m{number}") for number in range(16)]
    assert set(Counter(settled(members, BALANCED).values()).values()) == {1}
    assert len(set(settled([*members, A], BALANCED).values())) == 16


def test_balanced_moves_least_and_keeps_members_to_few_partitions():
    owned = settled([A, B, C, D], BALANCED)
    assert {part.index for part, member in owned.items() if member == B} == {1}
    observation = seen(owned, [A, B, C, D], leaving=[D])
    moves = planned(observation, BALANCED)
    assert {move.ownership.member for move in moves} == {D}
    # What is left of a partition goes to those that have some of it, as far as they have room.
    mixed = {**owned, PartId(1, 3, 0): A, PartId(1, 0, 3): D}
    moves = planned(seen(mixed, [A, B, C, D], leaving=[D]), BALANCED)
    assert {str(move.partition): move.target for move in moves}["1.3/1"] == A


@EACH
def test_who_leaves_is_not_waited_for_and_who_is_lost_is(rules):
    owned = settled([A, B, C], rules)
    moves = planned(seen(owned, [A, B, C], leaving=[B]), rules)
    assert {move.partition for move in moves} == {part for part in owned if owned[part] == B}
    assert not any(move.may_wait for move in moves)
    lost = seen(owned, [A, C], lost=[B])
    assert OwnershipState.OVERDUE in set(assess(lost, rules.membership).partitions.values())
    waits = replace(rules, membership=replace(rules.membership, delay_ms=2 * LONG))
    assert planned(lost, waits) == []


def test_a_replacement_takes_over_the_whole_set():
    owned = settled([A, B], BALANCED)
    facts = {C: MemberFact.IS_REPLACEMENT, B: MemberFact.IS_BEING_REPLACED}
    moves = planned(seen(owned, [A, B, C], facts=facts), BALANCED)
    assert {move.target for move in moves} == {C}
    assert {move.partition for move in moves} == {part for part in owned if owned[part] == B}


@pytest.mark.req("PUL-U01", "PUL-U02")
def test_a_region_that_is_half_moved_moves_to_its_end():
    owned = settled([A], SPLIT)
    observation = seen(owned, [A, B])
    moves = planned(observation, SPLIT)
    assert len(moves) == 8
    promised = {move.partition: move.target for move in moves}
    half = after(observation, moves[:3])
    rest = planned(seen(half, [A, B]), SPLIT, promised)
    assert [move.partition for move in rest] == [move.partition for move in moves[3:]]
    # Another one joins meanwhile: it gets half of a region as it will be.
    both = after(seen(half, [A, B, C]), planned(seen(half, [A, B, C]), SPLIT, promised))
    assert Counter(both.values()) == {A: 8, B: 4, C: 4}


@EACH
def test_parts_of_new_partitions_begin_where_their_keys_are(rules):
    owned = settled([A, B], rules)
    changed = commit(prepare(FOUR, 6), 1)
    grown = settled([A, B], rules, owned, layout=changed)
    assert len(grown) == 24
    if rules is BALANCED:
        assert all(grown[part] == owned[part] for part in owned)
        assert Counter(grown.values()) == {A: 12, B: 12}


def test_standbys_of_a_part_are_the_members_without_any():
    members = [MemberId(f"m{number:02}") for number in range(17)]
    owned = settled(members, BALANCED)
    assert standbys_of(PartId(1, 0, 0), observation=seen(owned, members), rules=BALANCED) == [
        MemberId("m16")
    ]


@given(
    st.sampled_from([BALANCED, SPLIT, HASHED]),
    st.lists(st.sets(st.sampled_from([A, B, C, D]), min_size=1), min_size=1, max_size=5),
)
def test_whatever_comes_and_goes_all_parts_find_a_member(rules, changes):
    owned: dict = {}
    for members in changes:
        gone = {*owned.values()} - members
        owned = settled(sorted(members), rules, owned, lost=sorted(gone))
        assert len(owned) == 16
        assert set(owned.values()) <= members
        if rules is BALANCED:
            sizes = [Counter(owned.values())[member] for member in members]
            assert max(sizes) - min(sizes) <= 1


# ---- handoffs of parts ---------------------------------------------------------------------------

PART = Attempt(
    number=4,
    broker=BROKER,
    broker_epoch=BrokerEpoch(7),
    source=A,
    epoch=Epoch(3),
    target=B,
    keys_ms=3_000,
)
OWNED, HANDED_OVER = Owned(A, Epoch(3)), Owned(B, Epoch(9))


def record(member=A, epoch=3, broker_epoch=7, closed=3):
    return Seen(BrokerEpoch(broker_epoch), member, Epoch(epoch), closed)


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        pytest.param(OWNED, Targeted(PART, 3_000, 9), Committing(PART, None), id="no drain"),
        pytest.param(
            OWNED,
            Targeted(PART, 3_000, 9, Forced.SOURCE_LOST),
            Committing(PART, Forced.SOURCE_LOST),
            id="the source is lost",
        ),
        pytest.param(
            Vacant(Epoch(3)),
            Targeted(replace(PART, source=None), 3_000, 9),
            Committing(replace(PART, source=None), Forced.UNASSIGNED),
            id="nobody had it",
        ),
        pytest.param(Committing(PART, None), Committed(4, Epoch(9)), HANDED_OVER, id="committed"),
        pytest.param(Committing(PART, None), Refused(4), OWNED, id="refused"),
        pytest.param(
            Committing(PART, None), record(epoch=8), Committing(PART, None), id="others move"
        ),
        pytest.param(
            Committing(PART, None), record(B, 9, closed=4), HANDED_OVER, id="the answer was lost"
        ),
        pytest.param(
            Committing(PART, None), record(C, 9, closed=5), Owned(C, Epoch(9)), id="moved by others"
        ),
        pytest.param(
            Committing(PART, None), record(broker_epoch=8), OWNED, id="another broker has it"
        ),
    ],
)
def test_a_part_is_handed_over_without_a_drain(state, event, expected):
    found, effects = step(state, event, 1)
    assert found == expected
    if isinstance(found, Committing) and found != state:
        assert effects == (Commit(found.attempt, found.forced),)
    else:
        assert effects == ()


@pytest.mark.req("PUL-133")
def test_a_change_of_the_count_leaves_regions_where_their_slots_are():
    """New partitions take slots of others: these stay at the member whose region has them."""
    two = Layout.first(2)
    halves = {**dict.fromkeys(parts_of([PartitionId(1, 0)], 4), A)}
    halves |= dict.fromkeys(parts_of([PartitionId(1, 1)], 4), B)
    four = commit(prepare(two, 4), 1)
    observation = seen(halves, {A, B}, layout=four)
    moves = plan(observation, assess(observation, SPLIT.membership), SPLIT, {})
    found = {**halves, **{move.partition: move.target for move in moves}}
    assert found.keys() == observation.partitions.keys()
    assert all(
        member == (A if observation.ring[part] < 32_768 else B) for part, member in found.items()
    )


@pytest.mark.req("PUL-133")
def test_parts_that_go_are_left_to_the_member_that_has_their_slots_now():
    halves = {part: A if part.index < 2 else B for part in parts_of(FOUR.all_partitions(), 4)}
    three = commit(prepare(FOUR, 3), 1)
    new = [part for part in parts_of(three.all_partitions(), 4) if part not in halves]
    ring = seen(halves, {A, B}, layout=three).ring
    owned = {**halves, **{part: C if ring[part] < 32_768 else B for part in new}}
    observation = seen(owned, {B, C}, layout=three, lost={A})
    moves = plan(observation, assess(observation, SPLIT.membership), SPLIT, {})
    assert {m.partition: m.target for m in moves if m.partition in halves} == {
        part: C for part, member in halves.items() if member == A
    }
