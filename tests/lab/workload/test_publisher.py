"""The publisher of demo and chaos continues where it was when it is started again."""

from partq import Producer
from partq.lab.workload.publisher import ConfirmationJournal, publish
from partq.lab.workload.synthetic import generate, key_names
from partq.testing.local_broker import LocalBroker
from tests.client.produce.deterministic.test_across_changes import reached
from tests.client.test_change_with_brokers import change

KEYS = key_names("p-1", 7)
UNKNOWN = -1
"""The offset of what an earlier process has stored."""


class Rows(list):
    """What the journal was told."""

    def write(self, *rows):
        self.extend(rows)


async def test_a_publisher_that_is_started_again_after_a_change_publishes_the_rest():
    async with LocalBroker(partitions=2) as local:

        async def start(messages):
            rows = Rows()
            async with Producer(
                local.url, queue="orders", token=local.tokens.produce, producer_id="p-1"
            ) as producer:
                events = generate(KEYS, messages=messages, size_bytes=20)
                await publish(producer, events, ConfirmationJournal(rows), None)
            return [(row.key, row.number, row.offset == UNKNOWN) for row in rows]

        stored = {(key, number) for key, number, _ in await start(20)}
        await change(local, 3)
        await reached(local, 2)
        rows = await start(50)
        assert {(key, number) for key, number, was_stored in rows if was_stored} == stored
        assert len({row[:2] for row in rows}) == len(rows) == 50
