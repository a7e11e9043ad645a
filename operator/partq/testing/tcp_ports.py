"""Ports of loopback for servers that a test kills and starts again."""

import atexit

from partq.embedded.tcp_ports import HOST, HeldPorts

__all__ = ["HOST", "free_port"]

_ports = HeldPorts(range(10_000, 20_000), most=256)
"""Below those that Linux gives to outgoing connections, as are those 10,000 above: a process
that is killed and started again finds its port as it was."""
atexit.register(_ports.close)


def free_port(*, beside: int = 0) -> int:
    """Return a port that nobody listens on; nobody else gets it while this process lives.

    `beside`, at most 10,000: so far above it is another one that nobody listens on.

    Raises:
        OSError: every port is taken.
    """
    return _ports.take(beside=beside)
