"""The numbers of a producer that are due, while the partition count changes."""

import asyncio

from partq.client.producer_state import producer_state
from partq.client.transport.layout import QueueLayout
from partq.client.transport.session import EarlierNumbers, ProducerProgress
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import commit, prepare
from tests.client.member import WAIT_S

OLD = PartitionId(1, 0)
URL = "http://broker-0"


class ChangingQueue:
    """A session of a queue that gets a second partition: the first one is sealed a moment later.

    Until then it stores messages under the numbers of before.
    """

    def __init__(self):
        self.layout = commit(prepare(Layout.first(1), 2), 1_700_000_000_000)
        self.stored = 3
        self.is_sealed = False
        self.looks = 0

    async def first_layout(self, timeout_s):
        return QueueLayout(
            "default", "orders", "0f3a9c1e", self.layout, {"broker-0": URL}, {}, 1, 1, "Random",
            frozenset(),
        )  # fmt: skip

    async def progress(self, url, producer, *, with_outlines):
        if producer == "task":
            self.looks += 1
            if self.looks == 2:
                self.stored, self.is_sealed = 5, True
        layouts = {
            each: 2 if self.is_sealed else each.generation for each in self.layout.table.slots
        }
        return {each: ProducerProgress(0, None, layout) for each, layout in layouts.items()}

    async def earlier_numbers(self, url, producer):
        return EarlierNumbers(2, {(OLD, 1): self.stored})


async def test_numbers_are_read_when_the_change_has_reached_each_partition():
    """Before, the old partition may store more of them."""
    queue = ChangingQueue()
    clock = asyncio.get_running_loop().time
    async with asyncio.timeout(WAIT_S):
        state = await producer_state(queue, "task", timeout_s=WAIT_S, clock=clock)
    assert [each.due for each in state.earlier] == [5]
    assert {each: at.layout for each, at in state.progress.items()} == {
        OLD: 2,
        PartitionId(2, 1): 2,
    }
