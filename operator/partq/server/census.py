"""Counts the connections of a server by caller, and picks one to cut if there are too many."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

from partq.server.limits import ServerLimits


class Cuttable(Protocol):
    """A connection, as far as it is counted."""

    def cut(self) -> None:
        """Drop it at once, without a word."""


@dataclass(slots=True)
class Census:
    """Counts connections by token, and by address as long as they have shown none.

    A caller without a token can fill no more than its share, and does not keep others out: where
    there are too many, the oldest of the same kind goes.
    """

    limits: ServerLimits
    on_refused: Callable[[str], None] = field(default=lambda reason: None)
    """Called with `total`, `address` or `token` for each connection that is cut or refused."""
    _unknown: dict[str, dict[Cuttable, None]] = field(default_factory=dict)
    """By address; the oldest first."""
    _unknown_order: dict[Cuttable, str] = field(default_factory=dict)
    _known: dict[Cuttable, Hashable] = field(default_factory=dict)
    _by_token: dict[Hashable, int] = field(default_factory=dict)

    @property
    def known_count(self) -> int:
        """Connections that have shown a token."""
        return len(self._known)

    @property
    def unknown_count(self) -> int:
        """Connections that have shown none."""
        return len(self._unknown_order)

    def enter(self, connection: Cuttable, address: str) -> bool:
        """Count a new connection; return whether it may stay."""
        mine = self._unknown.get(address, {})
        if len(mine) >= self.limits.max_connections_per_address:
            self._cut(next(iter(mine)), "address")
        elif len(self._unknown_order) >= self.limits.max_unknown or (
            self._unknown_order and self._is_full
        ):
            self._cut(next(iter(self._unknown_order)), "total")
        elif self._is_full:
            self.on_refused("total")
            return False
        self._unknown.setdefault(address, {})[connection] = None
        self._unknown_order[connection] = address
        return True

    def identify(self, connection: Cuttable, token: Hashable) -> bool:
        """Note whose connection it is; return whether the token may have one more.

        One that may not is counted as before.
        """
        before = self._known.get(connection)
        if before == token:
            return True
        if connection not in self._known and connection not in self._unknown_order:
            return True  # it has ended, or was cut
        if self._by_token.get(token, 0) >= self.limits.max_connections_per_token:
            self.on_refused("token")
            return False
        self.leave(connection)
        self._known[connection] = token
        self._by_token[token] = self._by_token.get(token, 0) + 1
        return True

    def leave(self, connection: Cuttable) -> None:
        """Forget a connection; a repeat does nothing."""
        address = self._unknown_order.pop(connection, None)
        if address is not None:
            mine = self._unknown[address]
            del mine[connection]
            if not mine:
                del self._unknown[address]
        token = self._known.pop(connection, None)
        if token is not None:
            self._by_token[token] -= 1
            if not self._by_token[token]:
                del self._by_token[token]

    @property
    def _is_full(self) -> bool:
        return len(self._known) + len(self._unknown_order) >= self.limits.max_connections

    def _cut(self, connection: Cuttable, reason: str) -> None:
        self.on_refused(reason)
        self.leave(connection)
        connection.cut()
