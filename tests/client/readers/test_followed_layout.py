"""Which partitions a reader follows, and when, over changes of the partition count."""

import pytest

from partq.client.readers.followed_layout import FollowedLayout
from partq.client.transport.positions import LogPosition
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare, remove, settle

TWO = Layout.first(2)
ONE = commit(prepare(TWO, 1), 1_700_000_000_000)
FIRST, SECOND, NEW = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)


class Log:
    """What a `LogReader` answers."""

    def __init__(self):
        self.now = TWO
        self.seals = {}
        self.asked = []

    async def layout(self):
        return self.now

    async def positions(self, where, partitions):
        assert where == "earliest"
        self.asked.append(partitions)
        seals = {each: self.seals.get(each, {}) for each in partitions}
        return {each: LogPosition(each, 0, 0, 0, own.get(2, 9), own) for each, own in seals.items()}


@pytest.fixture
def log():
    return Log()


@pytest.fixture
async def order(log):
    order = FollowedLayout(log)
    await order.read()
    return order


def places(**offsets):
    named = {"first": FIRST, "second": SECOND, "new": NEW}
    return {named[name]: LogPosition(named[name], 0, at) for name, at in offsets.items()}


async def test_a_new_partition_waits_for_all_below_the_seals(log, order):
    log.now, log.seals = ONE, {FIRST: {2: 5}, SECOND: {2: 0}}
    await order.read()
    assert not order.is_due(NEW, places(first=4, second=0, new=0))
    assert order.is_due(NEW, places(first=5, second=0, new=0))
    assert order.is_due(FIRST, places(first=4, second=0, new=0))


async def test_a_partition_that_is_not_read_is_not_waited_for(log, order):
    log.now, log.seals = ONE, {FIRST: {2: 5}, SECOND: {2: 7}}
    await order.read()
    assert order.is_due(NEW, places(first=5, new=0))


async def test_seals_are_asked_for_until_they_are_known(log, order):
    log.now, log.seals = ONE, {SECOND: {2: 0}}
    await order.read()
    assert not order.is_due(NEW, places(first=9, second=9, new=0)), "more may be stored"
    assert not order.has_read(LogPosition(FIRST, 0, 9)), "its log may grow"
    log.seals[FIRST] = {2: 5}
    await order.read()
    assert order.is_due(NEW, places(first=5, second=0, new=0))
    await order.read()
    assert log.asked == [[FIRST, SECOND], [FIRST]]


async def test_a_removed_partition_was_read_to_its_end_or_not(log, order):
    log.now, log.seals = ONE, {FIRST: {2: 5}, SECOND: {2: 0}}
    await order.read()
    log.now = remove(settle(ONE, FIRST, SECOND), FIRST, SECOND)
    await order.read()
    assert order.is_due(NEW, places(new=0))
    assert order.has_read(LogPosition(FIRST, 0, 5))
    assert not order.has_read(LogPosition(FIRST, 0, 4))


async def test_the_layout_of_a_broker_that_is_behind_changes_nothing(log, order):
    log.now, log.seals = ONE, {FIRST: {2: 5}, SECOND: {2: 0}}
    await order.read()
    log.now = TWO
    assert await order.read() == ONE
    assert not order.is_due(NEW, places(first=4, second=0, new=0))
