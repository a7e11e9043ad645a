"""Which member of a group has which part of a partition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from partq.core.model import MemberId

NOBODY = -1
"""In the place of a member's index."""


class PartMove(NamedTuple):
    """What a commit is to change: a part passes from one member, or nobody, to another."""

    part: int
    source: MemberId | None
    attempt: int
    """The number of the handoff's attempt, as for a partition: never used twice."""
    target: MemberId | None
    forced: str = ""
    """Why the source was not asked, for the audit record; empty: it was."""


@dataclass(frozen=True, slots=True)
class PartOwners:
    """The members that have the parts of one partition, as a group's record has them."""

    members: tuple[MemberId, ...]
    """Those that have a part, in no order."""
    of: tuple[int, ...]
    """For each part the index of its member in `members`; `NOBODY`: none has it."""
    attempts: tuple[int, ...]
    """For each part the last attempt that has moved it; 0: none has."""

    @classmethod
    def none(cls, count: int) -> Self:
        """Return the parts of a partition of which nobody has one."""
        return cls((), (NOBODY,) * count, (0,) * count)

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.of)

    def owner(self, part: int) -> MemberId | None:
        """Return the member that has a part; None: nobody has it."""
        at = self.of[part]
        return None if at == NOBODY else self.members[at]

    def of_member(self, member: MemberId) -> tuple[int, ...]:
        """Return the parts of a member, rising."""
        return tuple(part for part in range(self.count) if self.owner(part) == member)

    def moved(self, moves: Iterable[PartMove]) -> "PartOwners":
        """Return the parts after moves, whatever their sources."""
        owners = [self.owner(part) for part in range(self.count)]
        attempts = list(self.attempts)
        for move in moves:
            owners[move.part], attempts[move.part] = move.target, move.attempt
        members = tuple(sorted({owner for owner in owners if owner is not None}))
        index: Mapping[MemberId | None, int] = {
            None: NOBODY,
            **{member: at for at, member in enumerate(members)},
        }
        return PartOwners(members, tuple(index[owner] for owner in owners), tuple(attempts))
