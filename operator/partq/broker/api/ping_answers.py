"""Answers to the pings of one connection: each shows that the lease was renewed since."""

from collections import deque
from collections.abc import Callable

from partq.broker.ownership.lease import LeaseKeeper

MAX_OPEN = 100
"""Pings of a connection without an answer; no lease was renewed, long enough that its client has
given up."""


class PingAnswers:
    """Answers pings in their order, each after a renewal that began after it came."""

    def __init__(self, lease: LeaseKeeper) -> None:
        self._lease = lease
        self._open: deque[Callable[[], None]] = deque()

    def answer(self, send: Callable[[], None]) -> None:
        """Call `send` for a ping once the lease is renewed; a ping too many gets no answer."""
        if len(self._open) < MAX_OPEN:
            self._open.append(send)
            self._lease.after_renewal(self._renewed)

    def close(self) -> None:
        """Drop pings without an answer: the connection is over."""
        self._open.clear()
        self._lease.forget(self._renewed)

    def _renewed(self) -> None:
        if self._open:  # closed by another answer to the same renewal
            self._open.popleft()()
