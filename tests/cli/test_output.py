"""Standard output that cannot be written: one sentence, and nothing is acknowledged for it."""

import asyncio
import os
import subprocess

import pytest

from partq import Producer
from partq.testing.local_broker import LocalBroker
from tests.cli.processes import PARTQ

TIMEOUT_S = 120.0
FULL = "partq: standard output was not written: No space left on device; results are missing\n"
PRINTING = (
    ("--help",),
    ("consume", "--count", "1"),
    ("consume", "--idle", "1", "--json"),
    ("publish",),
    ("status",),
    ("status", "--watch"),
    ("status", "--watch", "--json"),
    ("groups", "--json"),
    ("browse",),
    ("explain", "0"),
    ("reset", "--to", "latest", "--dry-run"),
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data directory of a queue with messages in each partition."""
    folder = tmp_path_factory.mktemp("output")
    with asyncio.Runner() as runner:
        broker = LocalBroker(data_dir=folder)
        runner.run(broker.__aenter__())
        try:
            runner.run(publish(broker))
            yield folder
        finally:
            runner.run(broker.__aexit__(None, None, None))


async def publish(broker):
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for number in range(8):
            await (await producer.send(b"%d" % number, key=f"key-{number}"))


def partq(arguments, data_dir, stdout):
    """Run a command; return its exit status, and what it says of standard output.

    On a machine that stands still for seconds the client warns of that, and of brokers that do not
    answer, and `--idle` of messages that wait: they may.
    """
    done = run(arguments, data_dir, stdout)
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stderr.splitlines(keepends=True)
    return done.returncode, "".join(line for line in lines if "standard output" in line)


def run(arguments, data_dir, stdout):
    return subprocess.run(
        [*PARTQ, *arguments],
        env={**os.environ, "PARTQ_DATA_DIR": str(data_dir)},
        stdin=subprocess.DEVNULL, stdout=stdout,
        stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_disk_is_one_sentence(data_dir, arguments):
    with open("/dev/full", "wb") as full:
        assert partq(arguments, data_dir, full) == (1, FULL)


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_closed_pipe_is_no_word(data_dir, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert partq(arguments, data_dir, writer) == (141, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize("more", [(), ("--count", "8"), ("--json",)], ids=str)
def test_what_was_not_written_is_not_acknowledged(data_dir, more):
    with open("/dev/full", "wb") as full:
        assert partq(("consume", *more), data_dir, full) == (1, FULL)
    look = ("consume", "--count", "8", "--idle", "20", "--no-ack")
    done = run(look, data_dir, subprocess.PIPE)
    assert sorted(done.stdout.split()) == [str(number) for number in range(8)]
