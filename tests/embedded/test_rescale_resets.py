"""Resets of all partitions while their number changes: each key is repeated in its order."""

import asyncio
from collections import defaultdict

import aiohttp
import pytest

from partq.core.model import Cause
from partq.testing import eventually
from tests.embedded.test_rescale import KEYS, LAG, Admin, Group, Traffic, running, started


class RepeatingGroup(Group):
    """What a group has processed: after a message comes the next one, or any that came before."""

    def __init__(self):
        super().__init__()
        self.last = defaultdict(lambda: -1)

    def take(self, message):
        number, last = int(message.value), self.last[message.key]
        if number > last + 1:
            self.faults.append(
                f"{message.key} {number} of {message.partition} came after {last} was repeated"
            )
        self.last[message.key] = number
        super().take(message)


async def reset(admin):
    """Send a group back to the beginning; return whether all cursors were moved."""
    status, answer = await admin.call(
        "POST", "/v1/queues/orders/groups/workers/reset", admin.broker.tokens.admin,
        {"to": "earliest", "is_forced": True},
    )  # fmt: skip
    assert status == 200, answer
    return not any("error" in each for each in answer["partitions"].values())


@pytest.mark.chaos
async def test_resets_before_and_after_a_change():
    """A group without members keeps all messages in the logs."""
    async with started() as broker, aiohttp.ClientSession() as http:
        admin, traffic = Admin(broker, http), Traffic(broker, LAG)
        traffic.groups = defaultdict(RepeatingGroup)
        workers = traffic.groups["workers"]
        members = [traffic.consume("workers", "one"), traffic.consume("workers", "two")]
        await admin.is_spread()
        async with running(members):
            publishing = asyncio.create_task(traffic.publish())
            await traffic.goes_on()
            await admin.change(6)
            await reset(admin)
            await admin.has(6)
            await reset(admin)
            await traffic.goes_on()
            traffic.stopped.set()
            await publishing
            await traffic.is_all_consumed("workers", admin)
            await eventually(lambda: reset(admin), "all cursors are moved")

            def is_at_the_end():
                return all(workers.last[key] == traffic.published[key] - 1 for key in KEYS)

            await eventually(is_at_the_end, "all is repeated")
    assert workers.faults == []
    assert set(workers.repeats) == {Cause.RESET}
