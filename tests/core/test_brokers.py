import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.brokers import (
    BrokerRules,
    LeaseSeen,
    ObservedBroker,
    balance,
    first_claims,
    watch,
)
from partq.core.model import BrokerId, PartitionId

B0, B1, B2 = BrokerId("b-0"), BrokerId("b-1"), BrokerId("b-2")
ALL = tuple(PartitionId(1, index) for index in range(8))
RULES = BrokerRules(expected_count=2)
NOW = 1_000_000


def living(*brokers, since_ms=60_000):
    return {b: ObservedBroker(LeaseSeen("i", 1, 3_000), NOW, True, NOW - since_ms) for b in brokers}


def dead(broker, since_ms):
    return {broker: ObservedBroker(LeaseSeen("i", 1, 3_000), NOW, False, NOW - since_ms)}


def lease(counter, incarnation="i"):
    return LeaseSeen(incarnation, counter, 3_000)


def test_a_lease_is_over_when_its_counter_stands_still():
    seen = watch({}, {B0: lease(1)}, [], 0)
    assert seen[B0].is_living
    seen = watch(seen, {B0: lease(1)}, [], 4_499)
    assert seen[B0].is_living
    seen = watch(seen, {B0: lease(1)}, [], 4_500)
    assert not seen[B0].is_living
    assert seen[B0].since_ms == 4_500
    seen = watch(seen, {B0: lease(2)}, [], 5_000)
    assert seen[B0].is_living


def test_a_renewed_lease_goes_on_and_a_released_one_is_over_at_once():
    seen = watch({}, {B0: lease(1)}, [B0], 0)
    seen = watch(seen, {B0: lease(2)}, [B0], 4_000)
    seen = watch(seen, {B0: lease(2)}, [B0], 8_000)
    assert seen[B0].is_living
    assert seen[B0].since_ms == 0
    seen = watch(seen, {}, [B0], 8_100)
    assert not seen[B0].is_living
    seen = watch(seen, {B0: lease(1, "j")}, [B0], 9_000)
    assert seen[B0].is_living


def test_who_comes_first_does_not_get_it_all():
    held = {B0: []}
    assert first_claims(ALL, living(B0, since_ms=2_999), held, {}, RULES, NOW) == {}
    assert first_claims(ALL, living(B0, since_ms=3_000), held, {}, RULES, NOW) == {B0: list(ALL)}
    claims = first_claims(ALL, living(B0, B1, since_ms=0), {B0: [], B1: []}, {}, RULES, NOW)
    assert {broker: len(mine) for broker, mine in claims.items()} == {B0: 4, B1: 4}


def test_the_partitions_of_a_dead_broker_are_left_to_the_others():
    owners = dict.fromkeys(ALL, B1)
    held = {B0: []}
    fresh = {**living(B0), **dead(B1, 5_999)}
    assert first_claims(ALL, fresh, held, owners, RULES, NOW) == {}
    old = {**living(B0), **dead(B1, 6_000)}
    assert first_claims(ALL, old, held, owners, RULES, NOW) == {B0: list(ALL)}


def test_a_broker_that_did_not_answer_may_own_what_it_owned():
    owners = dict.fromkeys(ALL, B1)
    watched = living(B0, B1)
    assert first_claims(ALL, watched, {B0: [], B1: None}, owners, RULES, NOW) == {}
    claims = first_claims(ALL, watched, {B0: [], B1: []}, owners, RULES, NOW)
    assert sum(map(len, claims.values())) == len(ALL)


def test_balance_moves_a_few_at_a_time():
    moves = balance(ALL, living(B0, B1), {B0: ALL, B1: []}, RULES, NOW)
    assert {(move.source, move.target) for move in moves} == {(B0, B1)}
    assert len(moves) == RULES.move_count


def test_no_balance_while_anything_is_in_doubt():
    held = {B0: ALL, B1: []}
    fresh = {**living(B0), **living(B1, since_ms=2_999)}
    assert balance(ALL, fresh, held, RULES, NOW) == [], "a broker has just come"
    assert balance(ALL, living(B0, B1), {B0: ALL, B1: None}, RULES, NOW) == [], "one is silent"
    assert balance(ALL, living(B0, B1), {B0: ALL[1:], B1: []}, RULES, NOW) == [], "one is free"
    assert balance(ALL, living(B0, B1), {B0: ALL[4:], B1: ALL[:4]}, RULES, NOW) == [], "even"


@pytest.mark.req("AZR-02")
@given(st.lists(st.sampled_from([B0, B1, B2]), min_size=8, max_size=8))
def test_steps_of_balance_end_in_an_even_spread(owners):
    held = {b: [p for p, o in zip(ALL, owners, strict=True) if o == b] for b in (B0, B1, B2)}
    for _ in range(len(ALL)):
        moves = balance(ALL, living(B0, B1, B2), held, RULES, NOW)
        for move in moves:
            held[move.source].remove(move.partition)
            held[move.target].append(move.partition)
    assert moves == []
    assert sorted(map(len, held.values())) == [2, 3, 3]
