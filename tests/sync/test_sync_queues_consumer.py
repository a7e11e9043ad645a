"""The consumer of several queues of `partq.sync`, against real brokers of two queues."""

import asyncio
import threading

import pytest

from partq import ConnectionOptions, FencedError, PartitionId, PartitionKey, SettingsError
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from partq.sync import Producer, QueuesConsumer

WAIT_S = 60.0
NAMES = ("orders-a", "orders-b")
P = PartitionId(1, 0)


@pytest.fixture(scope="module")
def queues(tmp_path_factory):
    resources = resources_of(
        *(queue_document(name, partitions=1) for name in NAMES),
        *(group_document(f"{name}-workers", name) for name in NAMES),
    )
    data = tmp_path_factory.mktemp("queues")
    with asyncio.Runner() as runner:
        runtime = EmbeddedRuntime(resources, data, lease_ttl_s=10.0)
        running = runner.run(runtime.__aenter__())
        yield {queue.name: queue for queue in running.queues}
        runner.run(runtime.__aexit__(None, None, None))


def publish(queues, *values):
    for name, queue in queues.items():
        with Producer(queue.url, queue=name, token=queue.tokens.produce) as producer:
            for value in values:
                producer.send_and_wait(f"{name} {value}".encode(), key="k")


def options_of(queues):
    return [
        ConnectionOptions(queue.url, name, token=queue.tokens.consume)
        for name, queue in queues.items()
    ]


def consumer_of(queues, **options):
    options = {"find": lambda: options_of(queues), "group": "{queue}-workers", **options}
    return QueuesConsumer(pattern="orders-.*", **options)


def taken(consumer, count):
    """Return so many messages, acknowledged, as their queues have them."""
    found = {name: [] for name in NAMES}
    for message in consumer.messages(timeout_s=WAIT_S):
        assert message.value.decode().startswith(message.queue)
        consumer.ack(message, confirmed=True)
        found[message.queue].append(message.value.decode().split()[1])
        count -= 1
        if not count:
            break
    return found


def test_it_consumes_two_queues_and_says_where_it_is(queues):
    publish(queues, 1, 2, 3)
    threads = []

    def find():
        threads.append(threading.current_thread())
        return options_of(queues)

    keys = {PartitionKey(name, P) for name in NAMES}
    with consumer_of(queues, find=find) as consumer:
        found = taken(consumer, 6)
        assert found == {name: ["1", "2", "3"] for name in NAMES}
        assert (consumer.queues, consumer.partitions) == (set(NAMES), keys)
        assert consumer.group_of("orders-a") == "orders-a-workers"
        assert {name: stats.acked for name, stats in consumer.stats().items()} == {
            "orders-a": 3, "orders-b": 3,
        }  # fmt: skip
        ends = consumer.end_offsets()
        assert set(ends) == keys
        assert {key: consumer.position(key) for key in keys} == ends
        assert set(consumer.lag().values()) == {0}
        paused = PartitionKey("orders-a", P)
        consumer.pause([paused])
        assert consumer.paused() == {paused}
        publish(queues, 4)
        (message,) = consumer.getmany(1, WAIT_S)
        assert message.queue == "orders-b"
        consumer.ack(message)
        consumer.resume([paused])
        assert taken(consumer, 1) == {"orders-a": ["4"], "orders-b": []}
        with pytest.raises(FencedError, match="position: got other"):
            consumer.position(PartitionKey("other", P))
    assert threading.main_thread() not in threads
    assert not any(thread.name == "partq-sync" for thread in threads), "it may block"


def test_threads_acknowledge_and_leave(queues):
    publish(queues, 5, 6)
    seen = []

    def handle(message):
        consumer.ack(message)
        seen.append(message.value)
        if len(seen) == 4:
            consumer.leave()

    with consumer_of(queues) as consumer:
        consumer.run(handle, concurrency=2)
        assert list(consumer.messages(timeout_s=WAIT_S)) == [], "it has left"
    assert sorted(seen) == [f"{name} {n}".encode() for name in NAMES for n in (5, 6)]


def test_what_an_interrupted_call_had_taken_is_handed_out_by_the_next_one(queues):
    publish(queues, 7)
    with consumer_of(queues) as consumer:
        made = consumer._handout(lambda: consumer._inner.getmany(1, WAIT_S))
        (first,) = made.result()
        made.interrupt()
        assert taken(consumer, 2)[first.queue] == ["7"]


async def async_find():
    raise SettingsError("no queues today")


def test_errors_are_those_of_the_asynchronous_one(queues):
    with pytest.raises(SettingsError, match="find: got int"):
        consumer_of(queues, find=7)
    with pytest.raises(SettingsError, match="credit: got 0"):
        consumer_of(queues, credit=0)
    with pytest.raises(SettingsError, match="no queues today"):
        consumer_of(queues, find=async_find).open()
    consumer = consumer_of(queues)
    with pytest.raises(RuntimeError, match="the consumer is not open"):
        next(consumer)
