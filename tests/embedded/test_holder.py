"""Only the runtime that holds a data directory is ended, whatever number its lock names."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from partq.embedded import holder
from partq.embedded.holder import end_holder, wait_until_free
from partq.errors import SettingsError, UnavailableError

HOLD = """
import fcntl, os, sys
with open(sys.argv[1], "a+") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.truncate(0)
    lock.write(sys.argv[2] or str(os.getpid()))
    lock.flush()
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(directory, number=""):
    """Run a process that holds the lock, and has written its number or another text into it."""
    command = [sys.executable, "-c", HOLD, str(directory / "lock"), number]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


@pytest.fixture
def bystander():
    """A process of this user that has nothing to do with it."""
    program = "import sys; sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        yield process
        assert process.poll() is None, "it was ended"
        process.kill()


def test_the_process_that_holds_it_is_ended(tmp_path):
    with holding(tmp_path) as process:
        assert not wait_until_free(tmp_path, 0)
        assert end_holder(tmp_path) == process.pid
        assert process.wait(60) == -15
    assert wait_until_free(tmp_path, 0)
    assert end_holder(tmp_path) is None


def test_a_number_that_was_left_behind_is_not_believed(tmp_path, bystander):
    (tmp_path / "lock").write_text(f"{bystander.pid}\n")
    assert end_holder(tmp_path) is None


@pytest.mark.parametrize("text", ["", "0", "1", "-1", "x", "9" * 30, "999999999"])
def test_a_lock_that_names_no_process_ends_none(tmp_path, monkeypatch, text):
    monkeypatch.setattr(holder, "NAMED_TIMEOUT_S", 0.0)
    with holding(tmp_path, text or " ") as process:
        with pytest.raises(UnavailableError, match="find the process that has the file open"):
            end_holder(tmp_path)
        assert process.poll() is None


def test_a_process_that_does_not_hold_it_is_spared(tmp_path, monkeypatch, bystander):
    """Another runtime has taken the directory, and not written its number yet."""
    monkeypatch.setattr(holder, "NAMED_TIMEOUT_S", 0.0)
    with (
        holding(tmp_path, str(bystander.pid)),
        pytest.raises(UnavailableError, match=f"it names {bystander.pid}, which does not hold it"),
    ):
        end_holder(tmp_path)


def test_without_knowing_open_files_the_directory_must_be_private(tmp_path, monkeypatch):
    monkeypatch.setattr(holder, "_PROCESSES", tmp_path / "proc")
    with holding(tmp_path) as process:
        tmp_path.chmod(0o770)
        with pytest.raises(SettingsError, match="got mode 0770"):
            end_holder(tmp_path)
        tmp_path.chmod(0o700)
        assert end_holder(tmp_path) == process.pid


def test_a_directory_that_nothing_ran_on(tmp_path):
    assert end_holder(tmp_path / "none") is None
