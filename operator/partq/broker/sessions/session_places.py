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

    def here(self, group: str, session: str) -> PartitionId:
        """Return the first partition here that has the lock, or open messages, of a session.

        If none of those that the session has left has, it is the one that takes its new messages.

        Raises:
            PartqError: as of `all_of`.
        """
        *left, last = self.all_of(session)
        return next((each for each in left if self._has(group, session, each)), last)

    def _has(self, group: str, session: str, partition: PartitionId) -> bool:
        owned = self._owned.get(partition)
        consumed = owned.groups.get(group) if owned is not None else None
        shares = self._shares_of(consumed) if consumed is not None else None
        if shares is None:
            return False
        return shares.locks.find(session) is not None or shares.book.has_open(session)

    def of_lock(self, group: str, session: str, number: int) -> PartitionId:
        """Return the partition of the lock of a session.

        That is the one which had the session before a change of the partition count, as long as the
        lock lasts there.

        Raises:
            PartqError: as of `all_of`.
        """
        for owned in list(self._owned.values()):
            consumed = owned.groups.get(group)
            if consumed is not None and isinstance(consumed.shares, SessionShares):
                lock = consumed.shares.locks.find(session)
                if lock is not None and lock.number == number:
                    return owned.id
        return self.all_of(session)[-1]

    def has_left(self, consumed: ConsumedPartition, session: str) -> bool:
        """Whether a change of the partition count has given a session to another partition."""
        owned = self._owned.get(consumed.partition)
        if owned is None or not owned.layout.seals or partition_of_keyless(session) is not None:
            return False
        layout = self._layout()
        return layout is not None and layout.partition_for(session) != consumed.partition
