"""A reader of logs as they are stored, on a real broker and Redis."""

from partq import PartitionId, Producer
from partq.client.log_reader import LogReader
from partq.client.producer_state import producer_due
from partq.testing.local_broker import LocalBroker
from partq.wire import batch

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


async def test_everything_is_read_once_and_the_cursors_follow():
    async with LocalBroker(partitions=2, groups=["workers", "lake"]) as local:
        open_as = {"url": local.url, "queue": "orders"}
        async with Producer(
            **open_as, token=local.tokens.produce, producer_id="p", max_batch_count=7
        ) as producer:
            stored = [await producer.send(b"%d" % n, key=f"k{n}") for n in range(50)]
            places = [await each for each in stored]
        # Each answer holds one batch.
        async with LogReader(**open_as, token=local.tokens.consume, fetch_bytes=1) as reader:
            assert await reader.partitions() == [P0, P1]
            ends = await reader.positions("latest")
            seen = {}
            for partition, end in ends.items():
                at = 0
                async for each in reader.entries(partition, 0, end):
                    assert each.first == at
                    at += each.count
                    values = [message.value for message in batch.decode(each.data)]
                    seen |= {(partition, each.first + n): v for n, v in enumerate(values)}
                assert at == end.offset == end.end
            assert seen == {(place.partition, place.offset): b"%d" % n
                            for n, place in enumerate(places)}  # fmt: skip
            wanted = {partition: end.offset for partition, end in ends.items()}
            assert await reader.commit("lake", ends) == wanted
            cursors = await reader.positions({"group": "lake"})
            assert {partition: each.offset for partition, each in cursors.items()} == wanted
            assert {
                each.offset for each in (await reader.positions({"group": "workers"})).values()
            } == {0}
            assert await reader.commit("lake", await reader.positions("earliest")) == wanted
        due = await producer_due(local.url, "p", queue="orders", token=local.tokens.produce)
        assert due == wanted
