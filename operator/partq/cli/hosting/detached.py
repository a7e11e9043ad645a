"""`partq dev up --detach`: the same command in the background, until it serves or has failed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from partq.cli.errors import WrongInputError
from partq.embedded.data_dir import DataDir
from partq.embedded.log_files import open_log
from partq.errors import SettingsError, UnavailableError

READY_TIMEOUT_S = 180.0
"""Longer than the runtime itself waits for its parts: it ends with a better reason."""
END_TIMEOUT_S = 30.0
POLL_S = 0.1
SHOWN_LINES = 20
SHOWN_BYTES = 16 * 1024
WRONG_INPUT = WrongInputError.exit_code
PREFIX = "partq: "
"""Errors begin with it, in the log, too: they are shown as part of an error."""


def start_detached(directory: DataDir, arguments: Sequence[str]) -> int:
    """Run `partq ARGUMENTS`, which hold the directory, in the background; return its pid.

    It returns when the queues are served, and shows on standard error what the command has warned
    of meanwhile. Otherwise nothing runs on.

    Raises:
        SettingsError: another runtime holds the directory, it cannot be written, or the command
            refused what it was given; with the last lines of its log.
        UnavailableError: the command has failed otherwise; with the same.
    """
    directory.refuse_if_held()
    directory.make()
    log_file = directory.log("dev")
    with open_log(log_file) as log:
        start = os.fstat(log.fileno()).st_size
        # Its output has the tokens. In a new session it does not end with the terminal.
        child = subprocess.Popen(
            [sys.executable, "-m", "partq.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait(child, directory, partial(_tail, log_file, start))
    except BaseException:
        _end(child)
        raise
    for warning in _warnings(log_file, start):
        click.echo(warning, err=True)
    return child.pid


def _wait(child: "subprocess.Popen[bytes]", directory: DataDir, tail: Callable[[], str]) -> None:
    until = time.monotonic() + READY_TIMEOUT_S
    while not (_is_holder(child.pid, directory) and directory.state_file.exists()):
        if child.poll() is not None:
            kind = SettingsError if child.returncode == WRONG_INPUT else UnavailableError
            raise kind(
                f"`partq dev up` has ended with status {child.returncode} before the queues were "
                f"served; {tail()}"
            )
        if time.monotonic() > until:
            raise UnavailableError(
                f"the queues are not served after {READY_TIMEOUT_S:g} s; {tail()}"
            )
        time.sleep(POLL_S)


def _is_holder(pid: int, directory: DataDir) -> bool:
    return directory.is_held() and directory.read_pid() == pid


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the command in order, else at once: the kernel ends its children then."""
    child.terminate()
    try:
        child.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _tail(file: Path, start: int) -> str:
    """Return the last of what was logged from an offset of the log file on."""
    shown = (line.removeprefix(PREFIX) for line in _lines(file, start)[-SHOWN_LINES:])
    return "\n".join((f"the end of {file}:", *shown))


def _warnings(file: Path, start: int) -> list[str]:
    """Return the last warnings that were logged from an offset of the log file on."""
    return [line for line in _lines(file, start) if " WARNING " in line][-SHOWN_LINES:]


def _lines(file: Path, start: int) -> list[str]:
    with file.open("rb") as opened:
        opened.seek(max(start, os.fstat(opened.fileno()).st_size - SHOWN_BYTES))
        return opened.read(SHOWN_BYTES).decode(errors="replace").splitlines()
