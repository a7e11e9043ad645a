"""The sentence that says which groups hold what a broker stores."""

import pytest

from partq.broker.log.holders import Unacknowledged, describe_holders
from partq.core.model import PartitionId


def held(group, partition, mark, end, letters=0):
    return Unacknowledged(group, PartitionId(1, partition), mark, end, letters)


BY_ACKS = (
    "until they are acknowledged: have them consumed, move the group over them with `partq reset`"
)
BY_LETTERS = (
    "until the dead-letter queue takes them: create it or give it room (`partq reset` leaves"
)
BY_BOTH = "; dead letters wait until their queue takes them, `partq reset` leaves them: create it"


@pytest.mark.parametrize(("found", "told"), [
    pytest.param([], "no consumer group acknowledges", id="no group"),
    pytest.param([held("a", 0, 9, 9)], "have acknowledged all", id="nothing is held"),
    pytest.param(
        [held("a", 0, 2, 9), held("b", 0, 5, 9)],
        "held by group a (7 messages; in partition 1.0 from 2 on), until", id="who is behind",
    ),
    pytest.param(
        [held("a", 0, 2, 4), held("b", 1, 0, 9), held("a", 1, 0, 9)],
        "held by group a (11 messages; in partition 1.1 from 0 on), "
        "group b (9 messages; in partition 1.1 from 0 on), until", id="both, the most first",
    ),
    pytest.param(
        [held(name, 0, 0, 1) for name in "abcde"],
        "group c (1 message; in partition 1.0 from 0 on) and 2 more, until", id="three at most",
    ),
])  # fmt: skip
def test_who_holds_the_oldest_messages_is_told(found, told):
    assert told in describe_holders(found)


@pytest.mark.parametrize(("found", "begins"), [
    pytest.param([held("a", 0, 9, 9)], "scheduled messages hold 1,200 bytes", id="they alone"),
    pytest.param([held("a", 0, 2, 9)], "the oldest messages of this broker", id="a group, too"),
    pytest.param([], "no consumer group acknowledges", id="no group"),
])  # fmt: skip
def test_room_that_scheduled_messages_take_is_told(found, begins):
    told = describe_holders(found, 1200)
    assert told.startswith(begins)
    assert "scheduled messages hold 1,200 bytes of this broker until they are due: `partq" in told
    assert "within a second" not in told


@pytest.mark.parametrize(("found", "named", "ways"), [
    pytest.param([held("a", 0, 2, 9)], "(7 messages; in", [BY_ACKS], id="acks"),
    pytest.param(
        [held("a", 0, 2, 9, 3), held("a", 1, 0, 1, 1)],
        "(8 messages, 4 of them dead letters; in partition 1.0 from 2 on)", [BY_LETTERS],
        id="dead letters",
    ),
    pytest.param(
        [held("a", 0, 2, 9, 3), held("b", 0, 2, 9)],
        "group a (7 messages, 3 of them dead letters; in partition 1.0 from 2 on), group b (7 mess",
        [BY_ACKS, BY_BOTH], id="both",
    ),
    pytest.param(
        [held("a", 0, 2, 9, 3), held("b", 0, 1, 9)], "group b (8 messages; in", [BY_ACKS],
        id="behind dead letters",
    ),
])  # fmt: skip
def test_dead_letters_that_hold_the_oldest_messages_are_told_from_acks(found, named, ways):
    told = describe_holders(found)
    assert named in told
    assert [way for way in (BY_ACKS, BY_LETTERS, BY_BOTH) if way in told] == ways
