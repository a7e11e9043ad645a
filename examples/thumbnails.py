"""See several workers share the jobs of a queue, each job at whichever worker has room for it.

    python examples/thumbnails.py --url http://127.0.0.1:7411 --publish TOKEN --consume TOKEN

The group has `type: Shared`, and no other consumers. Any worker gets any job, whatever the number
of partitions, so a worker that is new has work at once. One job fails the first time: it alone is
repeated, by whichever worker is next. Worker `ann` leaves when it has done three jobs. What it has
not begun goes to the others.
"""

import argparse
import asyncio
from contextlib import AsyncExitStack

from partq import Consumer, Delivery, Message, PartitionId, Producer

IMAGES = [f"image-{number:02d}" for number in range(24)]
FAILS = "image-05"
WORKERS = ["ann", "bob", "cleo"]
LEAVES, LEAVES_AFTER = "ann", 3
WORK_S = 0.02


class Album:
    """Which worker has done which image, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.is_over = asyncio.Event()

    def note(self, image: str, worker: str) -> None:
        """Note an image that is done."""
        self.done.append((image, worker))
        if len(self.done) == len(IMAGES):
            self.is_over.set()


class Worker:
    """One member of the group. Usually each runs in a separate process."""

    def __init__(self, name: str, place: dict[str, str], album: Album) -> None:
        self.name = name
        self.album = album
        self.is_ready = asyncio.Event()
        # A small credit: what a worker has buffered waits for it, and for no other one.
        self.consumer = Consumer(**place, member=name, credit=2, on_assigned=self.note)

    def note(self, _: PartitionId) -> None:
        """Note that this worker may get messages."""
        self.is_ready.set()

    async def work(self) -> None:
        """Do one image after another until all are done, or this worker leaves."""
        mine = 0
        async for message in self.consumer:
            await asyncio.sleep(WORK_S)
            if self.fails(message):
                print(f"{FAILS} has failed at {self.name}", flush=True)
                await self.consumer.nack(message, delay_s=0)
                continue
            if message.redeliveries:
                print(f"{message.key} is repeated by {self.name}", flush=True)
            await self.consumer.ack(message, confirmed=True)
            self.album.note(str(message.key), self.name)
            mine += 1
            if self.name == LEAVES and mine == LEAVES_AFTER:
                print(f"{self.name} leaves", flush=True)
                break
        # To leave is to give back what was not begun: it goes to the others at once.
        await self.consumer.close()

    def fails(self, message: Delivery) -> bool:
        """Return whether a job fails: one of them does, the first time."""
        return message.key == FAILS and not message.redeliveries


async def publish(url: str, token: str, queue: str) -> None:
    """Publish the jobs."""
    async with Producer(url, queue=queue, token=token) as producer:
        await (await producer.send_many([Message(each, b"resize") for each in IMAGES]))


async def main(url: str, publish_token: str, consume_token: str, queue: str, group: str) -> None:
    """Publish, let the workers share the jobs, and say who has done what."""
    place = {"url": url, "queue": queue, "group": group, "token": consume_token}
    album = Album()
    workers = [Worker(name, place, album) for name in WORKERS]
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.consumer)
        await asyncio.gather(*(worker.is_ready.wait() for worker in workers))
        await publish(url, publish_token, queue)
        tasks = [asyncio.create_task(worker.work()) for worker in workers]
        await album.is_over.wait()
        for worker in workers:
            worker.consumer.leave()
        await asyncio.gather(*tasks)
    for name in WORKERS:
        found = [image for image, each in album.done if each == name]
        print(f"{name}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:7411", help="any broker")
    arguments.add_argument("--publish", required=True, help="a token with the role produce")
    arguments.add_argument("--consume", required=True, help="a token with the role consume")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--group", default="thumbnails")
    given = arguments.parse_args()
    asyncio.run(main(given.url, given.publish, given.consume, given.queue, given.group))
