"""Producer and consumer of `partq.sync` against a real broker, from threads and whole processes."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from partq import ConflictError, MessageTooLargeError, NotStoredError, SettingsError
from partq.client.produce.failures import Failures, PublishFuture
from partq.sync import Consumer, Producer
from partq.sync.process_loop import LoopPortal
from partq.sync.producer import SentFuture
from partq.testing.local_broker import LocalBroker
from tests.sync.programs import WAIT_S, output_of, start_program

COUNT = 30


@pytest.fixture(scope="module")
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(groups=[f"g{n}" for n in range(8)])
        runner.run(broker.__aenter__())
        yield broker
        runner.run(broker.__aexit__(None, None, None))


def producer_of(local, **options):
    return Producer(local.url, queue="orders", token=local.tokens.produce, **options)


def consumer_of(local, group, **options):
    return Consumer(local.url, queue="orders", group=group, token=local.tokens.consume, **options)


def values(local, group, count):
    """Return the last values of so many in the queue, acknowledged."""
    with consumer_of(local, group, auto_ack=True) as consumer:
        seen = []
        while len(seen) < count:
            seen.extend(each.value for each in consumer.getmany(count, timeout_s=WAIT_S))
    return seen


def test_threads_share_a_producer_and_a_consumer(local):
    with producer_of(local) as producer, ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(producer.send, b"v", key=f"k{n}") for n in range(COUNT)]
        positions = {each.result(WAIT_S).result(WAIT_S) for each in sent}
        assert len(positions) == COUNT
    with consumer_of(local, "g0") as consumer:
        seen = set()
        for message in consumer.messages(timeout_s=WAIT_S):
            assert message.value == b"v"
            consumer.in_progress(message)
            consumer.ack(message, confirmed=True)
            seen.add((message.partition, message.offset))
            if len(seen) == COUNT:
                break
        assert seen == positions
        assert consumer.partitions
        assert consumer.stats().acked == COUNT
        assert list(consumer.messages(timeout_s=0)) == []


def test_a_function_is_called_in_threads_and_may_acknowledge(local):
    together, seen = threading.Barrier(2), []
    with producer_of(local) as producer:
        producer.send_many([]).result(WAIT_S)
        producer.send_and_wait(b"first", key="a")
        producer.send_and_wait(b"second", key="b")

    with consumer_of(local, "g1") as consumer:

        def handle(message):
            if message.value in {b"first", b"second"}:
                together.wait(WAIT_S)
                seen.append(message.value)
            consumer.ack(message)
            if len(seen) == 2:
                consumer.leave()

        consumer.run(handle, concurrency=2)
    assert sorted(seen) == [b"first", b"second"]


def test_errors_are_those_of_the_asynchronous_ones(local):
    with pytest.raises(SettingsError, match="linger_ms"):
        producer_of(local, linger_ms=-1)
    with producer_of(local) as producer:
        with pytest.raises(MessageTooLargeError):
            producer.send(bytes(6 * 1024 * 1024))
        with pytest.raises(TypeError, match="send_many"):
            producer.send_many("text")
    consumer = consumer_of(local, "g1")
    with pytest.raises(RuntimeError, match="the consumer is not open"):
        next(consumer)
    consumer.close()


@pytest.mark.parametrize("looks", [True, False])
def test_a_failure_is_unseen_until_its_future_is_looked_at(looks):
    portal, failures = LoopPortal("the producer"), Failures()
    portal.open(client := ClosedClient())
    try:
        answer = SentFuture(portal)

        async def fail():
            stored = PublishFuture(failures)
            answer.follow(stored)
            failures.taken(1)
            stored.fail(NotStoredError("no"), 1)

        portal.run(fail)
        if looks:
            with pytest.raises(NotStoredError):
                answer.result(WAIT_S)

        async def unseen():
            failures.tell()
            return failures.take_error()

        assert (portal.run(unseen) is None) is looks
    finally:
        portal.forget(client)


class ClosedClient:
    def close(self):
        pass


def test_a_call_of_a_callback_that_would_wait_for_itself_is_refused(local):
    consumer = consumer_of(local, "g2", on_assigned=lambda _: consumer.flush())
    with consumer, pytest.raises(RuntimeError, match="in a callback"):
        next(consumer)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_exit_in_a_handler_ends_its_run_and_no_other_client(local, concurrency):
    """The log, which has what other calls raise meanwhile, is off."""
    program = start_program(
        local,
        f"""
import logging
logging.disable()
with Producer(url, queue="orders", token=produce) as producer:
    producer.send_and_wait(b"first", key="a")
    with Consumer(url, queue="orders", group="g5", token=consume) as consumer:
        try:
            consumer.run(lambda _: sys.exit(3), concurrency={concurrency})
        except SystemExit as exit:
            print("the run raises", exit.code)
    producer.send_and_wait(b"second", key="a")
    print("stored")
""",
    )
    assert output_of(program).splitlines() == ["the run raises 3", "stored"]


def test_an_exit_in_a_serializer_is_raised_and_ends_no_other_client(local):
    program = start_program(
        local,
        """
with (
    Producer(url, queue="orders", token=produce) as other,
    Producer(url, queue="orders", token=produce, value_serializer=sys.exit) as producer,
):
    try:
        producer.send(3)
    except SystemExit as exit:
        print("send raises", exit.code)
    other.send_and_wait(b"v")
    print("stored")
""",
    )
    assert output_of(program).splitlines() == ["send raises 3", "stored"]


def test_after_a_fork_only_the_parent_uses_what_it_has_opened(local):
    program = start_program(
        local,
        """
with Producer(url, queue="orders", token=produce) as producer:
    child = os.fork()
    if not child:
        try:
            producer.send(b"x")
        except RuntimeError as error:
            print("child:", error, flush=True)
        with Producer(url, queue="orders", token=produce) as another:
            another.send_and_wait(b"x")
        print("child: stored", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    producer.send_and_wait(b"x")
    print("parent: stored")
""",
    )
    told = output_of(program)
    refused, *stored = told.splitlines()
    assert "forked from it: open another one after the fork" in refused
    assert stored == ["child: stored", "parent: stored"]


def test_after_a_fork_nothing_in_the_child_waits_for_the_parents_loop(local):
    """Neither counts nor the future of a message, which nobody would ever resolve."""
    program = start_program(
        local,
        """
with (
    Producer(url, queue="orders", token=produce, linger_ms=10_000) as producer,
    Consumer(url, queue="orders", group="g2", token=consume) as consumer,
):
    stored = producer.send_and_wait(b"x") and producer.send(b"y")
    child = os.fork()
    if not child:
        for call in (producer.stats, consumer.stats, stored.result, stored.exception):
            try:
                call()
            except RuntimeError as error:
                print("child:", error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent:", producer.stats().sent, stored.result().offset >= 0, stored.exception())
""",
    )
    *refused, parent = output_of(program).splitlines()
    assert [each.split(" ")[1:3] for each in refused] == [
        ["the", "producer"], ["the", "consumer"], ["the", "future"], ["the", "future"],
    ]  # fmt: skip
    assert all("fork" in each for each in refused)
    assert parent == "parent: 2 True None"


def test_what_is_open_when_the_interpreter_ends_is_closed(local):
    """The message waits for others when the program ends."""
    program = start_program(
        local,
        """
producer = Producer(url, queue="orders", token=produce, linger_ms=10_000).open()
producer.send(b"late", key="a")
""",
    )
    told = output_of(program)
    assert (told, program.returncode) == ("", 0)
    with consumer_of(local, "g3", auto_ack=True) as consumer:
        assert any(each.value == b"late" for each in consumer.messages(timeout_s=WAIT_S))


def test_ctrl_c_ends_the_wait_and_leaves_the_group(local):
    program = start_program(
        local,
        """
try:
    with Consumer(url, queue="orders", group="g4", token=consume, auto_ack=True) as consumer:
        print("open", flush=True)
        for message in consumer:
            pass
except KeyboardInterrupt:
    print("interrupted")
""",
    )
    assert program.stdout.readline() == "open\n"
    program.send_signal(signal.SIGINT)
    told = output_of(program)
    assert (told, program.returncode) == ("interrupted\n", 0)


def test_a_deterministic_producer_leaves_out_what_is_stored(local):
    keys = [f"k{n}" for n in range(COUNT)]

    def publish(stop):
        """Publish the first messages, and return which of them were stored."""
        with producer_of(local, producer_id="import-1") as producer:
            skipped = []
            for key in keys[:stop]:
                if producer.skip_stored(key):
                    skipped.append(key)
                else:
                    producer.send(b"v", key=key)
            return skipped

    assert (publish(10), publish(COUNT)) == ([], keys[:10])
    with producer_of(local, producer_id="import-1") as producer:
        assert sum(producer.due().values()) == COUNT
        with pytest.raises(ConflictError, match="skip_stored"):
            producer.skip_stored("k0")
