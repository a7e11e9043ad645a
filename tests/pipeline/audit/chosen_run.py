"""A real run to audit whose members choose their partitions; one is lost, and a broker killed."""

import asyncio
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from partq import PartitionId
from partq.errors import PartqError
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares
from tests.pipeline.audit.choosing_member import member_of, work
from tests.pipeline.audit.real_run import COUNT, HOLDING, publish, read

CHOSEN = 4
"""Generation under which the partitions of this run stand in the archive."""
GROUP = "chosen"
WAIT_S = 280
LIMIT = 20
MINE = [PartitionId(1, 0), PartitionId(1, 1)]
OTHERS = [PartitionId(1, 2), PartitionId(1, 3)]


async def chosen_run():
    """Return every partition's record and messages."""
    chosen = {"assignment": "Client", "rebalance": {"delaySeconds": 2}}
    async with LocalBroker(
        partitions=4,
        groups={GROUP: chosen, HOLDING: {}},
        broker_count=2,
        spec={"audit": True},
        lease_ttl_s=3.0,
    ) as broker:
        await even_shares(broker.queue)
        await publish(broker, 0)
        async with member_of(broker.url, broker.tokens.consume, "staying") as consumer:
            await consumer.start()
            async with process_of(broker, "lost", limit=LIMIT):
                await seen(
                    consumer,
                    lambda rows: sum(rows[each].cursor for each in OTHERS) >= LIMIT,
                    "the other member has acknowledged some, and has more in hand",
                )
            await choose(consumer)
            await seen(
                consumer,
                lambda rows: not any(rows[each].member for each in OTHERS),
                "what the lost member held is free",
            )
            async with process_of(broker, "lost"):
                working = asyncio.create_task(work(consumer, MINE))
                await publish(broker, COUNT)
                await done(consumer)
                await broker.queue.brokers[0].kill()
                await publish(broker, 2 * COUNT)
                await done(consumer)
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        return await read(broker, CHOSEN)


async def choose(consumer):
    """Register and unregister: with messages in hand, with none, and at another offset."""
    first, second = MINE
    await consumer.register(first)
    await taken(consumer, first)
    await consumer.unregister(first, timeout_s=0)
    await consumer.register(first)
    await consumer.confirm(await taken(consumer, first))
    await consumer.register(second)
    await consumer.confirm(await taken(consumer, second))
    await consumer.unregister(second, timeout_s=WAIT_S)
    await consumer.register(second, offset=0)


async def taken(consumer, place):
    async with asyncio.timeout(WAIT_S):
        while (batch := await consumer.get(place)) is None:
            pass
    return batch


async def done(consumer):
    await seen(
        consumer,
        lambda rows: all(each.state == "Ready" and not each.lag for each in rows.values()),
        "all is acknowledged",
    )


async def seen(consumer, condition, what):
    """Wait until what the brokers show of the partitions is so."""

    async def is_so():
        try:
            rows = await consumer.query_partitions()
        except PartqError:
            return False
        return condition({key.partition: each for key, each in rows.items()})

    await eventually(is_so, what, timeout_s=WAIT_S, interval_s=0.1)


@asynccontextmanager
async def process_of(broker, member, limit=""):
    """Run a member that chooses the other partitions, and kill it."""
    given = (broker.url, broker.tokens.consume, member, str(limit), *map(str, OTHERS))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.pipeline.audit.choosing_member", *given),
        cwd=Path(__file__).parents[3],
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself
            process.kill()
        await process.wait()
