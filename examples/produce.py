"""Publish orders, each customer's in order.

    python examples/produce.py --url http://127.0.0.1:7411 --token TOKEN --count 1000

The partition key is the customer: all messages of one customer are stored, delivered and processed
in the order in which they were sent, whatever happens to brokers and consumers meanwhile.
"""

import argparse
import asyncio
import json

from partq import Message, NotStoredError, OutcomeUnknownError, Producer

CUSTOMERS = 20


def order(number: int) -> Message:
    """Return the message of one order."""
    customer = f"customer-{number % CUSTOMERS}"
    body = {"order": number, "customer": customer, "cents": 100 * number}
    return Message(customer, json.dumps(body).encode(), {"type": "order-placed"})


async def main(url: str, token: str, queue: str, count: int) -> None:
    """Publish one message, then the others as a list."""
    async with Producer(url, queue=queue, token=token, compression="lz4") as producer:
        # One message, and waiting until it is stored.
        first = order(0)
        partition, offset = await producer.send_and_wait(
            first.value, key=first.key, headers=first.headers
        )
        print(f"order 0 is at offset {offset} of partition {partition}")

        # Many messages: one future for all, which is faster. Awaiting the call waits only for
        # room (back-pressure), awaiting the future waits until they are stored.
        try:
            positions = await (await producer.send_many(order(n) for n in range(1, count)))
        except NotStoredError as error:
            print(f"send them again: {error}")
        except OutcomeUnknownError as error:
            print(f"they may or may not be there: {error}")
        else:
            used = {position.partition for position in positions}
            print(f"{len(positions)} more orders are stored, in {len(used)} partitions")
        # Leaving the block waits for whatever has no answer yet, and raises what nobody has seen.


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role produce")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--count", type=int, default=1000, help="messages to publish")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.count))
