"""A worker process as its driver holds it: start, signal, wait; never left behind."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from partq.embedded.tether import tethered


class WorkerProcess:
    """A Python module of partq that runs in a separate process."""

    def __init__(self, name: str, process: Process, log_path: Path) -> None:
        self.name = name
        self._process = process
        self._log_path = log_path

    @classmethod
    async def start(
        cls, name: str, module: str, args: Sequence[str], *, env: Mapping[str, str], directory: Path
    ) -> Self:
        """Start `python -m module args`; what it writes is appended to `directory/NAME.log`.

        `env` is added to this process's environment. Ctrl-C on the terminal does not reach the
        process, but it does not outlive this one.

        Raises:
            OSError: the process cannot be started.
        """
        log_path = directory / f"{name}.log"
        with log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *tethered(sys.executable, "-m", module, *args),
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **env},
                start_new_session=True,
            )
        return cls(name, process, log_path)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; one that comes too late does nothing."""
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def kill(self) -> None:
        """End it with -9 and see it gone."""
        self.signal(signal.SIGKILL)
        await self._process.wait()

    async def wait(self, timeout_s: float) -> int:
        """Return its exit code.

        Raises:
            TimeoutError: it still runs.
        """
        async with asyncio.timeout(timeout_s):
            return await self._process.wait()

    async def stop(self, timeout_s: float) -> bool:
        """Ask it to leave; False when it had to be killed in the end."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            await self.wait(timeout_s)
        except TimeoutError:
            await self.kill()
            return False
        return True

    def last_words(self) -> str:
        """Return the end of what it has written, for an error message."""
        with self._log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
            return log.read().decode(errors="replace").strip()
