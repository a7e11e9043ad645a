"""A broker that does not serve a client for a while: one warning as it begins, one as it ends."""

import logging

from partq.client.transport.liveness import Clock
from partq.errors import NotListedError, PartqError

log = logging.getLogger("partq.client")

UNLISTED_S = 3.0
"""A member that has just started is listed within this time; only then it is worth a warning."""


class Outage:
    """What a connection has reported about a broker since the last one that worked."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        self._clock = clock
        self._began_at: float | None = None
        self._since: dict[str, float] = {}
        """When each kind of failure was first seen, by its code; of a member that may not bind, the
        same whether the reason is known or not."""
        self._told: set[str] = set()

    def note(self, error: PartqError) -> float:
        """Take a failed try; return for how many seconds they have failed in this way."""
        now = self._clock()
        if self._began_at is None:
            self._began_at = now
        code = error.code
        is_unlisted = isinstance(error, NotListedError)
        for_s = now - self._since.setdefault(NotListedError.code if is_unlisted else code, now)
        is_early = is_unlisted and for_s < UNLISTED_S
        if code not in self._told and not is_early:
            self._told.add(code)
            log.warning("%s: %s; it is tried until one succeeds", self._url, error.message)
        return for_s

    def end(self) -> None:
        """Note that the broker serves this client."""
        if self._began_at is not None and self._told:
            log.warning("%s: serves again, after %.1f s", self._url, self._clock() - self._began_at)
        self._began_at = None
        self._since.clear()
        self._told.clear()
