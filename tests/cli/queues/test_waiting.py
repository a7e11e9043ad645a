"""`partq consume` and `partq publish` that are started before their queue, as pods may be."""

import os
import signal

import pytest

from partq.embedded.data_dir import DataDir
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of
from partq.testing.tcp_ports import HOST, free_port
from tests.cli.processes import started

TIMEOUT_S = 90.0
"""Below the default of --wait: a command that ends within it has not waited for that."""
QUEUE = queue_document("orders", partitions=2, brokers={"replicas": 1})
GROUP = group_document("workers", "orders")


class Queue:
    """One queue that comes and goes, always under the same URL."""

    def __init__(self, folder):
        self._folder = folder
        self._port = free_port()
        self.url = f"http://{HOST}:{self._port}"
        data = DataDir(folder)
        data.hold()
        self.tokens = data.identity("default", "orders").tokens
        data.let_go()

    def runtime(self, *documents):
        return EmbeddedRuntime(resources_of(*documents), self._folder, port=self._port)


@pytest.fixture
def queue(tmp_path):
    return Queue(tmp_path / "data")


def running(*arguments, url, token):
    """Run a command beside the block; it is killed after the time-out."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")}
    env |= {"PARTQ_URL": url, "PARTQ_TOKEN": token, "PARTQ_QUEUE": "orders"}
    return started(arguments, env={**env, "PYTHONUNBUFFERED": "1"}, timeout_s=TIMEOUT_S)


def consuming(queue, *arguments, token=None):
    arguments = ("consume", "--group", "workers", "--count", "1", *arguments)
    return running(*arguments, url=queue.url, token=token or queue.tokens.consume)


def publishing(queue):
    return running("publish", "hello", url=queue.url, token=queue.tokens.produce)


def until(process, text):
    """Read standard error up to a line with `text`."""
    said = ""
    for line in process.stderr:
        said += line
        if text in line:
            return
    pytest.fail(f"no {text!r} in {said!r}")


async def test_a_queue_and_a_group_that_come_later(queue):
    with consuming(queue) as consumer, publishing(queue) as producer:
        for process in (consumer, producer):
            until(process, "no broker answers")
        async with queue.runtime(QUEUE):
            until(consumer, "queue 'orders' has no consumer group 'workers'; it has none")
            assert producer.wait() == 0
        async with queue.runtime(QUEUE, GROUP):
            assert consumer.stdout.readline() == "hello\n"
            assert consumer.wait() == 0


async def test_a_wrong_token_is_no_reason_to_wait_and_waiting_has_an_end(queue):
    wrong = "wrong-token-of-some-length"
    async with queue.runtime(QUEUE):
        with consuming(queue, token=wrong) as refused, consuming(queue, "--wait", "0.5") as patient:
            _, err = refused.communicate()
            _, last_words = patient.communicate()
    assert (refused.returncode, patient.returncode) == (1, 1)
    assert "unknown token" in err
    assert "waiting" not in err
    nothing = "partq: queue 'orders' has no consumer group 'workers'; it has none\n"
    assert last_words.endswith(nothing)


async def test_a_pod_that_ends_meanwhile_ends_at_once(queue):
    with consuming(queue) as consumer:
        until(consumer, "no broker answers")
        consumer.send_signal(signal.SIGTERM)
        out, _ = consumer.communicate()
    assert (consumer.returncode, out) == (0, "")
