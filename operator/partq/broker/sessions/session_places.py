"""Which partition has a session, also while a change of the partition count gives it to another."""

from collections.abc import Callable, Mapping

from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.sessions.session_shares import SessionShares
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.sessions.interned_sessions import partition_of_keyless
from partq.errors import UnavailableError


class SessionPlaces:
    """Finds the partition of a session, among those of a broker and of the layout.

    Args:
        owned: the partitions of the broker.
        layout: as it was read last; None: it was not yet.
        shares_of: the sessions of a partition; None: it has none, for now.
    """

    def __init__(
        self,
        owned: Mapping[PartitionId, OwnedPartition],
        layout: Callable[[], Layout | None],
        shares_of: Callable[[ConsumedPartition], SessionShares | None],
    ) -> None:
        self._owned = owned
        self._layout = layout
        self._shares_of = shares_of

    def all_of(self, session: str) -> list[PartitionId]:
        """Return the partitions in which a session may have messages, the oldest first.

        The last one takes its new messages.

        Raises:
            BadRequestError: no key is like it.
            UnknownPartitionError: it names a partition that the queue does not have.
            UnavailableError: the layout was not read yet.
        """
        layout = self._layout()
        if layout is None:
            raise UnavailableError("the layout was not read yet; ask again", retry_after_s=1.0)
        partition = partition_of_keyless(session)
        if partition is None:
            return layout.history_of(slot_of(session))
        if partition not in layout:
            raise layout.unknown(partition)
        return [partition]

    def here(self, group: str, session: str, number: int = 0) -> PartitionId:
        """Return the first partition here that has the lock, or open messages, of a session.

        If none of those that the session has left has, it is the one that takes its new messages.
        `number`: of the lock that a member had; 0: it had none. Until the group has done with a
        partition without a gate, no later one can have the lock, so it knows whether it lasts.

        Raises:
            PartqError: as of `all_of`.
        """
        *left, last = self.all_of(session)
        return next((each for each in left if self._has(group, session, each, number)), last)

    def may_come(self, group: str, session: str, number: int = 0) -> bool:
        """Whether a partition here that a session has left may have messages of it, not read yet.

        And none before it has the session, as of `here`.
        """
        for partition in self.all_of(session)[:-1]:
            if self._has(group, session, partition, number):
                return False
            if self._is_unread(group, session, partition):
                return True
        return False

    def _is_unread(self, group: str, session: str, partition: PartitionId) -> bool:
        owned = self._owned.get(partition)
        consumed = owned.groups.get(group) if owned is not None else None
        shares = self._shares_of(consumed) if consumed is not None else None
        if consumed is None or shares is None or shares.has_read.is_set():
            return False
        stop = self.left_at(consumed, session)
        return stop is None or shares.book.read_end < stop

    def _has(self, group: str, session: str, partition: PartitionId, number: int) -> bool:
        owned = self._owned.get(partition)
        consumed = owned.groups.get(group) if owned is not None else None
        shares = self._shares_of(consumed) if consumed is not None else None
        if consumed is None or shares is None:
            return False
        if shares.locks.find(session) is not None or shares.book.has_open(session):
            return True
        stop = self.left_at(consumed, session)
        is_done = stop is not None and shares.book.cursor >= stop
        return number > 0 and not consumed.is_gated and not is_done

    def of_lock(self, group: str, session: str, number: int) -> PartitionId | None:
        """Return the partition of this broker that has a lock of a session; None: none has."""
        for owned in list(self._owned.values()):
            consumed = owned.groups.get(group)
            if consumed is not None and isinstance(consumed.shares, SessionShares):
                lock = consumed.shares.locks.find(session)
                if lock is not None and lock.number == number:
                    return owned.id
        return None

    def left_at(self, consumed: ConsumedPartition, session: str) -> int | None:
        """Return where a log ended when a change gave a session to another partition.

        None: no change has, or the partition is not sealed yet.
        """
        owned, layout = self._owned.get(consumed.partition), self._layout()
        if owned is None or layout is None or not owned.layout.seals:
            return None
        if partition_of_keyless(session) is not None:
            return None
        history = layout.history_of(slot_of(session))
        if consumed.partition not in history:
            return max(owned.layout.seals.values())  # the group has done with all of it
        later = history[history.index(consumed.partition) + 1 :]
        return owned.layout.seals.get(later[0].generation) if later else None
