"""A child process is kept running, and never outlives its parent."""

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from partq.embedded import child as child_module
from partq.embedded import log_files
from partq.embedded.child import Child
from partq.errors import UnavailableError
from partq.testing import eventually

TIMEOUT_S = 60.0


@pytest.fixture
async def make(tmp_path):
    children = []

    def make_child(program, probe=None):
        async def is_ready():
            return True

        child = Child(
            "sleeper",
            (sys.executable, "-c", program),
            probe=probe or is_ready,
            log_file=tmp_path / "logs" / "sleeper.log",
            env=os.environ,
        )
        children.append(child)
        return child

    yield make_child
    for child in children:
        await child.stop()


SLEEP = "import time; time.sleep(600)"


async def test_start_and_stop(make):
    child = make(SLEEP)
    await child.start()
    pid = child.pid
    assert psutil.pid_exists(pid)

    await child.start()  # runs already: nothing happens
    assert child.pid == pid

    await child.stop()
    assert child.pid is None
    assert not psutil.pid_exists(pid)


async def test_killed_child_is_started_again(make):
    child = make(SLEEP)
    await child.start()
    first = child.pid

    await child.kill()
    assert child.pid is None
    await child.ready(TIMEOUT_S)

    assert child.pid not in (None, first)
    assert child.restart_count == 1


async def test_child_stays_dead_when_told(make):
    child = make(SLEEP)
    await child.start()
    child.keep_running = False

    await child.kill()

    with pytest.raises(UnavailableError, match="sleeper has ended"):
        await child.ready(TIMEOUT_S)
    with pytest.raises(UnavailableError, match="sleeper is not running"):
        await child.kill()
    await child.start()
    assert child.pid is not None


async def test_child_that_never_was_ready_ends_the_start(make):
    async def never():
        return False

    child = make("import sys; sys.exit('no such setting')", never)
    with pytest.raises(UnavailableError, match=r"sleeper has ended: no such setting \(log: /"):
        await child.start()
    assert child.restart_count == 0


async def test_child_that_is_not_ready_in_time_is_stopped(make):
    async def never():
        return False

    child = make(SLEEP, never)
    with pytest.raises(UnavailableError, match=r"not ready after 0.2 s"):
        await child.start(timeout_s=0.2)
    assert child.pid is None


async def test_restarts_come_later_and_later(make, monkeypatch):
    monkeypatch.setattr(child_module, "FIRST_RESTART_DELAY_S", 0.001)
    monkeypatch.setattr(child_module, "LAST_RESTART_DELAY_S", 0.004)
    child = make("")
    await child.start()

    await eventually(lambda: child.restart_count >= 4)


async def test_what_a_child_wrote_last_is_told_when_it_ends(make, monkeypatch, caplog):
    """Its own last lines, as Redis's on a full disk; of one that was killed there are none."""
    monkeypatch.setattr(child_module, "FIRST_RESTART_DELAY_S", 0.001)
    child = make("print('first line')\nprint('no space left')\nraise SystemExit('exiting')")
    await child.start()
    await eventually(lambda: child.restart_count >= 2)
    child.keep_running = False
    told = "sleeper has ended with status 1: no space left / exiting (log: /"
    assert next(iter(caplog.records)).getMessage().startswith(told)


async def test_of_a_killed_child_nothing_is_told(make, caplog):
    child = make(f"print('all is well', flush=True)\n{SLEEP}")
    await child.start()
    child.keep_running = False
    await child.kill()
    await eventually(lambda: caplog.records)
    assert caplog.records[0].getMessage() == "sleeper has ended with status -9"


async def test_frozen_child_can_be_stopped(make):
    child = make(SLEEP)
    await child.start()
    process = psutil.Process(child.pid)

    child.freeze()
    await eventually(lambda: process.status() == psutil.STATUS_STOPPED)
    child.thaw()
    await eventually(lambda: process.status() != psutil.STATUS_STOPPED)
    child.freeze()
    await child.stop()

    assert not process.is_running()


async def test_child_that_ignores_sigterm_is_killed(make, tmp_path):
    deaf = tmp_path / "deaf"
    program = (
        "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f"pathlib.Path({str(deaf)!r}).touch(); time.sleep(600)"
    )
    child = make(program)
    await child.start()
    await eventually(deaf.exists)

    await child.stop(timeout_s=0.2)

    assert child.pid is None


async def test_large_log_is_put_aside(make, tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "MAX_LOG_BYTES", 10)
    log_file = tmp_path / "logs" / "sleeper.log"
    log_file.parent.mkdir()
    log_file.write_text("old and long\n")

    child = make(SLEEP)
    await child.start()

    assert log_file.with_suffix(".old").read_text() == "old and long\n"


PARENT = """
import asyncio, os, pathlib, sys
from partq.embedded.child import Child

async def main():
    async def is_ready():
        return True
    child = Child("orphan", ("sleep", "600"), probe=is_ready,
                  log_file=pathlib.Path(sys.argv[1]) / "orphan.log", env=os.environ)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")
def test_no_orphan_after_kill_of_the_parent(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()

        parent.send_signal(signal.SIGKILL)
        parent.wait(TIMEOUT_S)

    asyncio.run(
        eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
    )
