"""One child process that is kept running: started, watched, restarted, stopped."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from partq.aio import Backoff, cancel_and_wait
from partq.embedded.log_files import open_log
from partq.embedded.tether import tethered
from partq.errors import UnavailableError

log = logging.getLogger("partq.embedded")

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
FIRST_RESTART_DELAY_S = 0.1
LAST_RESTART_DELAY_S = 5.0
STEADY_AFTER_S = 10.0
"""A process that has run for this long is restarted after the first delay again."""
LOG_TAIL_BYTES = 1000

Probe = Callable[[], Awaitable[bool]]
"""Says whether a process does its work; bounds its own time."""


class Child:
    """A command that runs until it is told otherwise.

    A process that ends by itself, or by `kill`, is started again after 0.1 s, and later and later
    (at most 5 s) while it does not stay. One that ends before it was ever ready is not: `start`
    raises then.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        probe: Probe,
        log_file: Path,
        env: Mapping[str, str],
    ) -> None:
        self.name = name
        self.keep_running = True
        """Whether a process that has ended is started again. May be set at any time."""
        self.restart_count = 0
        self._command = tuple(command)
        self._env = dict(env)
        self._probe = probe
        self._log_file = log_file
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._was_ready = False
        self._log_start = 0
        """Where the log of the process that runs begins."""

    @property
    def pid(self) -> int | None:
        """The process id; None while no process runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process, and wait until it is ready. Nothing happens while it runs.

        Raises:
            UnavailableError: it ended or was not ready in time; it is stopped then.
        """
        if self._watcher is not None and not self._watcher.done():
            return
        self._was_ready = False
        await self._spawn()
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self.name}")
        try:
            await self.ready(timeout_s)
        except BaseException:
            await self.stop()
            raise
        self._was_ready = True

    async def ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the process does its work, also while it is being restarted.

        Raises:
            UnavailableError: it is down for good, or was not ready in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self.pid is None or not await self._probe():
                    if self._watcher is None or self._watcher.done():
                        raise UnavailableError(f"{self.name} has ended{self._log_tail()}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise UnavailableError(
                f"{self.name} is not ready after {timeout_s:g} s{self._log_tail()}"
            ) from None

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the process: SIGTERM, and SIGKILL when it is still there after `timeout_s`."""
        await cancel_and_wait(self._watcher)
        self._watcher = None
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGCONT)  # a frozen process hears nothing else
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            log.warning("%s does not end after %g s: it is killed", self.name, timeout_s)
        finally:
            # Also when the wait was cancelled: no process outlives its owner.
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def kill(self) -> None:
        """Kill the process with SIGKILL and wait until it is gone.

        Raises:
            UnavailableError: none runs.
        """
        process = self._running()
        _signal(process, signal.SIGKILL)
        await process.wait()

    def freeze(self) -> None:
        """Hold the process with SIGSTOP: it does nothing until `thaw`; raises as `kill`."""
        _signal(self._running(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process continue; raises as `kill`."""
        _signal(self._running(), signal.SIGCONT)

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            raise UnavailableError(f"{self.name} is not running")
        return self._process

    async def _spawn(self) -> None:
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with open_log(self._log_file) as log_file:
            self._log_start = os.fstat(log_file.fileno()).st_size
            self._process = await self._execute(log_file)

    async def _execute(self, log_file: IO[bytes]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *tethered(*self._command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            env=self._env,
            # Ctrl-C in the terminal is for the parent, which stops its children in order.
            start_new_session=True,
        )

    async def _watch(self) -> None:
        delay = Backoff(FIRST_RESTART_DELAY_S, LAST_RESTART_DELAY_S)
        while self._process is not None:
            began = time.monotonic()
            status = await self._process.wait()
            if not (self.keep_running and self._was_ready):
                log.warning(
                    "%s has ended with status %d%s", self.name, status, self._last_words(status)
                )
                return
            if time.monotonic() - began > STEADY_AFTER_S:
                delay.reset()
            delay_s = delay.next_s()
            log.warning(
                "%s has ended with status %d%s; starting it in %g s",
                *(self.name, status, self._last_words(status), delay_s),
            )
            await asyncio.sleep(delay_s)
            try:
                await self._spawn()
            except OSError as error:
                log.error("%s cannot be started: %s", self.name, error)
                continue
            self.restart_count += 1

    def _last_words(self, status: int) -> str:
        """Return what a process wrote before it ended by itself; one that was killed wrote nothing.

        Two lines: Redis writes the cause into the last but one.
        """
        if status < 0:
            return ""
        told = " / ".join(self._log_lines(self._log_start)[-2:])
        return f": {told} (log: {self._log_file})" if told else f" (log: {self._log_file})"

    def _log_tail(self) -> str:
        """Return what to read, and its end."""
        lines = self._log_lines(0)
        last = f": {lines[-1]}" if lines else ""
        return f"{last} (log: {self._log_file})"

    def _log_lines(self, start: int) -> list[str]:
        """Return the last lines of the log, from a place on."""
        try:
            with self._log_file.open("rb") as log_file:
                size = os.fstat(log_file.fileno()).st_size
                log_file.seek(max(start, size - LOG_TAIL_BYTES))
                return log_file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return []


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal; a process that has just ended needs none."""
    with suppress(ProcessLookupError):
        process.send_signal(number)
