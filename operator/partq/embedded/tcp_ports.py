"""Ports of loopback for servers that are about to start, which no other process takes meanwhile."""

import random
import socket
import sys
from collections import deque
from collections.abc import Collection
from typing import Final

HOST: Final = "127.0.0.1"


class HeldPorts:
    """Chooses ports that nobody listens on, and holds them.

    Between the choice and the server's start another process may look for a port, too. So each is
    bound here without listening: a process that chooses in this way finds it taken, while a server,
    which says SO_REUSEADDR, listens on it as if nothing were there. Only Linux allows that;
    elsewhere a port is not held, and a server may find it in use.

    Args:
        among: the ports to choose from.
        most: how many are held at most; the one that was held longest is let go. 0: no bound.
    """

    def __init__(self, among: range, *, most: int = 0) -> None:
        self._among = among
        self._most = most
        self._held: deque[socket.socket] = deque()

    def take(self, *, but: Collection[int] = (), beside: int = 0) -> int:
        """Return a port that nobody listens on or holds, and hold it.

        Args:
            but: ports that are not chosen.
            beside: so far above it is another one that is held with it.

        Raises:
            OSError: every port is taken.
        """
        for port in random.sample(self._among, len(self._among)):
            if port not in but and self._hold({port, port + beside}):
                return port
        raise OSError(
            f"{HOST}: no port from {self._among.start} to {self._among.stop} is free; end what "
            "holds them"
        )

    def close(self) -> None:
        """Let go of all ports; servers that listen on them go on."""
        while self._held:
            self._held.popleft().close()

    def _hold(self, ports: Collection[int]) -> bool:
        bound = []
        try:
            for port in ports:
                bound.append(socket.socket())
                bound[-1].bind((HOST, port))
        except (OSError, OverflowError):  # none of its number, or it is taken
            for each in bound:
                each.close()
            return False
        for each in bound:
            if sys.platform == "linux":
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._held.append(each)
            else:
                each.close()
        while self._most and len(self._held) > self._most:
            self._held.popleft().close()
        return True
