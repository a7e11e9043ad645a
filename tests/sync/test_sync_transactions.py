"""Transactions of `partq.sync`: all messages are stored, or none."""

import asyncio

import pytest

from partq import TransactionOverKeysError
from partq.sync import Producer
from partq.testing.local_broker import LocalBroker


@pytest.fixture
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(partitions=1)
        runner.run(broker.__aenter__())
        yield broker
        runner.run(broker.__aexit__(None, None, None))


def test_a_block_stores_all_of_its_messages_or_none(local):
    with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:

        def wrong():
            with producer.transaction(key="a") as tx:
                tx.send(b"1")
                tx.send(b"2", key="b")

        with pytest.raises(TransactionOverKeysError, match="message 1 has the key 'b'"):
            wrong()
        with producer.transaction(session_id="a") as tx:
            tx.send(b"3")
            tx.send(b"4", headers={"n": "4"})
        assert [offset for _, offset in tx.positions] == [0, 1]
