"""Ctrl-C and SIGTERM while a command starts, and when it cannot end in order."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

from partq import Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.cli.processes import started

TIMEOUT_S = 120.0
NUDGE_S = 1.0
EXCUSED = (
    "has stood still for", "continues after", "it is tried until one succeeds", "serves again",
)  # fmt: skip
"""What a command notes of a process that stands still: itself, or a broker or a coordinator."""
STARTING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["partq", "consume"]
from partq.cli.main import main
main()
"""


@pytest.mark.parametrize("module", ["click", "aiohttp", "partq.cli.messages.consume"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_starts_ends_at_once_and_says_nothing(module, number, status, tmp_path):
    program = STARTING.format(module=module, number=int(number))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@pytest.fixture
async def consumer():
    """Start a consumer whose output nobody reads, and that waits for it."""
    async with LocalBroker() as broker:
        async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
            for _ in range(20):
                await producer.send(b"x" * 100_000)
        arguments = ("consume", "--data-dir", str(broker.runtime.data_dir))
        with started(arguments, env={**os.environ}, timeout_s=TIMEOUT_S) as process:
            full = fcntl.fcntl(process.stdout, fcntl.F_GETPIPE_SZ)
            await eventually(lambda: unread(process.stdout) == full)
            yield process


async def test_the_first_ctrl_c_waits_until_what_is_printed_was_read(consumer):
    consumer.send_signal(signal.SIGINT)
    printed, warned = await asyncio.to_thread(consumer.communicate)
    assert set(printed.removesuffix("\n").split("\n")) == {"x" * 100_000}
    assert (consumer.returncode, unexplained(warned)) == (0, [])


async def test_a_second_ctrl_c_ends_a_consumer_whose_output_nobody_reads(consumer):
    # On a busy machine two signals may be one for the process.
    for _ in range(round(TIMEOUT_S / NUDGE_S)):
        consumer.send_signal(signal.SIGINT)
        if await ends_within(consumer, NUDGE_S) is not None:
            break
    # One that comes while Python itself ends is the kernel's, which shells show as 130, too.
    assert consumer.returncode in {130, -signal.SIGINT}
    assert unexplained(consumer.stderr.read()) == []


def unexplained(said):
    """Return the lines that a busy machine is no reason for."""
    return [line for line in said.splitlines() if not any(each in line for each in EXCUSED)]


def unread(pipe):
    """Return how many bytes wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


async def ends_within(process, seconds):
    """Return the exit status; None: it still runs."""
    try:
        return await asyncio.to_thread(process.wait, seconds)
    except subprocess.TimeoutExpired:
        return None
