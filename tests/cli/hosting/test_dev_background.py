"""`partq dev up --detach`, `dev env` and `dev down`, as a person and a script use them."""

import json
import os
import re
import shlex
import socket
import stat
import subprocess

import click
import psutil
import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.hosting import dev
from partq.embedded.data_dir import DataDir, QueueState, QueueTokens
from partq.resources import group_document, queue_document
from tests.cli.processes import PARTQ

TIMEOUT_S = 120.0
ENV = {key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")}


def partq(*arguments, data_dir, env=ENV):
    return subprocess.run(
        [*PARTQ, *arguments],
        env={**env, "PARTQ_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture
def data_dir(tmp_path):
    """A directory whose name a shell would take apart."""
    path = tmp_path / "it's $(here) data"
    yield path
    partq("dev", "down", data_dir=path)


def test_it_runs_in_the_background_until_it_is_ended(data_dir, tmp_path):
    """The other commands find it by what `dev env` prints."""
    file = tmp_path / "queue.yaml"
    group = group_document("workers", "orders", ack={"maxRedeliveries": 3})
    file.write_text("\n---\n".join(map(json.dumps, (queue_document("orders"), group))))
    up = ("dev", "up", "--detach", "--port", "0", "--brokers", "1", "--log-level", "warning")
    started = partq(*up, "-f", str(file), "--json", data_dir=data_dir)
    assert started.returncode == 0, started.stderr
    assert started.stderr.count("ack.maxRedeliveries is 3, and its dead-letter queue") == 1
    told = json.loads(started.stdout)
    (queue,) = told["queues"]
    assert (queue["name"], queue["groups"]) == ("orders", ["workers"])
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(os.stat(told["log"]).st_mode) == 0o600
    assert "token" not in started.stdout
    process = psutil.Process(told["pid"])

    again = partq(*up, data_dir=data_dir)
    assert again.returncode == 2
    assert f"process {told['pid']} is using it" in again.stderr

    variables = json.loads(partq("dev", "env", "--json", data_dir=data_dir).stdout)
    assert variables["PARTQ_URL"] == queue["url"]
    assert (variables["PARTQ_QUEUE"], variables["PARTQ_GROUP"]) == ("orders", "workers")
    command = shlex.join(PARTQ)
    script = f"""
        eval "$({command} dev env --data-dir {shlex.quote(str(data_dir))})"
        cd / && {command} publish --key k kept && {command} consume --count 1
    """
    done = subprocess.run(
        ["sh", "-ec", script],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "published 1\nkept\n"), done.stderr
    narrower = json.loads(
        partq("dev", "env", "--role", "consume", "--json", data_dir=data_dir).stdout
    )
    refused = partq("publish", "x", data_dir=data_dir, env={**ENV, **narrower})
    assert "role admin or produce" in refused.stderr

    ended = partq("dev", "down", data_dir=data_dir)
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"process {told['pid']} has ended")
    _, alive = psutil.wait_procs([process], TIMEOUT_S)
    assert alive == []
    for arguments, status in ((("dev", "down"), 0), (("dev", "env"), 2)):
        nothing = partq(*arguments, data_dir=data_dir)
        assert (nothing.returncode, nothing.stdout) == (status, "")
        assert "runs" in nothing.stderr
    assert json.loads(partq("dev", "down", "--json", data_dir=data_dir).stdout) == {
        "pid": None,
        "is_ended": False,
    }


def test_what_cannot_start_says_why_and_leaves_nothing(data_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        failed = partq("dev", "up", "--detach", "--port", port, data_dir=data_dir)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert all(line.count("partq: ") == 1 for line in failed.stderr.splitlines())
    assert "`partq dev up` has ended with status 2 before the queues were served" in failed.stderr
    assert f"port {port} of 127.0.0.1 is in use; choose others with --port, or any" in failed.stderr
    assert partq("dev", "down", data_dir=data_dir).returncode == 0


def test_json_of_what_does_not_return_is_refused(data_dir):
    wrong = partq("dev", "up", "--json", data_dir=data_dir)
    assert (wrong.returncode, "--json: got it without --detach" in wrong.stderr) == (2, True)


@pytest.fixture
def runs(data_dir):
    """Let this process run queues, given as NAMESPACE/NAME, as far as other commands can see."""
    directory = DataDir(data_dir)
    directory.hold()

    def published(*queues):
        tokens = QueueTokens(
            "produce-token-0123456", "consume-token-0123456", "admin-token-0123456"
        )
        places = [each.split("/") for each in queues]
        url = "http://127.0.0.1:7411"
        directory.publish_state([QueueState(*place, url, ("w",), tokens) for place in places])

    yield published
    directory.let_go()


def answered(*arguments, **env):
    return CliRunner().invoke(cli, arguments, env={"PARTQ_NAMESPACE": None, **env})


@pytest.mark.parametrize("queues", [("shop/orders",), ("shop/orders", "default/orders", "a/b")])
def test_each_command_that_it_prints_finds_its_queue(data_dir, runs, monkeypatch, queues):
    runs(*queues)
    monkeypatch.setattr(dev, "start_detached", lambda *_: os.getpid())
    monkeypatch.chdir(data_dir.parent)
    said = answered("dev", "up", "--detach", "--data-dir", data_dir.name).stdout
    monkeypatch.chdir("/")
    commands = re.findall(r'eval "\$\(partq (dev env.*)\)" ', said)
    found = [json.loads(answered(*shlex.split(each), "--json").stdout) for each in commands]
    names = [f"{each['PARTQ_NAMESPACE']}/{each['PARTQ_QUEUE']}" for each in found]
    assert names == list(queues)


def test_without_a_namespace_env_looks_in_all(data_dir, runs):
    place = {"PARTQ_DATA_DIR": str(data_dir)}
    runs("shop/orders")
    assert "export PARTQ_NAMESPACE=shop\n" in answered("dev", "env", **place).stdout
    runs("shop/orders", "store/orders")
    refused = answered("dev", "env", "--queue", "orders", **place)
    assert refused.exit_code == 2
    assert "several queues run: shop/orders, store/orders; choose one" in refused.stderr
    runs("shop/orders", "default/orders")
    assert "export PARTQ_NAMESPACE=default\n" in answered("dev", "env", **place).stdout
    chosen = answered("dev", "env", **{**place, "PARTQ_NAMESPACE": "shop"})
    assert "export PARTQ_NAMESPACE=shop\n" in chosen.stdout


@pytest.mark.parametrize("what", [{"--file": "queue.yaml"}, {"--partitions": "3"}], ids=str)
def test_the_process_in_the_background_gets_every_option(data_dir, runs, monkeypatch, what):
    runs("default/orders")
    given = {
        **what, "--brokers": "3", "--port": "0", "--log-level": "debug",
        "--data-dir": str(data_dir),
    }  # fmt: skip
    about_detach = {"--detach", "--json"}
    options = [each for each in dev.up.params if isinstance(each, click.Option)]
    one_of = {"--file", "--partitions"}
    assert {each.opts[-1] for each in options} == given.keys() | about_detach | one_of
    monkeypatch.chdir(data_dir.parent)
    (data_dir.parent / "queue.yaml").write_text(json.dumps(queue_document("orders")))
    told = []
    monkeypatch.setattr(dev, "start_detached", lambda _, arguments: told.append(arguments) or 1)
    up = ("dev", "up", "--detach", *(word for item in given.items() for word in item))
    assert answered(*up).exit_code == 0
    if "--file" in given:
        given["--file"] = str(data_dir.parent / "queue.yaml")
    command, subcommand, *words = told[0]
    assert (command, subcommand) == ("dev", "up")
    assert dict(zip(words[::2], words[1::2], strict=True)) == given
