"""Keep the total of each account, without a database: it is the state of the account's key.

    python examples/running_totals.py --url http://127.0.0.1:7411 --token TOKEN

Each message has a number as its value, and an account as its key. The total that the messages
before it have left is read, and the new one is stored with the ack, both or none. So a total counts
each message once: whichever process handles it, and however often one of them, or a broker, dies
between two messages or within one.

See the totals with `partq state list`, or `partq state get ACCOUNT`.
"""

import argparse
import asyncio

from partq import Consumer, Delivery, FencedError


async def main(url: str, token: str, queue: str, group: str) -> None:
    """Consume until Ctrl-C or SIGTERM."""
    async with Consumer(url, queue=queue, group=group, token=token) as consumer:

        async def add(message: Delivery) -> None:
            """Add the value of a message to the total of its account."""
            try:
                total = int(await message.state() or 0) + int(message.value)
                await consumer.ack(message, state=str(total).encode())
            except FencedError as error:
                print(f"some are redelivered elsewhere and change nothing: {error}", flush=True)
            else:
                print(f"{message.key}: {total}", flush=True)

        await consumer.run(add, concurrency=8)  # several accounts at once, each in its order


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--token", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.token, given.queue, given.group))
