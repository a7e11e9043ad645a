"""Which dead letters of a partition were sent back: fenced, in any order, once each."""

from itertools import count

import pytest

from partq.core.model import PartitionId
from partq.errors import FencedError, SupersededError, UnknownPartitionError
from partq.store.records import dead_letters
from partq.store.records.dead_letters import Replays
from partq.store.records.log import Trim
from tests.store.record import flush


@pytest.fixture
def replays(store, keys):
    return Replays(store, keys)


@pytest.fixture
def advance(replays, partition, broker_epoch):
    writes = count()

    async def advance(**call):
        options = {"broker_epoch": broker_epoch, "write": next(writes), **call}
        return await replays.advance(partition, **options)

    return advance


async def send(advance, offset):
    begun = await advance(begin=offset)
    assert (begun.sending, begun.is_full) == (offset, False)
    return await advance(over=offset, is_sent=True)


async def test_what_is_sent_out_of_order_is_remembered_until_all_before_it_is_sent(
    advance, replays, partition, fill
):
    await fill(10)
    numbers = []
    for offset, below, ahead in (
        (3, 0, {3}),
        (1, 0, {1, 3}),
        (0, 2, {3}),
        (2, 4, set()),
        (4, 5, set()),
    ):
        sent = await send(advance, offset)
        numbers.append(sent.number)
        assert (sent.below, sent.sending) == (below, None)
        assert await replays.read_sent(partition) == (below, ahead)
    assert numbers == sorted(set(numbers)), "each has a number above those before it"
    again = await advance(begin=3)
    assert (again.sending, again.number) == (None, numbers[-1]), "it was sent"


async def test_one_is_on_its_way_at_a_time_and_keeps_its_number(advance, replays, partition, fill):
    await fill(10)
    begun = await advance(begin=5)
    other = await advance(begin=7)
    assert (other.sending, other.number) == (5, begun.number)
    assert (await advance(over=7, is_sent=True)).sending == 5, "7 was never on its way"
    given_up = await advance(over=5, is_sent=False)
    assert (given_up.sending, await replays.read_sent(partition)) == (None, (0, set()))
    assert (await advance(begin=5)).number > begun.number


async def test_what_is_trimmed_or_passed_is_not_remembered(
    advance, partitions, partition, log, broker_epoch, store, keys, fill
):
    await fill(1, 1, 1, 1, 1, 1)
    for offset in (2, 4):
        await send(advance, offset)
    await advance(begin=1)
    await flush(partitions, partition, broker_epoch, "workers", 4)
    assert await log.trim(partition, broker_epoch=broker_epoch) == Trim(4, 4, 0)
    dropped = await advance(over=1, is_sent=True)
    assert (dropped.below, dropped.sending) == (5, None), "4 was sent, and lies at the beginning"
    assert await store.read("HLEN", keys.replayed(partition)) == 0
    assert (await advance(passed=6)).below == 6


async def test_a_bound_refuses_only_what_is_out_of_order(advance, partition, fill, monkeypatch):
    monkeypatch.setattr(dead_letters, "MAX_REPLAYED_AHEAD", 2)
    await fill(10)
    for offset in (5, 7):
        await send(advance, offset)
    refused = await advance(begin=9)
    assert (refused.is_full, refused.sending) == (True, None)
    for offset, below in enumerate((1, 2, 3, 4, 6)):
        assert (await send(advance, offset)).below == below
    assert (await send(advance, 9)).below == 6


async def test_others_write_nothing(advance, replays, partition, broker_epoch, fill):
    await fill(10)
    begun = await advance(begin=5, write=7)
    assert await advance(begin=6, write=7) == begun, "the same call again"
    with pytest.raises(SupersededError, match="write 6"):
        await advance(over=5, is_sent=True, write=6)
    with pytest.raises(FencedError):
        await advance(over=5, is_sent=True, broker_epoch=broker_epoch - 1, write=8)
    with pytest.raises(FencedError):
        await advance(over=5, is_sent=True, begin=10, write=8)  # behind the end of the log
    with pytest.raises(UnknownPartitionError):
        await replays.advance(PartitionId(1, 9), broker_epoch=broker_epoch, write=9)
    assert await advance(write=10) == begun
    assert (await replays.read_sent(partition)).ahead == set()


async def test_a_log_that_has_lost_its_end_forgets_what_lay_there(
    advance, store, keys, partition, fill
):
    await fill(10)
    await advance(passed=10)
    await store.read("HSET", keys.meta(partition), "next", 6)
    assert (await advance()).below == 6
