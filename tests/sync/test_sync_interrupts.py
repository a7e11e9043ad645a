"""An interrupted call of `partq.sync` loses no message and leaves no callback behind."""

import asyncio
import sys
import threading
from itertools import count

import pytest

from partq.sync import Consumer, Producer
from partq.sync.latch import Latch
from partq.sync.process_loop import LoopPortal
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.sync.programs import WAIT_S, output_of, start_program


class Interrupt(BaseException):
    """Stands for what a signal handler raises."""


class LateInterrupt(Latch):
    """Is interrupted when the call in the loop has ended, and `result` is about to return."""

    def wait(self):
        super().wait()
        raise Interrupt


class EarlyInterrupt(Latch):
    """Is interrupted at once."""

    def wait(self):
        raise Interrupt


@pytest.fixture(scope="module")
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(groups=[f"g{n}" for n in range(10)])
        runner.run(broker.__aenter__())
        yield broker
        runner.run(broker.__aexit__(None, None, None))


def publish(local, *values):
    with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
        for value in values:
            producer.send_and_wait(value, key="a")


def consumer_of(local, group, **options):
    options = {"auto_ack": True} | options
    return Consumer(local.url, queue="orders", group=group, token=local.tokens.consume, **options)


def rest(consumer, last):
    """Return what comes up to and with a value."""
    seen = []
    for message in consumer.messages(timeout_s=WAIT_S):
        seen.append(message.value)
        if message.value == last:
            return seen
    raise AssertionError(f"{last} never came, only {seen}")


TAKING = [
    lambda consumer: [next(consumer)],
    lambda consumer: consumer.getmany(2, WAIT_S),
    lambda consumer: next(consumer.batches(max_messages=2)),
    lambda consumer: [next(consumer.messages(timeout_s=WAIT_S))],
]
NAMES = ["next", "getmany", "batches", "messages"]


@pytest.mark.parametrize("latch", [LateInterrupt, EarlyInterrupt])
@pytest.mark.parametrize("take", TAKING, ids=NAMES)
@pytest.mark.parametrize("auto_ack", [True, False])
def test_what_an_interrupted_call_has_taken_is_handed_out_by_the_next(
    local, monkeypatch, take, latch, auto_ack
):
    group = f"g{TAKING.index(take)}"
    sent = [f"{take!r} {latch.__name__} {auto_ack} {n}".encode() for n in range(3)]
    publish(local, *sent)
    with consumer_of(local, group, auto_ack=auto_ack) as consumer:
        with monkeypatch.context() as patched:
            patched.setattr("partq.sync.process_loop.Latch", latch)
            for _ in range(3):
                with pytest.raises(Interrupt):
                    take(consumer)
        # What was handed out last before, and not acknowledged, comes first.
        assert [each for each in rest(consumer, sent[-1]) if each in sent] == sent


def test_no_message_is_lost_or_doubled_by_a_handler_that_raises_all_the_time(local):
    """The handler raises inside of `partq.sync` only: beyond it the message is the program's."""
    count = 300
    publish(local, *(str(n).encode() for n in range(count)))
    program = start_program(
        local,
        f"""
import random

class Soft(BaseException):
    pass

def fire(number, frame):
    while frame is not None and "partq/sync" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is not None:
        raise Soft
    signal.setitimer(signal.ITIMER_REAL, 0.0005)

signal.signal(signal.SIGALRM, fire)
seen, raised, in_vain = [], 0, 0
with Consumer(url, queue="orders", group="g8", token=consume, auto_ack=True) as consumer:
    while not seen or seen[-1] != "{count - 1}":
        # Once more: Python lets a second one interrupt what handles the first.
        # Later each time that it was too early: on a busy machine a call may take long.
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.003) * 2**in_vain)
        try:
            in_vain = min(in_vain + 1, 10)
            for message in consumer:
                in_vain = 0
                seen.append(message.value.decode())
                if seen[-1] == "{count - 1}":
                    break
        except Soft:
            raised += 1
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
ours = [each for each in seen if each.isdigit()]
print(ours == [str(n) for n in range({count})], raised > 5)
""",
    )
    told = output_of(program)
    assert told.endswith("True True\n"), told


def test_an_interrupted_run_waits_for_its_callbacks_and_they_count(local):
    publish(local, b"last")
    program = start_program(
        local,
        """
import threading
def handle(message):
    if message.value == b"last":
        os.kill(os.getpid(), signal.SIGINT)
        while not interrupted.is_set():
            pass
        print("handled", flush=True)

interrupted = threading.Event()
def interrupt(*_):
    interrupted.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
with Consumer(url, queue="orders", group="g9", token=consume, auto_ack=True) as consumer:
    try:
        consumer.run(handle)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
""",
    )
    told = output_of(program)
    assert told == "handled\ninterrupted\n"
    publish(local, b"after")
    with consumer_of(local, "g9") as consumer:
        assert rest(consumer, b"after") == [b"after"]


@pytest.fixture
def portal():
    class Client:
        def close(self):
            pass

    portal = LoopPortal("the consumer")
    portal.open(client := Client())
    yield portal
    portal.forget(client)


class Interrupted:
    """Calls something, and raises before its n-th instruction, as a signal handler may."""

    def __init__(self, step):
        self._step = step
        self._steps = self._seen = 0

    def has_stopped(self):
        """Whether it has made no step since it was last asked: it waits."""
        seen, self._seen = self._seen, self._steps
        return seen == self._steps

    def run(self, call):
        sys.settrace(self._trace)
        try:
            return call()
        finally:
            sys.settrace(None)

    def _trace(self, frame, event, arg):
        frame.f_trace_opcodes = True
        if event in ("call", "opcode"):
            self._steps += 1
            if self._steps == self._step:
                raise Interrupt
        return self._trace


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_an_interrupt_anywhere_in_a_wait_loses_nothing_and_leaves_the_loop_alive(
    portal, is_waited_for
):
    async def taken():
        if is_waited_for:
            await eventually(interrupted.has_stopped)
        ended.append(True)
        return "a message"

    async def nothing():
        pass

    for step in count(1):
        ended, untaken = [], []
        interrupted = Interrupted(step)
        made = portal.handout(taken, untaken.append)
        try:
            assert interrupted.run(made.result) == "a message"
            break
        except Interrupt:
            made.interrupt()
        portal.run(nothing)
        made.wait_ended()
        assert len(untaken) == len(ended)
    assert step > 50


def test_a_call_that_is_interrupted_as_it_ends_gives_back_once(portal):
    async def taken():
        # The loop gets to this one after the last step of the call, and before it is told of it.
        made.interrupt()
        return "a message"

    async def two_turns():
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    untaken = []
    made = portal.handout(taken, untaken.append)
    made.result()
    portal.run(two_turns)
    assert untaken == ["a message"]


def test_an_interrupted_call_is_waited_for_by_the_next_that_takes_and_by_no_other(portal):
    log, may_end = [], threading.Event()

    async def slow():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.to_thread(may_end.wait, WAIT_S)
            log.append("ended")
            return "late"

    async def soon(what):
        log.append(what)

    first = portal.handout(slow, log.append)
    threading.Thread(target=first.result).start()
    portal.run(lambda: soon("begun"))
    first.interrupt()
    second = portal.handout(lambda: soon("second"), lambda _: None)
    waiting = threading.Thread(target=second.result)
    waiting.start()
    portal.run(lambda: soon("other"))
    may_end.set()
    waiting.join(WAIT_S)
    assert log == ["begun", "other", "ended", "late", "second"]
    first.wait_ended()


def test_errors_speak_of_blocking_calls(local):
    async def handle(message):
        pass

    producer = Producer(local.url, queue="orders", token=local.tokens.produce)
    with producer:
        assert producer.partition_of("a") == producer.send_and_wait(b"p", key="a").partition
    for call in (
        lambda: producer.send(b"x"),
        lambda: producer.send_and_wait(b"x"),
        lambda: producer.partition_of("a"),
    ):
        with pytest.raises(RuntimeError, match="the producer was closed; open it again"):
            call()
    with consumer_of(local, "g4") as consumer, pytest.raises(TypeError, match="plain function"):
        consumer.run(handle)
    with pytest.raises(RuntimeError, match="the consumer was closed"):
        consumer.getmany(1, 0)
    consumer.close()
