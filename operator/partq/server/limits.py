"""How much of a server one caller may hold, and for how long."""

import resource
from dataclasses import dataclass

SPARE_FILES = 256
"""Files that are left for everything else that a process opens."""
MIN_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of one server; times in seconds."""

    max_connections: int
    """Open connections, of all callers together."""
    max_connections_per_token: int
    """Open connections whose last call came with one token."""
    max_connections_per_address: int
    """Open connections of one address that have not shown a token yet."""
    headers_s: float
    """From the first byte of a request, or from the opening of a connection, to its last header."""
    body_s: float
    """From the last header to the last byte of the body."""
    answer_s: float
    """How long a caller may take to read its answer."""
    idle_s: float
    """How long a connection stays open between two requests."""

    @property
    def max_unknown(self) -> int:
        """How many connections without a token may be open, of all addresses together."""
        return max(1, self.max_connections // 2)


def open_connections(wanted: int) -> int:
    """Return how many connections a process may take: `wanted`, or fewer where files are scarce.

    Raises the soft limit of open files as far as the hard one allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(MIN_CONNECTIONS, min(wanted, soft - SPARE_FILES))
