"""Let several clerks share conversations, each at one clerk at a time, with its state.

    python examples/clerks.py --url http://127.0.0.1:7411 --publish TOKEN --consume TOKEN

The group has `type: Session`, and no other consumers. A session is all messages of one customer. A
clerk accepts one, works on its messages in order, leaves the running total as the state of the
session, and closes it. Clerk `ann` goes home in the middle of her first session, with an order in
her hands: that order is redelivered, and another clerk goes on with the total that she left.
"""

import argparse
import asyncio
from contextlib import suppress

from partq import Delivery, LockedSession, Message, NoSessionError, Producer, SessionConsumer

CUSTOMERS = [f"customer-{number}" for number in range(6)]
ORDERS = [10, 20, 30, 40]
CLERKS = ["ann", "bob", "cleo"]


class GoesHomeError(Exception):
    """The clerk stops working, without a word about the order that it processes."""


class Books:
    """What the clerks have done, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, str]] = []
        self.is_over = asyncio.Event()

    def note(self, message: Delivery, clerk: str) -> None:
        """Note an order that was processed."""
        self.done.append((str(message.key), int(message.value), clerk))
        if len(self.done) == len(ORDERS) * len(CUSTOMERS):
            self.is_over.set()


class Clerk:
    """One member of the group. Usually each runs in a separate process."""

    def __init__(self, name: str, place: dict[str, str], books: Books) -> None:
        self.name = name
        self.books = books
        self.consumer = SessionConsumer(**place, member=name, idle_s=0.5)

    async def work(self) -> None:
        """Accept one session after another until all is done."""
        async with self.consumer:
            while not self.books.is_over.is_set():
                with suppress(NoSessionError):
                    async with await self.consumer.accept(timeout_s=1) as session:
                        print(f"{self.name} has {session.session_id}", flush=True)
                        await self.serve(session)

    async def serve(self, session: LockedSession) -> None:
        """Process the orders of one customer; the state is what they have cost so far."""
        async for message in session:
            if self.name == "ann" and int(message.value) == ORDERS[1]:
                raise GoesHomeError
            total = int(await session.state() or b"0") + int(message.value)
            await session.ack(message, state=str(total).encode(), confirmed=True)
            self.books.note(message, self.name)


async def publish(url: str, token: str, queue: str) -> None:
    """Publish the orders, those of all customers in turn."""
    async with Producer(url, queue=queue, token=token) as producer:
        for order in ORDERS:
            await producer.send_many([Message(each, str(order).encode()) for each in CUSTOMERS])


async def main(url: str, publish_token: str, consume_token: str, queue: str, group: str) -> None:
    """Publish, let the clerks work, and say which clerk has processed what."""
    place = {"url": url, "queue": queue, "group": group, "token": consume_token}
    books = Books()
    await publish(url, publish_token, queue)
    clerks = [Clerk(name, place, books) for name in CLERKS]
    ended = await asyncio.gather(*(clerk.work() for clerk in clerks), return_exceptions=True)
    for clerk, error in zip(clerks, ended, strict=True):
        if isinstance(error, GoesHomeError):
            print(f"{clerk.name} has gone home", flush=True)
        elif error is not None:
            raise error
    async with SessionConsumer(**place, member="till") as till:
        for customer in CUSTOMERS:
            found = [f"{order} at {name}" for each, order, name in books.done if each == customer]
            async with await till.accept(customer) as session:
                total = (await session.state() or b"").decode()
            print(f"{customer}: {', '.join(found)}; in all {total}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--publish", required=True, help="a token with the role produce")
    arguments.add_argument("--consume", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="clerks")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.publish, given.consume, given.queue, given.group))
