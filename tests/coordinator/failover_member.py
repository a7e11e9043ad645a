"""A consumer of a Failover group as a process: prints what it is told, acknowledges each message.

Arguments: URL, queue, group, token, name of the member, priority.
"""

import asyncio
import json
import sys

from partq import Consumer, PartitionId


def tell(what: str, partition: PartitionId, value: str = "") -> None:
    """Print one fact as a line of JSON."""
    sys.stdout.write(json.dumps([what, str(partition), value]) + "\n")
    sys.stdout.flush()


async def consume(url: str, queue: str, group: str, token: str, name: str, priority: str) -> None:
    """Consume until the process ends."""
    async with Consumer(
        url,
        queue=queue,
        group=group,
        token=token,
        member=name,
        priority=int(priority),
        on_active=lambda partition: tell("active", partition),
        on_inactive=lambda partition: tell("inactive", partition),
    ) as consumer:
        async for message in consumer:
            tell(message.cause.name, message.partition, message.value.decode())
            await consumer.ack(message, confirmed=True)


if __name__ == "__main__":
    asyncio.run(consume(*sys.argv[1:]))
