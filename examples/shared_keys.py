"""See several consumers work on one partition, each customer's orders at one of them at a time.

    python examples/shared_keys.py --url http://127.0.0.1:7411 --publish TOKEN --consume TOKEN

The group has `type: KeyShared`, and no other consumers. Three workers share the orders of twelve
customers, whatever the number of partitions: in a group of the default type a queue of one
partition would have work for one of them. One worker leaves when it has processed five orders. Its
customers continue at the others, each with the next order.
"""

import argparse
import asyncio
from contextlib import AsyncExitStack

from partq import Consumer, Delivery, Message, PartitionId, Producer

CUSTOMERS = [f"customer-{number:02d}" for number in range(12)]
ORDERS = 4
WORKERS = ["ann", "bob", "cleo"]
LEAVES, LEAVES_AFTER = "ann", 5
WORK_S = 0.02


class Shift:
    """What the workers have processed, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, str]] = []
        self.is_over = asyncio.Event()

    def note(self, message: Delivery, worker: str) -> None:
        """Note an order that was processed."""
        self.done.append((str(message.key), int(message.value), worker))
        if len(self.done) == ORDERS * len(CUSTOMERS):
            self.is_over.set()


class Worker:
    """One member of the group. Usually each runs in a separate process."""

    def __init__(self, name: str, place: dict[str, str], shift: Shift) -> None:
        self.name = name
        self.has_keys = asyncio.Event()
        self.shift = shift
        self.consumer = Consumer(**place, member=name, on_lanes=self.note)

    def note(self, partition: PartitionId, ranges: list[tuple[int, int]]) -> None:
        """Tell which slots of a partition are this worker's; the hash of a key is its slot."""
        slots = sum(stop - first for first, stop in ranges)
        print(f"{self.name} has {slots:,} slots of partition {partition}", flush=True)
        self.has_keys.set()

    async def work(self) -> None:
        """Process orders until all are done, or this worker leaves."""
        mine = 0
        async for message in self.consumer:
            await asyncio.sleep(WORK_S)
            self.shift.note(message, self.name)
            await self.consumer.ack(message, confirmed=True)
            mine += 1
            if self.name == LEAVES and mine == LEAVES_AFTER:
                print(f"{self.name} leaves", flush=True)
                break
        # To leave is to give back what was not begun: it goes to the others at once.
        await self.consumer.close()


async def publish(url: str, token: str, queue: str) -> None:
    """Publish the orders, those of all customers in turn."""
    async with Producer(url, queue=queue, token=token) as producer:
        for order in range(1, ORDERS + 1):
            await producer.send_many([Message(each, str(order).encode()) for each in CUSTOMERS])


async def main(url: str, publish_token: str, consume_token: str, queue: str, group: str) -> None:
    """Publish, let the workers share the orders, and say who has processed what."""
    place = {"url": url, "queue": queue, "group": group, "token": consume_token}
    shift = Shift()
    workers = [Worker(name, place, shift) for name in WORKERS]
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.consumer)
        await asyncio.gather(*(worker.has_keys.wait() for worker in workers))
        await publish(url, publish_token, queue)
        tasks = [asyncio.create_task(worker.work()) for worker in workers]
        await shift.is_over.wait()
        for worker in workers:
            worker.consumer.leave()
        await asyncio.gather(*tasks)
    for customer in CUSTOMERS:
        found = [f"{order} at {name}" for each, order, name in shift.done if each == customer]
        print(f"{customer}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--publish", required=True, help="a token with the role produce")
    arguments.add_argument("--consume", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.publish, given.consume, given.queue, given.group))
