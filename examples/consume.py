"""Process orders, each customer's in order, beside other processes that do the same.

    python examples/consume.py --url http://127.0.0.1:7411 --token TOKEN

Start it twice: the partitions are shared. Stop one with Ctrl-C or SIGTERM: it finishes its current
messages, its partitions go to the other one, and no order is processed twice. Kill one with -9:
what it had in flight is redelivered to the other, with the reason.
"""

import argparse
import asyncio
import json

from partq import Cause, Consumer, Delivery, FencedError, PartitionId, PartqError


def assigned(partition: PartitionId) -> None:
    """Note that a partition is ours: load what its customers need."""
    print(f"partition {partition} is ours", flush=True)


def revoked(partition: PartitionId, cause: Cause) -> None:
    """Note that a partition is not ours any more: drop what is in memory for it."""
    print(f"partition {partition} went elsewhere ({cause.name.lower()})", flush=True)


def not_delivered(error: PartqError) -> None:
    """Note that messages do not decode: the broker keeps them, and the others continue.

    Without `on_error` the loop ends with this error, so that nobody misses it.
    """
    print(f"not processed: {error}", flush=True)


def process(message: Delivery) -> None:
    """Do the work. Here is where a database would be written.

    The token grows with every change of owner: a database that remembers the highest one per
    partition can refuse the writes of a process that was taken for dead.
    """
    order = json.loads(message.value)
    again = f", again ({message.cause.name.lower()})" if message.is_redelivered else ""
    print(f"{message.key}: order {order['order']}, {message.token}{again}", flush=True)


async def main(url: str, token: str, queue: str, group: str, stop_after: int | None) -> None:
    """Consume until Ctrl-C or SIGTERM, or until so many orders are done."""
    done = 0
    async with Consumer(
        url,
        queue=queue,
        group=group,
        token=token,
        on_assigned=assigned,
        on_revoked=revoked,
        on_error=not_delivered,
    ) as consumer:
        # On Ctrl-C and SIGTERM it continues until the partitions are taken over, and then ends.
        async for message in consumer:
            process(message)
            try:
                await consumer.ack(message)  # on its way; a refusal is raised by the next call
            except FencedError as error:
                print(f"another process does some of it again: {error}", flush=True)
            done += 1
            if done == stop_after:
                break
        # Leaving the block hands the partitions over.
    print(f"{done} orders processed", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    arguments.add_argument("--stop-after", type=int, help="orders to process; none: no end")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.group, given.stop_after))
