"""Ends the runtime that holds a data directory, and no other process.

A number in a file says little: its process may have ended, and another may have got the number. So
the process must be one of this user that has the lock file open, while the lock is held. The signal
goes through a descriptor of the process, where the system has these: it never means a later one.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from partq.embedded.data_dir import DataDir
from partq.errors import SettingsError, UnavailableError

NAMED_TIMEOUT_S = 5.0
"""How long a runtime that has taken the lock may take to write its number."""
POLL_S = 0.05
_PROCESSES = Path("/proc")


def end_holder(directory: Path) -> int | None:
    """Send SIGTERM to the runtime that holds a data directory, and return its process's number.

    Returns:
        None: no runtime holds it.

    Raises:
        SettingsError: the lock cannot be read; or the system does not say which files a process
            has open, and others may write the directory, so that its lock says nothing.
        UnavailableError: the process that holds it cannot be told for certain; nothing was sent.
    """
    data_dir = DataDir(directory)
    lock = data_dir.lock_file
    until = time.monotonic() + NAMED_TIMEOUT_S
    while data_dir.is_held():
        pid = data_dir.read_pid()
        if pid is not None and _signal(pid, lock):
            return pid
        if time.monotonic() > until:
            raise UnavailableError(
                f"{lock}: held, and it names {pid or 'no process'}, which does not hold it; find "
                "the process that has the file open, and end it"
            )
        time.sleep(POLL_S)
    return None


def wait_until_free(directory: Path, timeout_s: float) -> bool:
    """Wait until no runtime holds a data directory; False: one still does after this time."""
    until = time.monotonic() + timeout_s
    while DataDir(directory).is_held():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def _check_owner(path: Path) -> None:
    found = path.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise SettingsError(
            f"{path}: got mode {found.st_mode & 0o777:04o} and owner {found.st_uid}, expected one "
            f"that only its owner {os.getuid()} may write: others could name any process in it"
        )


def _signal(pid: int, lock: Path) -> bool:
    """Send SIGTERM to a process if it is the one that has the lock file open."""
    with suppress(ProcessLookupError), _process(pid) as descriptor:
        if not _has_open(pid, lock):
            return False
        if descriptor is None:
            os.kill(pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        return True
    return False


@contextmanager
def _process(pid: int) -> Iterator[int | None]:
    """Give a descriptor that means this process alone; None: the system has no such thing.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_open(pid: int, lock: Path) -> bool:
    if not _PROCESSES.joinpath("self", "fd").exists():
        _check_owner(lock.parent)
        return True
    wanted = lock.stat()
    found = False
    with suppress(OSError):  # the process has ended, or belongs to another user
        for each in _PROCESSES.joinpath(str(pid), "fd").iterdir():
            with suppress(OSError):
                opened = each.stat()
                found |= (opened.st_dev, opened.st_ino) == (wanted.st_dev, wanted.st_ino)
    return found
