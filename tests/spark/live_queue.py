"""A real queue beside Spark: Spark's calls block, so the queue has a thread of its own."""

import asyncio
import shutil
import threading
from contextlib import contextmanager

from partq import Producer
from partq.client.log_reader import LogReader
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares


class LiveQueue:
    """A `LocalBroker` for tests that are not asynchronous."""

    def __init__(self, loop, broker, name):
        self._loop = loop
        self.broker = broker
        self.name = name

    def run(self, call, timeout_s=60):
        """Wait for a coroutine on the queue's thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(timeout_s)

    def options(self, token=None, **more):
        """Return the options of a read."""
        given = {"url": self.broker.url, "queue": self.name, **more}
        return given | {"token": token or self.broker.tokens.consume}

    def publish(self, values, *, size=0, **producer):
        """Publish numbers as texts, filled up to a size, in their order; returns their places."""
        return self.run(self._publish(values, size, producer))

    async def _publish(self, values, size, producer):
        async with Producer(
            self.broker.url, queue=self.name, token=self.broker.tokens.produce, **producer
        ) as open_producer:
            sent = [
                await open_producer.send(
                    b"%d" % value + b" " * size,
                    key=f"key-{value % 10}",
                    headers={"n": str(value)},
                )
                for value in values
            ]
            return [await each for each in sent]

    def reading(self, call):
        """Wait for what `call` asks of a `LogReader`."""

        async def run():
            async with LogReader(
                self.broker.url, queue=self.name, token=self.broker.tokens.consume
            ) as reader:
                return await call(reader)

        return self.run(run())

    def roll_back(self, copy):
        """Start Redis on a copy of its older files: what was stored since is lost."""
        self.run(self._roll_back(copy))

    async def _roll_back(self, copy):
        redis, data = self.broker.runtime.redis, self.broker.runtime.data_dir / "redis"
        await redis.stop()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        await redis.start()

    def cursors(self, group):
        """Return a group's cursors by partition, as text."""
        found = self.reading(lambda reader: reader.positions({"group": group}))
        return {str(partition): each.offset for partition, each in found.items()}

    def trim_to(self, partition, offset):
        """Have every group be done with what is below an offset; returns what is stored then."""

        async def trim(reader):
            position = await reader.positions({"offsets": {partition: offset}})
            for group in self.broker.queue.groups:
                await reader.commit(group, position)

            async def first():
                (bounds,) = (await reader.bounds([partition])).values()
                return bounds.first

            return await eventually(first, f"{partition} is trimmed", interval_s=0.02)

        return self.reading(trim)


@contextmanager
def live_queue(**settings):
    """Run a queue until the end of the `with`; settings as of `LocalBroker`.

    Of several brokers each has its share at the beginning.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        broker = LocalBroker(**settings)
        asyncio.run_coroutine_threadsafe(broker.__aenter__(), loop).result(60)
        try:
            asyncio.run_coroutine_threadsafe(even_shares(broker.queue), loop).result()
            yield LiveQueue(loop, broker, settings.get("queue", "orders"))
        finally:
            asyncio.run_coroutine_threadsafe(broker.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
