"""A Redis of the tests of one file, which they may kill and give an older file back."""

import asyncio
import os
import shutil
import signal
from itertools import count

from partq.testing.redis_server import RedisServer

_numbers = count(1)


class OwnRedis:
    """Keeps what it confirms, unless it is rolled back."""

    def __init__(self, directory, server=None):
        self._directory = directory
        self.server = server or RedisServer()
        self.server.start(directory / "data")

    def freeze(self):
        os.kill(self.server.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.server.pid, signal.SIGCONT)

    async def restart(self):
        await asyncio.to_thread(self._restart, None)

    def back_up(self):
        """Keep what is on disk by now."""
        copy = self._directory / f"copy{next(_numbers)}"
        shutil.copytree(self._directory / "data", copy)
        return copy

    async def roll_back(self, copy):
        """Start again on what was there then: all that was confirmed since is lost."""
        await asyncio.to_thread(self._restart, copy)

    def _restart(self, copy):
        self.server.kill()
        if copy is not None:
            shutil.rmtree(self._directory / "data")
            shutil.copytree(copy, self._directory / "data")
        self.server.start(self._directory / "data")
