"""A member that chooses its partitions, in the process of a test or in one of its own."""

import asyncio
import sys
from contextlib import suppress

from partq import ClientAssignedConsumer, FencedError, PartitionId, PartqError
from partq.aio import TaskSet

ROUND_S = 0.2


def member_of(url, token, name):
    return ClientAssignedConsumer(
        url, queue="orders", group="chosen", token=token, member=name, handle_signals=False,
        leave_timeout_s=5.0, max_processing_s=0,
    )  # fmt: skip


async def work(consumer, places, limit=None):
    """Have partitions registered, and acknowledge what comes; behind `limit` it stays in hand."""
    keeping = TaskSet()
    keeping.start(_keep(consumer, places))
    done = 0
    try:
        async for delivery in consumer:
            if limit is None or done < limit:
                with suppress(FencedError):  # its broker was killed: the message comes again
                    await delivery.ack()
                done += 1
    finally:
        await keeping.close()


async def _keep(consumer, places):
    """Register again what was lost, for as long as it takes; what is held stays as it is."""
    while True:
        with suppress(PartqError):
            for place in places:
                await consumer.register(place)
        await asyncio.sleep(ROUND_S)


async def _run(url, token, name, limit, *places):
    async with member_of(url, token, name) as consumer:
        await consumer.start()
        limit = int(limit) if limit else None
        await work(consumer, [PartitionId.parse(each) for each in places], limit)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
