"""`partq dev up --detach`, `dev env` and `dev down`, as a person and a script use them."""

import json
import os
import shlex
import socket
import stat
import subprocess

import psutil
import pytest

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


def test_it_runs_in_the_background_until_it_is_ended(data_dir):
    """Without a file; the other commands find it by what `dev env` prints."""
    up = ("dev", "up", "--detach", "--port", "0", "--brokers", "1", "--log-level", "warning")
    started = partq(*up, "--json", data_dir=data_dir)
    assert started.returncode == 0, started.stderr
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
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "`partq dev up` has ended with status 2 before the queues were served" in failed.stderr
    assert f"port {port} of 127.0.0.1 is in use; choose others with --port" in failed.stderr
    assert partq("dev", "down", data_dir=data_dir).returncode == 0


def test_json_of_what_does_not_return_is_refused(data_dir):
    wrong = partq("dev", "up", "--json", data_dir=data_dir)
    assert (wrong.returncode, "--json: got it without --detach" in wrong.stderr) == (2, True)
