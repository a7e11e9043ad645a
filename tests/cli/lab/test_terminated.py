"""SIGTERM ends a long command as Ctrl-C does: nothing of it is left behind."""

import os
import signal
import subprocess

import psutil
import pytest

from partq.testing import eventually_blocking
from tests.cli.processes import started

TIMEOUT_S = 180.0
LONG = {
    "chaos": ["chaos", "--only", "broker", "--rounds", "100"],
    "demo": ["demo", "--duration", "3600"],
    "bench": ["bench", "--messages", "100000000"],
    "bench handoff": ["bench", "handoff"],
    "bench loops": ["bench", "loops", "--rounds", "20"],
    "simulate": ["simulate", "--seeds", "100000", "--workers", "2", "--real-redis"],
}


def is_under_way(process, directory):
    """Whether a command has a Redis, with files of its own."""
    try:
        names = {child.name() for child in psutil.Process(process.pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return False
    return any(name.startswith("redis-server") for name in names) and any(directory.iterdir())


SIGNALS = [
    *((command, signal.SIGTERM) for command in LONG),
    ("chaos", signal.SIGINT),
    ("simulate", signal.SIGINT),
]
"""SIGTERM becomes SIGINT: that one alone is shown of an event loop and of a pool of processes."""


@pytest.mark.parametrize(("command", "number"), SIGNALS)
def test_nothing_is_left_of_a_command_that_a_signal_ends(command, number, tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("t")  # short: the paths of sockets are
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with started(LONG[command], env=env, timeout_s=TIMEOUT_S, directory=tmp_path) as process:
        eventually_blocking(
            lambda: is_under_way(process, tmp_path) or process.poll() is not None, "its Redis"
        )
        assert process.poll() is None, process.communicate()
        ran = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        try:
            printed = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pytest.fail("the command has not ended")
    assert process.returncode == 128 + number, printed
    assert "Traceback" not in "".join(printed), printed
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [], printed
    psutil.wait_procs(ran, timeout=TIMEOUT_S)
    assert [child for child in ran if child.is_running()] == []
