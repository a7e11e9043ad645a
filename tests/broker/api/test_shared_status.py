"""A status that callers share: how often it is read, how old it is, who may see it."""

import asyncio

import pytest

from partq.broker.api.shared_status import SharedStatus
from partq.errors import StoreUnavailableError


class Reads:
    """Counts what is read of the store; a read ends when it is let go."""

    def __init__(self):
        self.now = 100.0
        self.count = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error = None
        self.shared = SharedStatus(lambda: self.now)

    async def read(self):
        self.count += 1
        mine = self.count
        await self.go_on.wait()
        if self.error:
            raise self.error
        return mine

    def ask(self, max_age_s=1.0, *, is_admin=True):
        return self.shared.read(self.read, max_age_s=max_age_s, is_admin=is_admin)


@pytest.fixture
async def reads():
    return Reads()


async def test_callers_share_an_answer_while_it_is_young_enough(reads):
    assert [await reads.ask(), await reads.ask()] == [1, 1]
    reads.now += 0.9
    assert await reads.ask() == 1
    assert await reads.ask(0.5) == 2
    reads.now += 1.1
    assert await reads.ask() == 3


async def test_without_an_age_each_caller_reads(reads):
    assert [await reads.ask(0), await reads.ask(0)] == [1, 2]


async def test_what_others_may_not_see_is_not_shared_with_them(reads):
    assert [await reads.ask(is_admin=True), await reads.ask(is_admin=False)] == [1, 2]
    assert [await reads.ask(is_admin=True), await reads.ask(is_admin=False)] == [1, 2]


async def test_a_hundred_callers_wait_for_one_read_and_share_its_error(reads):
    """The age is that at the call: a slow read is not repeated for each that waited."""
    reads.go_on.clear()
    asking = [asyncio.create_task(reads.ask()) for _ in range(100)]
    await asyncio.sleep(0)
    reads.now += 60
    reads.error = StoreUnavailableError("Redis: no answer; ask again")
    reads.go_on.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert set(found) == {reads.error}
    assert reads.count == 1


async def test_a_caller_that_leaves_does_not_end_the_others(reads):
    reads.go_on.clear()
    first, second = (asyncio.create_task(reads.ask()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    reads.go_on.set()
    assert await second == 2
