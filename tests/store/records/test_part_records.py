"""Commits of parts of a partition in Redis."""

import pytest

from partq.core.model import BrokerId
from partq.core.parts.part_owners import NOBODY, PartMove
from partq.errors import FencedError, InternalError, UnknownGroupError
from partq.store.codec import decode_parts
from partq.store.records.part_records import PartRecords
from tests.store.record import BORN, GROUP, commit


@pytest.fixture
def commit_parts(store, keys, partition, broker_epoch):
    """Commit moves of parts, as the partition's broker does."""

    async def commit_parts(*moves, **changes):
        arguments = {"broker_epoch": broker_epoch, "born": BORN, "count": 4, "epoch": 0, **changes}
        moves = [PartMove(*move) for move in moves]
        return await PartRecords(store, keys).commit_parts(
            partition, GROUP, moves=moves, **arguments
        )

    return commit_parts


async def test_parts_move_each_on_its_own_under_one_epoch(commit_parts, partitions, partition):
    before = await partitions.read_cursor(partition, GROUP)
    assert before.parts is None
    done = await commit_parts((0, None, 7, "a"), (3, None, 8, "b"), (1, "b", 9, "a"))
    assert (done.passed, sorted(done.refused)) == ((0, 3), [1])
    stored = await partitions.read_cursor(partition, GROUP)
    assert stored.epoch == done.epoch > before.epoch
    assert (stored.parts.members, stored.parts.of) == (("a", "b"), (0, NOBODY, NOBODY, 1))
    assert stored.parts.attempts == (7, 0, 0, 8)
    assert (stored.cursor, stored.attempt, stored.born) == (before.cursor, 0, before.born)


async def test_a_repeat_is_answered_alike_and_writes_nothing(commit_parts, partitions, partition):
    moves = (0, None, 7, "a"), (1, "z", 8, "a")
    done = await commit_parts(*moves)
    assert await commit_parts(*moves) == done
    later = await commit_parts((0, "a", 9, None))
    assert later.epoch > done.epoch
    late = await commit_parts(*moves)
    assert (late.passed, late.epoch) == ((), later.epoch)
    assert (await partitions.read_cursor(partition, GROUP)).parts.owner(0) is None


async def test_the_epoch_is_above_all_that_the_broker_has_given(commit_parts):
    done = await commit_parts((0, None, 7, "a"))
    above = done.epoch + 10**9
    assert (await commit_parts((0, "a", 8, "b"), epoch=above)).epoch == above + 1


async def test_the_stored_count_of_parts_counts(commit_parts):
    await commit_parts((3, None, 7, "a"))
    done = await commit_parts((3, "a", 8, "b"), (4, None, 9, "b"), count=16)
    assert (done.passed, sorted(done.refused)) == ((3,), [4])


async def test_names_come_back_as_they_were(commit_parts, partitions, partition):
    name = 'a/"\\\u00e9\u2603%'
    await commit_parts((2, None, 7, name))
    assert (await partitions.read_cursor(partition, GROUP)).parts.owner(2) == name


async def test_no_member_has_the_partition_as_a_whole_then(
    commit_parts, partitions, partition, broker_epoch
):
    await commit(partitions, partition, broker_epoch)
    await commit_parts((2, None, 7, "a"))
    assert (await partitions.read_cursor(partition, GROUP)).member is None


async def test_an_earlier_broker_and_an_earlier_group_are_refused(
    commit_parts, partitions, partition, broker_epoch
):
    with pytest.raises(UnknownGroupError):
        await commit_parts((0, None, 7, "a"), born=BORN + 1)
    await partitions.claim(partition, BrokerId("b-1"), "y", expected=broker_epoch)
    with pytest.raises(FencedError):
        await commit_parts((0, None, 7, "a"))
    assert (await partitions.read_cursor(partition, GROUP)).parts is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"members": [], "of": [], "attempts": []}',
        b'{"members": ["a"], "of": [1], "attempts": [7]}',
        b'{"members": ["a"], "of": [0, 0], "attempts": [7]}',
        b'{"members": ["a"], "of": ["x"], "attempts": [7]}',
    ],
)
def test_a_damaged_record_is_reported(text):
    with pytest.raises(InternalError, match="damaged"):
        decode_parts(text)
