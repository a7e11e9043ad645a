"""What answers of brokers do to handoffs under way."""

import asyncio

import pytest

from partq.coordinator.group.handoff_runner import UNKNOWN_CODES, HandoffRunner
from partq.coordinator.ports import Answer
from partq.core.group.handoff import Attempt, Committing
from partq.core.group.moves import Forced, Trigger
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId

P0 = PartitionId(1, 0)
ATTEMPT = Attempt(
    number=7,
    broker=BrokerId("b"),
    broker_epoch=BrokerEpoch(5),
    source=MemberId("m"),
    epoch=Epoch(9),
    target=MemberId("n"),
)


class Brokers:
    """A broker that answers commits in turn."""

    def __init__(self, *answers):
        self.left = list(answers)

    async def commit(self, url, group, commits):
        return [self.left.pop(0)]


async def ended(brokers):
    """Run a commit until it is over."""
    over = asyncio.get_running_loop().create_future()
    runner = HandoffRunner(
        "workers", brokers, url_of=lambda broker: "http://b",
        clock=asyncio.get_running_loop().time, now_ms=lambda: 0, on_ended=over.set_result,
    )  # fmt: skip
    runner.start(P0, Committing(ATTEMPT, Forced.SOURCE_LOST), ATTEMPT, Trigger.MEMBER_LEFT)
    running = asyncio.create_task(runner.run())
    try:
        async with asyncio.timeout(60):
            return await over
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("code", sorted(UNKNOWN_CODES))
async def test_a_commit_of_unknown_outcome_is_asked_for_again(code):
    brokers = Brokers(Answer(partition=P0, code=code), Answer(partition=P0, epoch=10))
    found = await ended(brokers)
    assert (found.is_committed, found.epoch, brokers.left) == (True, 10, [])
    assert found.forced is Forced.SOURCE_LOST


async def test_a_commit_that_is_refused_is_over():
    found = await ended(Brokers(Answer(partition=P0, code="attempt_refused")))
    assert not found.is_committed
