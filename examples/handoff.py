"""See one partition pass from one consumer to another in the middle of its messages.

    python examples/handoff.py --url http://127.0.0.1:7411 --publish TOKEN --consume TOKEN

Two keys in two partitions, both at consumer `one`, which processes messages 1 and 2 of each when
consumer `two` joins. One of the partitions moves: `one` finishes and acknowledges these, and gets
no more of it; message 3, which is stored, 4, which is published meanwhile, and 5 go to `two`. The
other key does not notice. Nothing is processed twice. The group must have no other consumers.
"""

import argparse
import asyncio
from itertools import count

from partq import Consumer, Delivery, Producer

LAST = 5


async def publish(producer: Producer, keys: list[str], number: int) -> None:
    """Publish one message for each key; return when they are stored."""
    for key in keys:
        await producer.send_and_wait(str(number).encode(), key=key)


async def take(consumer: Consumer, messages: int) -> list[Delivery]:
    """Take so many messages, and acknowledge none of them yet."""
    taken = [await anext(consumer) for _ in range(messages)]
    for message in taken:
        again = f", again ({message.cause.name.lower()})" if message.is_redelivered else ""
        print(f"{consumer.member} has {message.key} {message.value.decode()}{again}", flush=True)
    return taken


async def ack(consumer: Consumer, messages: list[Delivery]) -> None:
    """Acknowledge; return when the acks are stored."""
    await asyncio.gather(*(consumer.ack(message, confirmed=True) for message in messages))


def two_keys(producer: Producer) -> list[str]:
    """Return two keys that live in different partitions."""
    first = "key-0"
    names = (f"key-{number}" for number in count(1))
    home = producer.partition_of(first)
    return [first, next(name for name in names if producer.partition_of(name) != home)]


async def main(url: str, publish_token: str, consume_token: str, queue: str, group: str) -> None:
    """Tell the story."""

    def member(name: str) -> Consumer:
        return Consumer(url, queue=queue, group=group, token=consume_token, member=name)

    async with Producer(url, queue=queue, token=publish_token) as producer, member("one") as one:
        keys = two_keys(producer)
        in_hand = []
        for number in (1, 2):
            await publish(producer, keys, number)
            in_hand += await take(one, len(keys))
        await publish(producer, keys, 3)
        async with member("two") as two:
            await publish(producer, keys, 4)
            await ack(one, in_hand)
            moved = await take(two, 1)
            await publish(producer, keys, LAST)
            moved += await take(two, LAST - 3)
            await ack(two, moved)
            await ack(one, await take(one, LAST - 2))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--publish", required=True, help="a token with the role produce")
    arguments.add_argument("--consume", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="workers")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.publish, given.consume, given.queue, given.group))
