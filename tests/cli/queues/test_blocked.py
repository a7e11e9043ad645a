"""A partition that dead letters stop is named by every command, beside a real `partq dev up`."""

import json
import os
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Thread

import psutil
import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.resources import group_document, queue_document, yaml_of
from tests.cli.processes import started

TIMEOUT_S = 90.0
QUEUE = queue_document("mail", partitions=1, brokers={"replicas": 1})
GROUP = group_document(
    "postmen", "mail", ack={"timeoutSeconds": 0.5, "tickSeconds": 0.25, "maxRedeliveries": 0}
)
WHY = "queue default/mail-postmen-dlq: not found in the Redis of mail"


class Dev:
    """A `partq dev up` and what it says."""

    def __init__(self, process, env):
        self.process = process
        self.env = env
        self._lines = Queue()
        for stream in (process.stdout, process.stderr):
            Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            self._lines.put(line)

    def until(self, text):
        """Return the line with a text."""
        said = ""
        try:
            while text not in said.rpartition("\n")[2]:
                said += "\n" + self._lines.get(timeout=TIMEOUT_S).rstrip("\n")
        except Empty:
            pytest.fail(f"no {text!r} in {said!r}")
        return said.rpartition("\n")[2]

    def run(self, *arguments):
        """Return what a command prints."""
        done = CliRunner().invoke(cli, arguments, env=self.env)
        assert done.exit_code == 0, done.stderr
        return done.stdout


@contextmanager
def running(directory):
    file = directory / "mail.yaml"
    file.write_text(yaml_of(QUEUE, GROUP))
    env = {key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")}
    env |= {"PYTHONUNBUFFERED": "1", "PARTQ_DATA_DIR": str(directory / "data"), "COLUMNS": "300"}
    arguments = ["dev", "up", "-f", str(file), "--port", "0"]
    with started(arguments, env=env, timeout_s=4 * TIMEOUT_S) as process:
        dev = Dev(process, env)
        dev.until("Ctrl-C ends it")
        yield dev


def test_what_is_stopped_is_named_and_what_ends_is_told(tmp_path):
    with running(tmp_path) as dev:
        dev.run("publish", "poison", "next")
        with started(["consume", "--no-ack"], env=dev.env, timeout_s=TIMEOUT_S):
            told = dev.until("delivers nothing")
        assert f"queue default/mail, group postmen: partition 1.0 delivers nothing: {WHY}" in told
        (row,) = json.loads(dev.run("groups", "--json"))
        assert row["state"] == "Blocked"
        assert row["blocked"]["1.0"].startswith(WHY)
        (group,) = json.loads(dev.run("status", "--json"))["groups"].values()
        explained = json.loads(dev.run("explain", "0", "--json"))
        assert explained["blocked"].startswith(WHY)
        assert row["lag"] == group["lag"] == explained["lag"] >= 0
        for command in (["groups"], ["status"], ["explain", "0"]):
            assert f"delivers nothing: {WHY}" in dev.run(*command)

        (redis,) = [
            each
            for each in psutil.Process(dev.process.pid).children(recursive=True)
            if "redis-server" in each.name()
        ]
        redis.terminate()
        assert "bye bye" in dev.until("redis has ended")
