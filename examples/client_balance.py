"""Choose partitions in the application: partition i belongs to the node i mod the count of nodes.

The group needs `assignment: Client`. Start one process per node, each with its own --node:

    python examples/client_balance.py --url http://127.0.0.1:7411 --nodes 3 --node 0

The loop that assigns belongs to this program: it asks for the configured partitions, gives back
what is registered and not in its share, and registers what is missing. The share is computed from
all configured partitions, subscribable or not, so that no other partition moves while a broker is
away. What cannot be registered now is tried again in the next round.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Iterable

from partq import (
    ClientAssignedConsumer,
    FencedError,
    NotSubscribableError,
    PartitionInUseError,
    PartitionKey,
    PartqError,
)


def share_of(node: int, nodes: int, configured: Iterable[PartitionKey]) -> set[PartitionKey]:
    """Return what one of the nodes has: every partition exactly one of them."""
    return {key for place, key in enumerate(sorted(configured)) if place % nodes == node}


async def balance(consumer: ClientAssignedConsumer, node: int, nodes: int) -> None:
    """Make what is registered the node's share; what is in both is not touched."""
    configured = await consumer.query_partitions()
    share = share_of(node, nodes, configured)
    for key in sorted(consumer.registered - share):
        await consumer.unregister(key)
        print(f"released {key}", flush=True)
    for key in sorted(share - consumer.registered):
        if not configured[key].is_subscribable:
            print(f"cannot register {key}: {configured[key].reason}", flush=True)
            continue
        try:
            registration = await consumer.register(key)
            print(f"registered {key} from offset {registration.offset}", flush=True)
        except (NotSubscribableError, PartitionInUseError) as error:
            # Another node has not released it yet, or an administrator has marked it.
            print(f"cannot register {key}: {error}", flush=True)


async def keep_balanced(
    consumer: ClientAssignedConsumer, node: int, nodes: int, every_s: float
) -> None:
    """Look again and again: partitions appear, are lost with a connection, are marked and freed."""
    while not consumer.is_closed:
        try:
            await balance(consumer, node, nodes)
        except PartqError as error:
            print(f"looking again: {error}", flush=True)
        except RuntimeError:
            return  # it leaves
        await asyncio.sleep(every_s)


async def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("PARTQ_URL", "http://127.0.0.1:7411"))
    parser.add_argument("--token", default=os.environ.get("PARTQ_TOKEN"))
    parser.add_argument("--queue", default="orders")
    parser.add_argument("--group", default="workers")
    parser.add_argument("--member", help="a name that stays the same over restarts")
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes there are")
    parser.add_argument("--node", type=int, default=0, help="the number of this one, from 0")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two rounds")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    consumer = ClientAssignedConsumer(
        given.url,
        queue=given.queue,
        group=given.group,
        token=given.token,
        member=given.member or f"node-{given.node}",
        on_error=lambda error: print(f"not readable: {error}", flush=True),
    )
    async with consumer:
        await consumer.start(given.nodes, given.node)
        balancing = asyncio.create_task(
            keep_balanced(consumer, given.node, given.nodes, given.every)
        )
        async for batch in consumer.batches():
            for message in batch.deliveries():
                print(f"{batch.partition} {message.offset} {message.key}", flush=True)
            try:
                await consumer.confirm(batch)
            except FencedError as error:
                print(f"confirmed too late: {error}", flush=True)
        balancing.cancel()


if __name__ == "__main__":
    asyncio.run(main())
