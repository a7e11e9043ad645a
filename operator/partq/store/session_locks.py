"""The locks of sessions in the record of a group."""

from typing import Final

from partq.core.model import MemberId, PartitionId
from partq.store.codec import encode_holder
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import BookWrite, check_book_write

NEW_LOCK: Final = 0
"""In the place of a lock's number: it is drawn."""


class LockRecords:
    """Writes the locks of one queue's sessions."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def run_of(self, partition: PartitionId) -> str:
        """Return which run of Redis has the records of a partition; empty: it is not known."""
        return self._store.run_of(self._keys.meta(partition))

    async def lock(
        self,
        partition: PartitionId,
        group: str,
        *,
        write: BookWrite,
        session: str,
        member: MemberId,
        incarnation: str,
        lock_ms: int,
        number: int = NEW_LOCK,
        is_complete: bool = True,
    ) -> int:
        """Lock a session, or have its lock last for `lock_ms` from now on; return its number.

        Unless the record `is_complete`, it goes on saying that another run of Redis wrote it: the
        next broker is to wait, too, for locks that may be missing.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            UnknownGroupError: the partition has no such group any more, or another of its name.
            SupersededError: a later write of the caller's is stored; nothing is written.
            StoreUnavailableError: no answer; it may be written, or will be.
        """
        answer = await self._store.run(
            "lock_session",
            self._keys.of_cursor(partition, group)[:2],
            [
                write["broker_epoch"],
                group,
                write["number"],
                write["born"],
                session,
                encode_holder(member, incarnation),
                lock_ms,
                number,
                self.run_of(partition) if is_complete else "",
            ],
        )
        check_book_write(answer, partition, group, write)
        return int(answer)

    async def unlock(
        self, partition: PartitionId, group: str, *, write: BookWrite, session: str, number: int
    ) -> None:
        """End the lock of a session that has this number, or a lower one.

        Raises:
            FencedError, UnknownGroupError, SupersededError, StoreUnavailableError: as `lock` does.
        """
        answer = await self._store.run(
            "unlock_session",
            self._keys.of_cursor(partition, group)[:2],
            [
                write["broker_epoch"],
                group,
                write["number"],
                write["born"],
                session,
                number,
            ],
        )
        check_book_write(answer, partition, group, write)
