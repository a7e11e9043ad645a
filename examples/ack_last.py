"""Process orders as a whole, without a database: acknowledge an order when it is complete.

    python examples/ack_last.py --url http://127.0.0.1:7411 --token TOKEN

Every message is one line of an order: `{"line": 0, "lines": 3, "cents": 500}`, with the order as
its key. Lines are kept in memory until the last one is there; then the order is processed, and all
its messages are acknowledged. When the partition moves before that, the order is redelivered from
its first line, to the consumer that has the partition then.

The queue's `limits.maxUnackedPerFlow` has to be above the lines of all orders that are open at a
time, else nothing comes any more. A partition with open orders is not drained: it moves when
`rebalance.maxHandoffSeconds` is over, so keep that short.
"""

import argparse
import asyncio
import json
from collections import defaultdict

from partq import Cause, Consumer, Delivery, FencedError, PartitionId, PartqError


class Orders:
    """Orders that are not complete yet, in memory."""

    def __init__(self) -> None:
        self.open: dict[PartitionId, dict[str, list[Delivery]]] = defaultdict(dict)
        self.complete: list[str] = []
        self.headless: list[str] = []
        """Orders whose first lines did not come here."""

    def forget(self, partition: PartitionId, cause: Cause) -> None:
        """Drop what was gathered of a partition that is not ours any more: it is redelivered."""
        lines = sum(map(len, self.open.pop(partition, {}).values()))
        print(f"partition {partition}: {lines} lines go ({cause.name.lower()})", flush=True)

    def add(self, message: Delivery) -> list[Delivery]:
        """Add a line to its order; return what may be acknowledged now."""
        key = message.key or ""
        line = json.loads(message.value)
        orders = self.open[message.partition]
        gathered = [m for m in orders.pop(key, []) if m.offset < message.offset]
        if len(gathered) != line["line"]:
            # It does not begin at its beginning: it is older than the group, or expired. It can
            # never be complete; what to do with it is the application's to decide.
            self.headless.append(key)
            print(f"{key}: begins at line {line['line']}", flush=True)
            return [*gathered, message]
        gathered.append(message)
        if len(gathered) < line["lines"]:
            orders[key] = gathered
            return []
        cents = sum(json.loads(m.value)["cents"] for m in gathered)
        print(f"{key}: complete, {line['lines']} lines, {cents} cents", flush=True)
        self.complete.append(key)
        return gathered


def not_delivered(error: PartqError) -> None:
    """Note that messages do not decode: the broker keeps them, and the others continue.

    Without `on_error` the loop ends with this error, so that nobody misses it.
    """
    print(f"not processed: {error}", flush=True)


async def process(consumer: Consumer, orders: Orders) -> None:
    """Consume until the consumer has left."""
    async for message in consumer:
        try:
            await asyncio.gather(*(consumer.ack(done) for done in orders.add(message)))
        except FencedError as error:
            print(f"another process does it again: {error}", flush=True)


async def main(url: str, token: str, queue: str, group: str) -> None:
    """Consume until Ctrl-C or SIGTERM."""
    orders = Orders()
    async with Consumer(
        url,
        queue=queue,
        group=group,
        token=token,
        on_revoked=orders.forget,
        on_error=not_delivered,
    ) as consumer:
        await process(consumer, orders)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.group))
