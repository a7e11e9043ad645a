"""A separate redis-server, on loopback, for tests."""

import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from partq.embedded.redis_process import find_redis_server
from partq.errors import SettingsError
from partq.testing.tcp_ports import HOST, free_port

_POLL_S = 0.01


class RedisServer:
    """One redis-server process. It keeps what it has confirmed: every write is synced to disk."""

    def __init__(self, program: Path | None = None) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"redis://{HOST}:{self._port}/0"

    @property
    def port(self) -> int:
        """The port on loopback; 0 before the first start."""
        return self._port

    @property
    def pid(self) -> int | None:
        """The process; None while none runs."""
        return self._process.pid if self._process is not None else None

    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        config: dict[str, str] | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        """Start on what `data_dir` holds, and return when it answers.

        `port` 0: the one of the last start, else a free one. `config` goes over our settings. Its
        log is `redis.log` in `data_dir`.

        Raises:
            SettingsError: there is no redis-server, or it does not answer within `timeout_s`; then
                none runs.
        """
        if self.is_running():
            raise SettingsError(f"redis-server: it runs already, on port {self._port}")
        data_dir.mkdir(parents=True, exist_ok=True)
        self._port = port or self._port or free_port()
        settings = {
            "bind": HOST,
            "port": str(self._port),
            "dir": str(data_dir),
            "logfile": "redis.log",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "daemonize": "no",
            **(config or {}),
        }
        command = [str(self._program or find_redis_server())]
        for name, value in settings.items():
            command += (f"--{name}", value)
        self._process = subprocess.Popen(
            command,
            cwd=data_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Control-C in a terminal is for us; we stop it when nobody needs it any more.
            start_new_session=True,
        )
        try:
            self._wait_until_ready(timeout_s, data_dir)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the process in good order, with force after `timeout_s`; a repeat does nothing."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL); a repeat does nothing."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_ready(self, timeout_s: float, data_dir: Path) -> None:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if not self.is_running():
                raise SettingsError(f"redis-server: it ended at once; see {data_dir / 'redis.log'}")
            if _answers_ping(self._port):
                return
            time.sleep(_POLL_S)
        raise SettingsError(
            f"redis-server: no answer within {timeout_s} s; see {data_dir / 'redis.log'}"
        )


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False
