"""The seeks of one consumer: one after the other, each until its last answer."""

import asyncio
from collections.abc import Iterable

from partq.aio import TaskSet
from partq.client.consume.flow_set import FlowSet
from partq.client.consume.membership import Membership
from partq.client.transport.positions import SeekWhere, seek_places
from partq.core.model import PartitionId


class ConsumerSeeks:
    """Has cursors moved in the partitions that a consumer has.

    A broker ends the assignment before it answers, so the next seek has to wait for that answer
    even if the caller of the first one has gone: until then the partition may have no assignment,
    though the consumer keeps it.
    """

    def __init__(self, membership: Membership, flows: FlowSet) -> None:
        self._membership = membership
        self._flows = flows
        self._is_under_way = asyncio.Lock()
        self._waits = TaskSet()

    async def seek(self, where: SeekWhere) -> dict[PartitionId, int]:
        """Move the cursors, and return where they are; raises as `Consumer.seek`.

        A call that is cancelled before its turn sends nothing; later, the cursors are moved.
        """
        await self._is_under_way.acquire()
        try:
            held = {each.partition: each for each in self._membership.assigned}
            places = seek_places(where, held)
            answers = self._flows.seek({held[each]: place for each, place in places.items()})
        except BaseException:
            self._is_under_way.release()
            raise
        waiting = self._waits.start(_all_done(answers.values()), "partq-seek")
        waiting.add_done_callback(lambda _: self._is_under_way.release())
        await asyncio.shield(waiting)
        return {partition: answer.result() for partition, answer in answers.items()}


async def _all_done(answers: Iterable[asyncio.Future[int]]) -> None:
    await asyncio.wait(list(answers))
