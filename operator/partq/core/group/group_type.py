"""The types of groups: how members share the work."""

from enum import StrEnum
from typing import Final


class GroupType(StrEnum):
    """How the members of a group share the partitions."""

    PARTITIONED = "Partitioned"
    """Each member has its share, by the group's strategy."""
    EXCLUSIVE = "Exclusive"
    """One member has all; the others stand by."""
    FAILOVER = "Failover"
    """Each partition has a master, by the strategy `failover`; the others stand by."""
    KEY_SHARED = "KeyShared"
    """Partitions are cut into parts, and each member has its share of these, by `hash_range`."""
    SHARED = "Shared"
    """Any member gets any message: no partition has a member, and nothing is planned."""
    SESSION = "Session"
    """Members lock sessions: no partition has a member, and nothing is planned."""

    @property
    def is_open(self) -> bool:
        """Whether any member may have messages of any partition, and no partition has a member."""
        return self in OPEN_TYPES

    @property
    def is_dealt(self) -> bool:
        """Whether each member has its share; otherwise they have priorities and stand by."""
        return self in (GroupType.PARTITIONED, GroupType.KEY_SHARED)


OPEN_TYPES: Final = frozenset({GroupType.SHARED, GroupType.SESSION})
"""The types whose partitions have no member."""
OPEN_TEXTS: Final = {
    GroupType.SHARED: "any member gets its next message",
    GroupType.SESSION: "members lock its sessions",
}
"""Of each of them: what a partition is, in words."""
OPEN_RULES: Final = {
    GroupType.SHARED: "any member gets the next message of every partition",
    GroupType.SESSION: "members lock the sessions of every partition",
}
"""The same of all partitions."""
