"""See a message that fails hold up its own key, and no other key of its partition.

    python examples/blocked_key.py --url http://127.0.0.1:7411 --publish TOKEN --consume TOKEN

The group has `nack: {order: Key}`, and no other consumers. Four customers have five orders each.
The second order of one of them fails, is given back, and fails again, until somebody mends what it
needs. Here that is when the orders of all others are done, so in a group of another order this
program does not end: there, the others wait. Then the orders of that customer follow, in order.
"""

import argparse
import asyncio

from partq import Consumer, Delivery, Message, Producer

CUSTOMERS = ["ada", "ben", "cyd", "dee"]
ORDERS = 5
POISON = ("ada", "2")
RETRY_S = 0.2


class TryAgainLaterError(Exception):
    """Something that the message needs is not there."""


class Shop:
    """Processes orders; the address of one customer is unknown until somebody enters it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def process(self, message: Delivery) -> None:
        """Do the work for an order, or raise what may be over after some time."""
        customer, order = str(message.key), message.value.decode()
        others = sum(done_for != POISON[0] for done_for, _ in self.done)
        if (customer, order) == POISON and others < ORDERS * (len(CUSTOMERS) - 1):
            raise TryAgainLaterError(f"{customer}: order {order} has no address")
        self.done.append((customer, order))
        attempts = f", at attempt {message.redeliveries + 1}" if message.redeliveries else ""
        print(f"{customer}: order {order}{attempts}", flush=True)


async def publish(url: str, token: str, queue: str) -> None:
    """Publish the orders, those of all customers in turn."""
    async with Producer(url, queue=queue, token=token) as producer:
        for order in range(1, ORDERS + 1):
            await producer.send_many([Message(each, str(order).encode()) for each in CUSTOMERS])


async def consume(url: str, token: str, queue: str, group: str) -> Shop:
    """Process the orders of all customers."""
    shop, failures = Shop(), 0
    async with Consumer(url, queue=queue, group=group, token=token) as consumer:
        async for message in consumer:
            try:
                shop.process(message)
            except TryAgainLaterError as error:
                failures += 1
                if failures == 1:
                    print(f"{error}: it is given back, and the others continue", flush=True)
                await consumer.nack(message, delay_s=RETRY_S, reason="no_address")
            else:
                await consumer.ack(message)
            if len(shop.done) == ORDERS * len(CUSTOMERS):
                break
    return shop


async def main(url: str, publish_token: str, consume_token: str, queue: str, group: str) -> None:
    """Publish, consume, and say in which order it was done."""
    await publish(url, publish_token, queue)
    shop = await consume(url, consume_token, queue, group)
    for customer in CUSTOMERS:
        orders = [order for each, order in shop.done if each == customer]
        print(f"{customer}: orders {', '.join(orders)}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--publish", required=True, help="a token with the role produce")
    arguments.add_argument("--consume", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.publish, given.consume, given.queue, given.group))
