"""What is known of a move when its attempt begins."""

from types import SimpleNamespace

import pytest

from partq.coordinator.group.attempts import (
    FIRST_BACKOFF_S,
    FailedAttempts,
    idle_ms,
    why_undrained,
)
from partq.core.group.moves import Forced


def test_a_source_that_lives_elsewhere_is_unbound_and_not_lost():
    assessment = SimpleNamespace(bound_at={"m": frozenset({"orders-1"})})
    assert why_undrained("m", assessment) is Forced.SOURCE_UNBOUND
    assert why_undrained("n", assessment) is Forced.SOURCE_LOST


def loss(age_ms, *, member="m", broker="b"):
    return SimpleNamespace(member=member, broker=broker, age_ms=age_ms)


@pytest.mark.parametrize(
    ("held_ms", "losses", "expected"),
    [
        pytest.param(9_000, [loss(700), loss(300)], 300, id="the last loss of its flow counts"),
        pytest.param(200, [loss(700)], 200, id="no longer than its broker owns the partition"),
        pytest.param(
            9_000, [loss(700, broker="c"), loss(5, member="n")], 2_000, id="none here: the delay"
        ),
    ],
)
def test_how_long_a_partition_has_had_no_consumer(held_ms, losses, expected):
    ownership = SimpleNamespace(member="m", broker="b", held_ms=held_ms)
    move = SimpleNamespace(forced=Forced.SOURCE_LOST, ownership=ownership)
    observation, rules = SimpleNamespace(losses=losses), SimpleNamespace(delay_ms=2_000)
    assert idle_ms(observation, move, rules) == expected


def test_a_partition_is_left_alone_for_longer_with_each_attempt_that_fails():
    failed = FailedAttempts()
    moves = [SimpleNamespace(partition="1.0"), SimpleNamespace(partition="1.1")]
    ended = SimpleNamespace(partition="1.0", is_committed=False)
    failed.note(ended, 10.0)
    assert failed.may_start(moves, 10.0 + FIRST_BACKOFF_S / 2) == moves[1:]
    assert failed.may_start(moves, 10.0 + FIRST_BACKOFF_S) == moves
    failed.note(ended, 20.0)
    assert failed.may_start(moves, 20.0 + FIRST_BACKOFF_S) == moves[1:]
    failed.note(SimpleNamespace(partition="1.0", is_committed=True), 20.0)
    assert failed.may_start(moves, 20.0) == moves
