"""The reader of `partq.sync` against a real broker."""

import asyncio
from itertools import islice

import pytest

from partq import PartitionId, ReaderInterceptor, SettingsError
from partq.client.reader import Reader as AsyncReader
from partq.sync import Producer, Reader
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0
VALUES = [b"v%d" % number for number in range(6)]


@pytest.fixture(scope="module")
def local():
    with LocalBroker(groups=[], partitions=1) as broker:
        with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            for value in VALUES:
                producer.send_and_wait(value, key="k")
        yield broker


def reader_of(local, **options):
    return Reader(local.url, "orders", token=local.tokens.consume, **options)


class Heard(ReaderInterceptor):
    def __init__(self):
        self.values = []

    def on_read(self, message):
        self.values.append(message.value)
        raise ValueError("an interceptor that fails")


def test_it_reads_seeks_and_tells_its_interceptors(local):
    heard = Heard()
    with reader_of(local, interceptors=[heard]) as reader:
        assert [next(reader).value for _ in VALUES] == VALUES
        assert list(reader.messages(timeout_s=0)) == []
        (partition,) = reader.positions()
        reader.seek({partition: 4})
        found = islice(reader.messages(timeout_s=WAIT_S), 2)
        assert [each.value for each in found] == VALUES[4:]
        with pytest.raises(SettingsError, match="timeout_s"):
            next(reader.messages(timeout_s=-1))
    assert heard.values == VALUES + VALUES[4:]
    with pytest.raises(RuntimeError, match="the reader was closed"):
        next(reader)


def test_what_an_interrupted_call_had_taken_is_returned_by_the_next_one(local):
    with reader_of(local) as reader:
        made = reader._portal.handout(reader._inner.read_next, reader._inner.put_back)
        assert made.result().message.value == VALUES[0]
        made.interrupt()
        made.interrupt()
        assert next(reader).value == VALUES[0]
        assert next(reader).value == VALUES[1]
        (place,) = reader.positions().values()
        assert place.offset == 2


async def test_what_is_put_back_is_read_again_also_after_a_failure_but_not_after_a_seek(local):
    partition = PartitionId(1, 0)
    async with (
        asyncio.timeout(WAIT_S),
        AsyncReader(local.url, "orders", token=local.tokens.consume) as reader,
    ):
        first = await reader.read_next()
        reader._followers[partition].messages.clear()
        reader._followers[partition].error = OSError("the connection broke")
        with pytest.raises(OSError, match="broke"):
            await reader.read_next()
        reader.put_back(first)
        again = await reader.read_next()
        assert again.message.value == VALUES[0]
        await reader.seek({partition: 3})
        reader.put_back(again)
        assert (await reader.read_next()).message.value == VALUES[3]


def test_an_interceptor_of_another_kind_is_refused(local):
    with pytest.raises(SettingsError, match="ReaderInterceptor"):
        reader_of(local, interceptors=[object()])
