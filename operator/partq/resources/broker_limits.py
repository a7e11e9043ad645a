"""The bounds of one broker process: its memory, its connections, how long callers may take."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from partq.resources.base import Model

_MIB = 2**20
_Bytes = Annotated[int, Field(ge=_MIB, le=1024 * 1024 * _MIB)]
_Connections = Annotated[int, Field(ge=1, le=100_000)]
_CallSeconds = Annotated[float, Field(ge=0.1, le=600)]
_UNITS = {
    **{f"{unit}i": Decimal(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
    **{unit: Decimal(10 ** (3 * power)) for power, unit in enumerate("kMGTPE", start=1)},
    **{unit: Decimal(10) ** (-3 * power) for power, unit in enumerate("mun", start=1)},
}
"""What the units of Kubernetes's quantities stand for."""


class BrokerLimits(Model):
    """What one broker holds and waits for. Ranges and defaults are those of its settings."""

    pending_bytes: _Bytes = 64 * _MIB
    """Memory for batches that wait to be stored, of all partitions; above it publishes are refused
    for a moment, with `not_stored`."""
    tail_bytes: _Bytes = 64 * _MIB
    """Memory for the newest batches of all partitions; consumers that keep up are served from
    it."""
    read_ahead_bytes: _Bytes = 64 * _MIB
    """Memory for older batches, read from Redis for consumers that are behind."""
    request_memory_bytes: _Bytes = 128 * _MIB
    """Memory for what calls and WebSockets send, and calls are answered; beyond it calls get
    `overloaded`."""
    max_connections: Annotated[int, Field(ge=16, le=100_000)] = 4096
    """The most open connections; half of them at most for callers without a token."""
    max_connections_per_token: _Connections = 2048
    """The most open connections of one token; calls beyond it get `too_many_connections`."""
    max_connections_per_address: _Connections = 256
    """The most open connections of one address without a token; beyond it the oldest is cut."""
    headers_timeout_seconds: _CallSeconds = 10
    """How long the headers of a call may take; then the connection is cut."""
    body_timeout_seconds: _CallSeconds = 30
    """How long the body of a call may take; then it gets `request_timeout`."""
    answer_timeout_seconds: _CallSeconds = 30
    """How long a caller may take to read its answer; then the connection is cut."""
    idle_timeout_seconds: Annotated[float, Field(ge=1, le=3600)] = 75
    """How long a connection stays open between two calls."""

    @property
    def memory_bytes(self) -> int:
        """What all of them may hold together."""
        return (
            self.pending_bytes + self.tail_bytes + self.read_ahead_bytes + self.request_memory_bytes
        )

    def environment(self, prefix: str) -> dict[str, str]:
        """Return the settings of a broker that these are, as variables whose names begin so.

        Without those that are a broker's own defaults: these restart no broker at an upgrade.
        """
        changed = self.model_dump(exclude_defaults=True)
        return {
            prefix + name.replace("_seconds", "_s").upper(): str(value)
            for name, value in changed.items()
        }

    def check_memory(self, given: int | str) -> None:
        """Refuse bounds that a broker could not reach within its memory, a quantity.

        The defaults pass whatever is given: a queue that runs is not refused by an upgrade.

        Raises:
            ValueError: together they are as large, or larger.
        """
        if self != BrokerLimits() and self.memory_bytes >= _amount(given):
            raise ValueError(
                f"limits: got {self.memory_bytes} bytes of memory together, expected less than "
                f"resources.limits.memory, {given}; raise it to about three times as much"
            )


def _amount(quantity: int | str) -> Decimal:
    """Return the number that a quantity stands for."""
    text = str(quantity)
    unit = next((each for each in _UNITS if text.endswith(each)), "")
    return Decimal(text.removesuffix(unit)) * _UNITS.get(unit, Decimal(1))
