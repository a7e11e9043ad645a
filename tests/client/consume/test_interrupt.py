"""A second Ctrl-C ends a consumer at once, wherever its handler is."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from partq import Producer
from partq.testing.local_broker import LocalBroker

TIMEOUT_S = 90.0
"""Below the time for which the handlers block, and for which leaving waits."""
PROGRAM = """
import asyncio, os, signal, sys, threading, time
from partq import Consumer

def blocked(message):
    os.kill(os.getpid(), signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        is_seen = threading.Event()
        loop.call_soon_threadsafe(is_seen.set)
        is_seen.wait()
    print("continues", flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(600)

async def main(handler, in_thread):
    global loop
    loop = asyncio.get_running_loop()
    async with Consumer(sys.argv[1], queue="orders", group="workers", token=sys.argv[2],
                        auto_ack=True, leave_timeout_s=600.0) as consumer:
        await consumer.run(handler, in_thread=in_thread)

signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main({call}))
"""


@pytest.fixture(scope="module")
def broker():
    """A queue with one message that nobody acknowledges."""
    with asyncio.Runner() as runner:
        local = LocalBroker()
        runner.run(local.__aenter__())
        try:
            runner.run(publish(local))
            yield local
        finally:
            runner.run(local.__aexit__(None, None, None))


async def publish(broker):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        await (await producer.send(b"the only one"))


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("blocked, False", id="a handler that blocks the event loop"),
        pytest.param("blocked, True", id="a handler in its thread"),
    ],
)
def test_a_second_ctrl_c_ends_the_process_at_once(broker, call):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{call}", call), broker.url, broker.tokens.consume],
        env={**os.environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.stdout == "continues\n", "the first one leaves the message to its handler"
    assert done.returncode == -signal.SIGINT, done.stderr  # what shells show as 130
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
