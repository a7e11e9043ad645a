"""`partq dev up` and the commands that work against it, as a user runs them."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import psutil
import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.testing import eventually_blocking
from tests.cli.processes import PARTQ, started

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 60.0


class Dev:
    """A `partq dev up` in the background."""

    def __init__(self, directory):
        self.directory = directory
        env = {key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")}
        self.env = {**env, "PYTHONUNBUFFERED": "1", "PARTQ_DATA_DIR": str(directory / "data")}
        self.process = subprocess.Popen(
            [*PARTQ, "dev", "up", "-f", str(ROOT / "examples/queue.yaml"), "--port", "0"],
            cwd=directory,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines = Queue()
        self.reader = Thread(target=self._read, daemon=True)
        self.reader.start()
        self.said = self.until("Ctrl-C ends it")

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)

    def until(self, text):
        """Return what it says up to the line with `text`."""
        said = ""
        try:
            while text not in said:
                said += self.lines.get(timeout=TIMEOUT_S)
        except Empty:
            pytest.fail(f"no {text!r} in {said!r}")
        return said

    def run(self, *arguments, given=None):
        return subprocess.run(
            [*PARTQ, *arguments],
            cwd=self.directory,
            env=self.env,
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def refused(self, *arguments, statuses=(2,)):
        """Return the one line by which a command in this process says why it does nothing."""
        env = {"PARTQ_DATA_DIR": self.env["PARTQ_DATA_DIR"]}
        said = refused(*arguments, env=env, statuses=statuses)
        (line,) = said.splitlines()
        return line

    def started(self, *arguments):
        """Run a command that runs on; it ends with the block, or after the time-out."""
        return started(arguments, env=self.env, timeout_s=TIMEOUT_S, directory=self.directory)

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()


def refused(*arguments, env=None, statuses=(2,)):
    """Return what a command in this process says as it ends at once."""
    done = CliRunner().invoke(cli, arguments, env=env)
    assert done.exit_code in statuses, done.output
    assert done.stdout == ""
    return done.stderr


@pytest.fixture(scope="module")
def dev(tmp_path_factory):
    running = Dev(tmp_path_factory.mktemp("dev"))
    yield running
    running.stop()
    assert running.process.returncode == 0


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def test_arguments_and_lines_come_out_again(dev):
    assert dev.run("publish", "--key", "k", "one", "two").stdout == "published 2\n"
    assert dev.run("publish", "--key", "k", given="three\nfour").stdout == "published 2\n"

    done = dev.run("consume", "--count", "4")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["one", "two", "three", "four"]

    idle = dev.run("consume", "--idle", "0.1")
    assert (idle.returncode, idle.stdout, idle.stderr) == (0, "", ""), "nothing is left"
    missed = dev.run("consume", "--idle", "0.1", "--count", "2")
    said = "partq: 0 of 2 messages came, then none for 0.1 s\n"
    assert (missed.returncode, missed.stdout, missed.stderr) == (1, "", said)


def test_json_goes_in_a_circle(dev):
    given = [
        {"key": "a", "value": "text", "headers": {"h": "1"}, "event_time_ms": 5},
        {"key": "a", "value_base64": "/w=="},
        {"key": "a", "value": "last", "seq": 7},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in given)

    published = records(dev.run("publish", "--input", "-", "--json", given=lines).stdout)
    consumed = records(dev.run("consume", "--count", "3", "--json").stdout)

    assert [(each["partition"], each["offset"]) for each in consumed] == [
        (each["partition"], each["offset"]) for each in published
    ]
    assert [each["key"] for each in consumed] == ["a", "a", "a"]
    assert (consumed[0]["value"], consumed[0]["headers"]) == ("text", {"h": "1"})
    assert (consumed[0]["event_time_ms"], consumed[0]["cause"]) == (5, "")
    assert consumed[1]["value_base64"] == "/w=="


def test_a_bad_line_ends_the_input_after_what_stands_before_it(dev):
    done = dev.run("publish", "--input", "-", given='{"value": "good"}\n{"key": 1}\n')

    assert (done.returncode, done.stdout) == (2, "published 1\n")
    sentence = "partq: standard input, line 2: key: got 1, expected a text or null\n"
    assert done.stderr == sentence
    assert dev.run("consume", "--count", "1").stdout == "good\n"


def test_without_ack_messages_come_again(dev):
    dev.run("publish", "again")

    assert dev.run("consume", "--count", "1", "--no-ack").stdout == "again\n"
    assert dev.run("consume", "--count", "1").stdout == "again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_consume_ends_when_told(dev, number):
    with dev.started("consume") as consumer:
        dev.run("publish", "here")
        assert consumer.stdout.readline() == "here\n"
        consumer.send_signal(number)
        out, err = consumer.communicate(timeout=TIMEOUT_S)

    assert (consumer.returncode, out, err) == (0, "", "")


def test_status(dev):
    answer = json.loads(dev.run("status", "--json").stdout)
    assert len(answer["partitions"]) == 16
    assert list(answer["groups"]) == ["workers"]

    shown = dev.run("status").stdout
    assert "default/orders: Available; 16 partitions" in shown
    assert "group workers: lag 0" in shown


def test_status_watch(dev):
    with dev.started("status", "--watch", "--json") as watching:
        for _ in range(2):
            assert "partitions" in json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=TIMEOUT_S)

    assert watching.returncode == 130


def test_in_a_pipe_status_watch_prints_one_picture_after_the_other(dev):
    with dev.started("status", "--watch") as watching:
        firsts = (line for line in watching.stdout if line.startswith("default/orders: "))
        for _ in range(2):
            assert "; 16 partitions" in next(firsts)
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=TIMEOUT_S)

    assert watching.returncode == 130


def test_browse_shows_the_newest_and_what_comes(dev):
    dev.run("publish", "--key", "k", "newest")
    with dev.started("browse", "--last", "1", "--follow", "--json") as following:
        assert json.loads(following.stdout.readline())["value"] == "newest"
        dev.run("publish", "--key", "k", "newer")
        assert json.loads(following.stdout.readline())["value"] == "newer"
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=TIMEOUT_S)
    assert following.returncode == 130


def test_wrong_names(dev):
    for arguments, sentence in (
        (("status", "--queue", "other"), "queue 'other': got no such queue in"),
        (("consume", "--group", "other"), "queue 'orders' has no consumer group 'other'"),
        (("status", "--token", "wrong-token-of-some-length"), "unknown token"),
    ):
        assert sentence in dev.refused(*arguments, statuses=(1, 2))


def test_what_it_prints_can_be_copied(dev):
    """The curl lines work as they stand; `partq` lines are covered above."""
    commands = re.findall(r"^  (curl (?:.*\\\n)*.*)$", dev.said, re.MULTILINE)
    publish, pull, ack, leave = (shlex.split(command.replace("\\\n", " ")) for command in commands)

    def run(command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)

    def pulled():
        return run(pull).get("messages")  # at first the member may not be listed yet

    assert "offset" in run(publish)
    messages = eventually_blocking(pulled, "the message is pulled")
    receipt = messages[0]["receipt"]
    assert run([part.replace("RECEIPT OF A MESSAGE", receipt) for part in ack]) == {"results": [{}]}
    assert not run(leave).get("failed")


def test_second_dev_up_is_refused(dev):
    said = dev.refused("dev", "up", "-f", str(ROOT / "examples/queue.yaml"), "--port", "0")
    assert f"process {dev.process.pid} is using it" in said


@pytest.mark.parametrize("is_there", [False, True])
def test_a_port_in_use_is_refused_before_anything_is_written(tmp_path, is_there):
    data = tmp_path / "data"
    if is_there:
        data.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = ["dev", "up", "-f", str(ROOT / "examples/queue.yaml"), "--data-dir", str(data)]
        said = refused(*up, "--port", str(port - 1))
    refusal = (
        rf"partq: port ({port - 1}|{port}) of 127.0.0.1 is in use; choose others with --port, "
        r"or any that are free with --port 0\n"
    )
    assert re.fullmatch(refusal, said), said
    assert list(data.iterdir()) == [] if is_there else not data.exists()


def test_a_directory_that_is_held_is_told_before_a_port_in_use(dev):
    port = re.search(r"brokers  http://127.0.0.1:(\d+)", dev.said)[1]
    said = dev.refused("dev", "up", "-f", str(ROOT / "examples/queue.yaml"), "--port", port)
    assert f"process {dev.process.pid} is using it" in said


def test_interrupt_while_it_starts(tmp_path):
    env = {**os.environ, "PARTQ_DATA_DIR": str(tmp_path)}
    command = [*PARTQ, "dev", "up", "-f", str(ROOT / "examples/queue.yaml"), "--port", "0"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as starting:
        log = tmp_path / "logs" / "redis.log"
        eventually_blocking(lambda: log.exists() or starting.poll() is not None, "Redis starts")
        assert starting.poll() is None
        starting.send_signal(signal.SIGTERM)
        starting.communicate(timeout=TIMEOUT_S)

    assert starting.returncode == 0
    assert not (tmp_path / "dev.json").exists()


def test_after_kill_9_nothing_runs_on_and_nothing_is_lost(tmp_path):
    first = Dev(tmp_path)
    children = psutil.Process(first.process.pid).children(recursive=True)
    assert len(children) == 4  # Redis, two brokers, the coordinator
    first.run("publish", "kept")

    first.stop(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, TIMEOUT_S)
    assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    assert "no queue of the namespace default runs in" in first.run("status").stderr

    second = Dev(tmp_path)
    try:
        assert second.run("consume", "--count", "1").stdout == "kept\n"
    finally:
        second.stop()


def test_a_number_of_partitions_beside_a_file_is_refused(tmp_path):
    file = str(ROOT / "examples/queue.yaml")
    said = refused("dev", "up", "-f", file, "--partitions", "3", "--data-dir", str(tmp_path))
    assert said == "partq: --partitions: got it with --file; set spec.partitions in the file\n"
