import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.group.membership import MemberState, OwnershipState, assess
from partq.core.group.observation import (
    FlowSeen,
    GroupObservation,
    LossSeen,
    MemberFact,
    PartitionOwnership,
)
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId

RULES = MembershipRules(delay_ms=5_000, bind_ms=2_000, join_quiet_ms=500, join_limit_ms=2_000)
A, B = MemberId("a"), MemberId("b")
B0, B1 = BrokerId("b-0"), BrokerId("b-1")
P = PartitionId(1, 0)
LONG = 60_000


def ownership(member=A, *, bound=False, held_ms=LONG, broker=B0, partition=P, **more):
    return PartitionOwnership(
        partition=partition,
        broker=broker,
        broker_epoch=BrokerEpoch(7),
        held_ms=held_ms,
        member=member,
        epoch=Epoch(3),
        is_bound=bound,
        **more,
    )


def flow(member=A, broker=B0, age_ms=LONG, incarnation="i", leaving=False):
    return FlowSeen(
        member=member, broker=broker, incarnation=incarnation, age_ms=age_ms, is_leaving=leaving
    )


def loss(age_ms, member=A, broker=B0, leaving=False):
    return LossSeen(member=member, broker=broker, age_ms=age_ms, is_leaving=leaving)


def observation(*partitions, **more):
    return GroupObservation(partitions={each.partition: each for each in partitions}, **more)


@pytest.mark.req("SOL-26", "SOL-U08")
@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(observation(ownership(None)), OwnershipState.VACANT, id="nobody is on record"),
        pytest.param(
            observation(ownership(bound=True), flows=[flow()]), OwnershipState.SETTLED, id="bound"
        ),
        pytest.param(
            observation(ownership(bound=True), flows=[flow(leaving=True)]),
            OwnershipState.LEAVING,
            id="the client said Leave: handed over at once",
        ),
        pytest.param(
            observation(
                ownership(bound=True), flows=[flow()], facts={A: MemberFact.IS_TERMINATING}
            ),
            OwnershipState.LEAVING,
            id="its pod is terminating: handed over at once",
        ),
        pytest.param(
            observation(ownership(), losses=[loss(4_999)]), OwnershipState.WAITING, id="delay runs"
        ),
        pytest.param(
            observation(ownership(), losses=[loss(5_000)]),
            OwnershipState.OVERDUE,
            id="delay is over",
        ),
        pytest.param(
            observation(ownership(), losses=[loss(0)], facts={A: MemberFact.IS_GONE_FOR_GOOD}),
            OwnershipState.OVERDUE,
            id="gone for good: no delay",
        ),
        pytest.param(
            observation(ownership(), losses=[loss(0, leaving=True)]),
            OwnershipState.OVERDUE,
            id="left before all was handed over: no delay",
        ),
        pytest.param(
            observation(ownership(), flows=[flow(broker=B1, leaving=True)], losses=[loss(0)]),
            OwnershipState.OVERDUE,
            id="leaving, and its flow here is closed already",
        ),
        pytest.param(
            observation(ownership(), flows=[flow(broker=B1)], losses=[loss(0, leaving=True)]),
            OwnershipState.WAITING,
            id="left, and a new life is bound elsewhere",
        ),
        pytest.param(
            observation(ownership(held_ms=6_999), lost_ms={A: LONG}),
            OwnershipState.WAITING,
            id="the delay counts from when this broker had held it for the bind time",
        ),
        pytest.param(
            observation(ownership(held_ms=7_000), lost_ms={A: LONG}),
            OwnershipState.OVERDUE,
            id="bind time and delay are over at a new broker",
        ),
        pytest.param(
            observation(ownership(), lost_ms={A: 4_999}),
            OwnershipState.WAITING,
            id="the stored time counts",
        ),
        pytest.param(
            observation(ownership(), lost_ms={A: 5_000}),
            OwnershipState.OVERDUE,
            id="the stored time is over",
        ),
        pytest.param(
            observation(ownership(), losses=[loss(1_000)], lost_ms={A: LONG}),
            OwnershipState.WAITING,
            id="who lost the flow knows better than the store",
        ),
        pytest.param(
            observation(ownership(), flows=[flow(age_ms=0)], lost_ms={A: LONG}),
            OwnershipState.WAITING,
            id="it is just binding",
        ),
        pytest.param(
            observation(ownership(), flows=[flow(broker=B1)], losses=[loss(5_000)]),
            OwnershipState.OVERDUE,
            id="bound elsewhere, lost here for the delay: only this partition moves",
        ),
        pytest.param(
            observation(ownership(), losses=[loss(2_000), loss(9_000)]),
            OwnershipState.WAITING,
            id="of two losses the younger counts",
        ),
        pytest.param(
            observation(ownership(broker=None)), OwnershipState.UNSEEN, id="its broker is silent"
        ),
    ],
)
def test_what_a_partition_needs(seen, expected):
    assert assess(seen, RULES).partitions[P] is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(
            observation(ownership(bound=True), flows=[flow()]), MemberState.BOUND, id="bound"
        ),
        pytest.param(observation(ownership(), losses=[loss(0)]), MemberState.WAITING, id="lost"),
        pytest.param(observation(ownership(), losses=[loss(5_000)]), MemberState.GONE, id="late"),
        pytest.param(
            observation(ownership(broker=None), losses=[loss(LONG)], lost_ms={A: LONG}),
            MemberState.WAITING,
            id="a broker is silent: it may be bound there",
        ),
        pytest.param(
            observation(flows=[flow(leaving=True), flow(broker=B1)]),
            MemberState.LEAVING,
            id="one life: it says Leave at one broker after the other",
        ),
        pytest.param(
            observation(flows=[flow(leaving=True), flow(broker=B1, incarnation="j")]),
            MemberState.BOUND,
            id="the old life leaves, the new one stays",
        ),
    ],
)
def test_what_a_member_is(seen, expected):
    assert assess(seen, RULES).members[A] is expected


@pytest.mark.req("SOL-37", "SOL-U03")
def test_a_member_that_binds_again_in_time_has_lost_nothing():
    lost = observation(ownership(), losses=[loss(4_000)], lost_ms={A: 4_000}, listed=[A])
    back = observation(
        ownership(bound=True), flows=[flow(age_ms=10)], lost_ms={A: 4_100}, listed=[A]
    )

    assert assess(lost, RULES).partitions[P] is OwnershipState.WAITING
    assessment = assess(back, RULES)
    assert assessment.partitions[P] is OwnershipState.SETTLED
    assert assessment.to_clear == {A}
    assert not assessment.newcomers


@pytest.mark.parametrize(
    ("ages_ms", "wait_ms"),
    [
        pytest.param([], 0, id="nobody joins"),
        pytest.param([0], 500, id="the first join waits for others"),
        pytest.param([499], 1, id="almost quiet"),
        pytest.param([500], 0, id="quiet for long enough"),
        pytest.param([1_400, 100], 400, id="a later join starts the wait again"),
        pytest.param([1_900, 100], 100, id="at most the limit after the first"),
        pytest.param([2_000, 0], 0, id="the limit is over, though one has just joined"),
    ],
)
def test_joins_wait_for_each_other(ages_ms, wait_ms):
    flows = [flow(MemberId(f"m{n}"), age_ms=age_ms) for n, age_ms in enumerate(ages_ms)]
    assessment = assess(observation(ownership(None), flows=flows), RULES)
    assert assessment.join_wait_ms == wait_ms
    assert assessment.next_ms == (wait_ms or None)


@pytest.mark.parametrize(
    ("ages_ms", "wait_ms"),
    [
        pytest.param(
            {A: 60_000, B: 100}, 400, id="a replacement that stands by cuts no wait short"
        ),
        pytest.param({A: 0, B: 600}, 0, id="nor does one that comes start it again"),
        pytest.param({A: 100}, 400, id="where nobody else is there it joins like any other"),
    ],
)
def test_a_replacement_is_no_part_of_the_joins_that_wait(ages_ms, wait_ms):
    flows = [flow(member, age_ms=age_ms) for member, age_ms in ages_ms.items()]
    seen = observation(ownership(None), flows=flows, facts={A: MemberFact.IS_REPLACEMENT})
    assert assess(seen, RULES).join_wait_ms == wait_ms


def test_a_loss_is_written_down_once_it_is_certain():
    assert assess(observation(ownership(held_ms=1_999)), RULES).to_mark == set()
    assert assess(observation(ownership(held_ms=1_999), losses=[loss(0)]), RULES).to_mark == {A}
    assert assess(observation(ownership(held_ms=2_000)), RULES).to_mark == {A}
    assert assess(observation(ownership(), lost_ms={A: 1}), RULES).to_mark == set()
    assert assess(observation(ownership(broker=None)), RULES).to_mark == set()


def test_a_failed_list_is_not_an_empty_list():
    listed = observation(listed=[A], is_complete=False)
    assert assess(listed, RULES).to_mark == set()
    late = observation(listed=[A], lost_ms={A: LONG}, is_complete=False)
    assert assess(late, RULES).to_unlist == set()
    back = observation(ownership(bound=True), flows=[flow()], lost_ms={A: LONG}, is_complete=False)
    assert assess(back, RULES).to_clear == set()


@pytest.mark.parametrize(
    ("seen", "is_unlisted"),
    [
        pytest.param(observation(listed=[A], lost_ms={A: 10_000}), True, id="late, holds nothing"),
        pytest.param(observation(listed=[A], lost_ms={A: 9_999}), False, id="may be about to bind"),
        pytest.param(observation(lost_ms={A: 10_000}), True, id="lost without having been listed"),
        pytest.param(
            observation(ownership(), listed=[A], lost_ms={A: LONG}), False, id="holds something"
        ),
        pytest.param(observation(flows=[flow()], listed=[A], lost_ms={A: LONG}), False, id="bound"),
    ],
)
def test_who_is_no_longer_listed(seen, is_unlisted):
    assert (A in assess(seen, RULES).to_unlist) is is_unlisted


def test_a_member_is_avoided_where_it_has_no_flow():
    assessment = assess(observation(ownership(None), flows=[flow(broker=B1), flow(B)]), RULES)
    assert assessment.is_free(A, B1)
    assert not assessment.is_free(A, B0)
    assert assessment.is_free(B, B0)
    assert not assessment.is_free(MemberId("nobody"), B0)


ages = st.integers(0, 20_000)


@given(held_ms=ages, lost_ms=ages, stored_ms=ages, is_known=st.booleans(), is_stored=st.booleans())
def test_what_remains_is_never_above_the_configured_length(
    held_ms, lost_ms, stored_ms, is_known, is_stored
):
    seen = observation(
        ownership(held_ms=held_ms),
        losses=[loss(lost_ms)] if is_known else [],
        lost_ms={A: stored_ms} if is_stored else {},
    )
    assessment = assess(seen, RULES)
    if assessment.partitions[P] is OwnershipState.WAITING:
        assert assessment.next_ms is not None
        assert 0 < assessment.next_ms <= RULES.bind_ms + RULES.delay_ms
        if held_ms >= RULES.bind_ms:
            assert assessment.next_ms <= RULES.delay_ms
    else:
        assert held_ms >= RULES.bind_ms + RULES.delay_ms


@given(held_ms=ages, lost_ms=ages, passed_ms=ages)
def test_a_judgement_does_not_depend_on_who_looked_before(held_ms, lost_ms, passed_ms):
    """A coordinator that starts later sees the same deadline: nothing of it is in memory."""
    early = assess(observation(ownership(held_ms=held_ms), losses=[loss(lost_ms)]), RULES)
    late = assess(
        observation(ownership(held_ms=held_ms + passed_ms), losses=[loss(lost_ms + passed_ms)]),
        RULES,
    )
    if early.partitions[P] is OwnershipState.OVERDUE:
        assert late.partitions[P] is OwnershipState.OVERDUE
    else:
        is_over = passed_ms >= early.next_ms
        assert (late.partitions[P] is OwnershipState.OVERDUE) == is_over
