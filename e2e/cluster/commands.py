"""Running other programs: with a limit of time, with errors that show their output, and in turn."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from partq.testing import eventually_blocking

_TAIL_LINES = 15


class ClusterError(Exception):
    """The cluster, or something it needs, could not be had. The message says what to do."""


def say(text: str) -> None:
    """Show a line of progress. On stderr, so that `run` leaves stdout to the command."""
    sys.stderr.write(f"cluster: {text}\n")
    sys.stderr.flush()


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    stdin: str = "",
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return what it wrote.

    Args:
        argv: the program and its arguments; no shell.
        timeout_s: after this long it is killed.
        stdin: its standard input.
        check: an exit status other than 0 is an error.
        env: variables beside those of this process.
        cwd: where it runs.

    Raises:
        ClusterError: it cannot be started, took too long, or (with `check`) failed.
    """
    name = " ".join(str(word) for word in argv[:6])
    try:
        result = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{name} ...: no end after {timeout_s:g} s") from error
    except OSError as error:
        raise ClusterError(f"{name} ...: {error}") from error
    if check and result.returncode != 0:
        output = tail(result.stderr + result.stdout)
        raise ClusterError(f"{name} ...: exit status {result.returncode}\n{output}")
    return result


def run_long(
    argv: Sequence[str | Path], *, log: Path, what: str, timeout_s: float, every_s: float = 20
) -> None:
    """Run a program that takes minutes: its output goes to `log`, a line of progress to the user.

    Raises:
        ClusterError: it failed or took longer than `timeout_s`; the end of its log is shown.
    """
    began = time.monotonic()
    say(f"{what} ...")
    with log.open("w") as output, log.open() as written:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a separate process group: what it started is stopped with it
        )
        try:
            step = ""
            while (status := _status(process, within_s=every_s)) is None:
                took_s = time.monotonic() - began
                if took_s > timeout_s:
                    raise ClusterError(f"{what}: no end after {took_s:.0f} s; see {log}")
                step = _last_step(written.read()) or step
                say(f"{what} ... {took_s:.0f} s{step}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status != 0:
        raise ClusterError(f"{what} failed; all of it is in {log}\n{tail(log.read_text())}")
    say(f"{what} ... done ({time.monotonic() - began:.0f} s)")


def wait_for(
    what: str, is_true: Callable[[], object], *, timeout_s: float, every_s: float = 0.2
) -> None:
    """Return as soon as `is_true()` is, which is asked every `every_s` seconds.

    Raises:
        ClusterError: it was not for `timeout_s` seconds.
    """
    try:
        eventually_blocking(is_true, what, timeout_s=timeout_s, interval_s=every_s)
    except AssertionError as error:
        raise ClusterError(str(error)) from None


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time work in `folder`, which is made; the others wait for their turn."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that works in {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def tail(text: str) -> str:
    """Return the last lines of `text`: what explains a failure, as a rule."""
    return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])


def _status(process: subprocess.Popen[bytes], *, within_s: float) -> int | None:
    """Return the exit status of a process; None if it still runs after `within_s` seconds."""
    try:
        return process.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        return None


def _last_step(output: str) -> str:
    """Return the last step that `output` reports (`== step`), to end a line of progress."""
    steps = [line[3:] for line in output.splitlines() if line.startswith("== ")]
    return f": {steps[-1]}" if steps else ""
