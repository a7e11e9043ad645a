"""How much one broker may store before it hears again how much the whole queue holds.

A queue's quota counts the bytes of all partitions, at all brokers. Their sum is read about each
second; what is left of the quota then is shared out evenly, so brokers that know the same sum
cannot exceed it together. One that goes by an older sum holds a share that the newer one does not
know of: the quota is exceeded by less than what was left at the older reading. With one broker it
is never exceeded.
"""

from dataclasses import dataclass
from enum import Enum

SCARCE_QUOTA_SHARE = 0.8
"""From this share of the quota on the queue keeps less of what is acknowledged."""


class StorageRoom(Enum):
    """Whether there is room for messages that all groups have acknowledged."""

    AMPLE = "ample"
    SCARCE = "scarce"
    """They make room step by step, before publishes are refused."""
    NONE = "none"
    """Nothing of them stays."""


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """What a call may store."""

    room_bytes: int | None
    """None: as much as it wants."""
    reserved_bytes: int = 0
    """What is held for it until it is settled."""


class QuotaShare:
    """A broker's share of what is left."""

    def __init__(self) -> None:
        self._left_bytes = 0
        self._whole_bytes = 0
        self._is_fresh = False
        self._under_way_bytes = 0
        self._stored_bytes = 0
        self._refused_bytes: int | None = None
        self.is_scarce = False
        """As of the last sum the greater part of the quota is used."""
        self.is_used_up = False
        """As of the last sum nothing is left, or less than what was refused."""

    def observe(self, *, max_bytes: int, used_bytes: int, brokers: int) -> None:
        """Take a new sum of the queue, of which `brokers` (1 or more) share what is left.

        What was stored here since the sum before may not be in this one; it is taken off, and so
        is what is under way. Before the first sum nothing may be stored.
        """
        unseen_bytes = self._stored_bytes + self._under_way_bytes
        self._whole_bytes = max_bytes - used_bytes - unseen_bytes
        self._left_bytes = (max_bytes - used_bytes) // brokers - unseen_bytes
        self._is_fresh = True
        self._stored_bytes = 0
        # By the sum alone: what is taken off may be in it, and the warning would be a false one.
        left_bytes = max_bytes - used_bytes
        if self._refused_bytes is not None and self._refused_bytes <= left_bytes:
            self._refused_bytes = None
        self.is_scarce = used_bytes >= max_bytes * SCARCE_QUOTA_SHARE
        self.is_used_up = left_bytes <= 0 or self._refused_bytes is not None

    def take(self, *, size_bytes: int, first_bytes: int) -> StorageGrant:
        """Return how much a call may store of the `size_bytes` of its batches.

        `first_bytes` is the size of its first batch. One batch that is larger than the share, and
        fits into all that is left, is stored all the same, one for each sum: it would never be
        otherwise.
        """
        room_bytes = max(0, self._left_bytes)
        if self._is_fresh and room_bytes < first_bytes <= self._whole_bytes:
            room_bytes = first_bytes
        self._is_fresh = False
        if room_bytes < first_bytes:
            # The smallest of them: once it fits, the quota is not what stops everything.
            self._refused_bytes = min(first_bytes, self._refused_bytes or first_bytes)
        reserved_bytes = min(room_bytes, size_bytes)
        self._left_bytes -= reserved_bytes
        self._under_way_bytes += reserved_bytes
        return StorageGrant(room_bytes, reserved_bytes)

    def account(self, grant: StorageGrant, stored_bytes: int) -> None:
        """Take the outcome of a call that a grant was for; unknown: all of it counts as stored."""
        if grant.room_bytes is None:
            return
        self._under_way_bytes -= grant.reserved_bytes
        self._stored_bytes += stored_bytes
        self._left_bytes += grant.reserved_bytes - stored_bytes
