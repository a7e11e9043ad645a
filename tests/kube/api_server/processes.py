"""Processes of a test, each stopped by whoever started it, and the waiting for what they do."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from partq.embedded.tether import tethered
from partq.testing import eventually_blocking

POLL_S = 0.1
WAIT_S = 40.0
"""How long a test waits for what takes a second or two on a machine that has nothing else to do.

Shorter than the operator's own limits, `PODS_LIMIT_S` and `REPAIR_S` say: what they bring about in
the end must not pass for what was to come at once.
"""
_LOG_TAIL = 3000

eventually = partial(eventually_blocking, timeout_s=WAIT_S, interval_s=POLL_S)


class Process:
    """A child process whose output goes to a file; the kernel kills it if the tests are killed."""

    def __init__(
        self, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._argv = argv
        self._env = {**os.environ, **(env or {})}
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again if it has ended."""
        with self.log.open("ab") as output:
            self._popen = subprocess.Popen(
                tethered(*self._argv),
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Control-C is for the tests, which stop it
            )

    @property
    def is_running(self) -> bool:
        """Whether it lives."""
        return self._popen is not None and self._popen.poll() is None

    def require(self) -> None:
        """See that it still lives.

        Raises:
            AssertionError: it does not; the message is the end of its output.
        """
        assert self.is_running, f"{self._argv[0]} has ended:\n{self.output()[-_LOG_TAIL:]}"

    def output(self) -> str:
        """Return all that it has written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self._popen is not None:
            self._popen.terminate()

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """Wait for its end and return its exit status."""
        assert self._popen is not None
        return self._popen.wait(timeout_s)

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
