"""How far the audit record of a partition has come, as the partition's own record says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from partq.wire.audit import GENESIS


@dataclass(frozen=True, slots=True)
class AuditState:
    """The audit record of one partition."""

    is_on: bool = False
    """Whether what happens is written down."""
    first: int = 0
    """Sequence of the first group that is stored."""
    next: int = 0
    """Sequence of the next group; 0: there has never been one."""
    chain: str = GENESIS
    """The chain after the last group."""
    stored_bytes: int = 0
    """Of the groups that are stored."""

    @classmethod
    def of(cls, fields: Mapping[bytes, bytes]) -> Self:
        """Read it from the hash `meta`."""
        is_on = b"audit" in fields
        state = fields.get(b"audit", fields.get(b"audit_off"))
        if state is None:
            return cls()
        following, chain, written, _ = state.decode().split(" ", 3)
        first, freed = fields.get(b"audit_trimmed", b"0 0").split(b" ")
        return cls(is_on, int(first), int(following), chain, int(written) - int(freed))
