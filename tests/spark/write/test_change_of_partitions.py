"""Attempts of one task while the partition count of its queue changes: each row is stored once."""

import asyncio
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from partq import LogReader
from partq.errors import ConflictError, NotStoredError
from partq.spark.write import batcher
from partq.spark.write.numbering import TaskId
from partq.spark.write.sink import Sink
from partq.spark.write.sink_columns import write_columns
from partq.spark.write.sink_options import write_options
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire import batch
from tests.client.test_change_with_brokers import change

SCHEMA = StructType([StructField("value", BinaryType()), StructField("key", StringType())])
ROWS, PER_BATCH = 3000, 100
TASK = TaskId("spark-write:w:0", "task 0", is_repeatable=True)


class GaveUpError(Exception):
    """What ends an attempt in the middle."""


class Stage:
    """A queue, and attempts to write the rows of the task to it."""

    def __init__(self, local, reader):
        self.local = local
        self.reader = reader
        self.loop = asyncio.get_running_loop()

    async def attempt(self, *, stop=ROWS, then=None):
        """Write; in the middle, when some of the rows before it are stored, await `then`.

        `stop`: at this row it gives up.
        """
        given = {
            "url": self.local.url, "queue": "orders", "token": self.local.tokens.produce,
            "writeId": "w",
        }  # fmt: skip
        sink = Sink(write_options(given, is_stream=False), write_columns(SCHEMA))
        stored = len(await self.stored())

        async def middle():
            async def are_stored():
                return len(await self.stored()) > stored

            await eventually(are_stored, "some rows are stored")
            if then is not None:
                await then()

        def rows():
            for first in range(0, ROWS, PER_BATCH):
                if first >= stop:
                    raise GaveUpError
                if first == stop - PER_BATCH and (stop < ROWS or then is not None):
                    asyncio.run_coroutine_threadsafe(middle(), self.loop).result()
                yield batch_of(range(first, first + PER_BATCH))

        return await asyncio.to_thread(sink.write, rows(), TASK)

    async def change(self, count, generation):
        """Change the partition count, and wait until that is in force."""

        async def is_in_force():
            return (await self.reader.layout()).generation == generation

        await change(self.local, count)
        await eventually(is_in_force, "the change is in force")

    async def stored(self):
        """Return key and number of all rows that are stored, of a key in their order."""
        found = []
        for partition in await self.reader.partitions():
            async for each in self.reader.entries(partition, 0):
                found += [(m.key, int(m.value)) for m in batch.decode(each.data)]
        return found


def batch_of(numbers):
    return pa.RecordBatch.from_pydict(
        {
            "value": [b"%d" % n for n in numbers],
            "key": [f"k{n % 37}" if n % 5 else None for n in numbers],
        },
        schema=pa.schema([("value", pa.binary()), ("key", pa.string())]),
    )


@pytest.fixture(params=["Random", "RoundRobin"])
async def stage(request, monkeypatch):
    monkeypatch.setattr(batcher, "MAX_BATCH_MESSAGES", 20)
    spec = {"keylessPolicy": request.param}
    async with (
        LocalBroker(queue="orders", partitions=4, broker_count=2, spec=spec) as local,
        LogReader(local.url, queue="orders", token=local.tokens.admin) as reader,
    ):
        yield Stage(local, reader)


async def test_each_row_is_stored_once_whatever_the_attempts_know(stage):
    with pytest.raises(GaveUpError):
        await stage.attempt(stop=1500)
    await stage.change(6, 2)
    with pytest.raises(GaveUpError):
        await stage.attempt(stop=2500)
    with pytest.raises(NotStoredError, match="partition count of the queue has changed") as caught:
        await stage.attempt(then=lambda: stage.change(3, 3))
    assert caught.value.is_retryable
    written = await stage.attempt()
    assert 0 < written.skipped_count < written.row_count == ROWS
    again = await stage.attempt()
    assert (again.row_count, again.skipped_count) == (ROWS, ROWS)
    found = await stage.stored()
    assert Counter(number for _, number in found) == Counter(range(ROWS))
    for key in {key for key, _ in found if key is not None}:
        numbers = [number for each, number in found if each == key]
        assert numbers == sorted(numbers)


async def test_rows_that_are_others_than_before_the_change_are_found(stage, monkeypatch):
    with pytest.raises(GaveUpError):
        await stage.attempt(stop=2500)
    await stage.change(6, 2)
    monkeypatch.setattr(f"{__name__}.ROWS", 2 * PER_BATCH)
    with pytest.raises(ConflictError, match="rows of partition 1"):
        await stage.attempt()
