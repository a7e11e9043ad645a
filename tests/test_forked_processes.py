"""A forked command is what an executed one is: its log, its status, its environment, its end."""

import os
import signal
import sys

import pytest

from partq.testing import eventually
from tests.forked_processes import SERVER, STARTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


async def forked(*arguments, log_file, env=os.environ):
    assert SERVER.forks((*STARTED, *arguments), env)
    with log_file.open("ab") as opened:
        return await SERVER.fork(arguments, env, opened)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(["--version"], 0, "partq, version", id="its end"),
        pytest.param(["no-command"], 2, "No such command 'no-command'", id="wrong usage"),
        pytest.param(["broker"], 2, "PARTQ_QUEUE", id="an error"),
    ],
)
async def test_a_command_ends_with_its_status_and_has_said_why(tmp_path, arguments, status, said):
    log = tmp_path / "log"
    process = await forked(*arguments, log_file=log)
    assert (await process.wait(), process.returncode) == (status, status), log.read_text()
    assert said in log.read_text()


async def test_a_command_is_killed_in_a_session_of_its_own(tmp_path):
    pipe, log = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    # It waits for who writes its tokens.
    env = {
        **os.environ,
        "PARTQ_QUEUE": "orders",
        "PARTQ_QUEUE_UID": "0123abcd",
        "PARTQ_REDIS_URL": "redis://127.0.0.1:1/0",
        "PARTQ_TOKEN_FILE": str(pipe),
    }
    process = await forked("coordinator", log_file=log, env=env)
    assert os.getsid(process.pid) == process.pid
    assert process.returncode is None
    process.send_signal(signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
    process.send_signal(signal.SIGKILL)
    await eventually(lambda: not os.path.exists(f"/proc/{process.pid}"), "its end")


def test_what_is_started_otherwise_is_executed():
    assert not SERVER.forks(("redis-server", "--port", "0"), os.environ)
    assert not SERVER.forks((*STARTED, "broker"), {**os.environ, "TZ": "Asia/Tokyo"})
