"""A queue's layout: its partitions through changes of their count; whether it is being deleted."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.records import LayoutRecord
from partq.errors import ConflictError, UnknownQueueError
from partq.store.codec import decode_counts, encode_counts
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import UNKNOWN
from partq.wire.layout_record import FIELDS, decode_layout, encode_layout

REVISION_DIFFERS = 0
"""Answer of `change_layout`: another step is stored; `store/refusals.py` has the shared answers."""
_REMOVED = "removed:"
"""Begins the fields of partitions whose keys are to be erased."""


class Layouts:
    """The layout of one queue."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._values: Sequence[bytes | None] = ()
        """Of the record as last read: a table of many partitions is decoded once."""
        self._layout = Layout.first(1)

    async def create_queue(self, generations: Mapping[int, int]) -> LayoutRecord:
        """Make the layout from generation → partition count, and return the stored one.

        A layout that is there stays as it is.
        """
        text = encode_counts(generations)
        await self._store.run("create_queue", [self._keys.layout()], [text], needs_replica=True)
        return await self.read()

    async def read(self) -> LayoutRecord:
        """Return the layout.

        Raises:
            UnknownQueueError: it was never made, or is deleted.
            InternalError: the record is damaged.
        """
        values = await self._store.read(
            "HMGET", self._keys.layout(), "revision", *FIELDS, "tombstone"
        )
        if values != self._values:
            self._layout, self._values = self._decode(*values[:-1]), values
        return LayoutRecord(self._layout, values[-1] is not None)

    async def write(
        self,
        layout: Layout,
        *,
        removed: Collection[PartitionId] = (),
    ) -> None:
        """Store a layout that is one step from the stored one; a repeat changes nothing.

        `removed`: partitions that it has no more, whose keys are to be erased.

        Raises:
            ConflictError: another step is stored; read the layout again.
            UnknownQueueError: it has no layout, or is being deleted.
            StoreUnavailableError: no answer; a repeat finds out.
        """
        fields = encode_layout(layout)
        fields |= {f"{_REMOVED}{partition}": "1" for partition in sorted(removed)}
        answer = await self._store.run(
            "change_layout",
            [self._keys.layout()],
            [layout.revision - 1, *chain.from_iterable(fields.items())],
            needs_replica=True,
        )
        if answer == UNKNOWN:
            raise _unknown_queue(self._keys)
        if answer == REVISION_DIFFERS:
            raise ConflictError(
                f"layout of {self._keys.namespace}/{self._keys.queue}: another step than revision "
                f"{layout.revision} is stored; read it again"
            )

    async def read_removed(self) -> set[PartitionId]:
        """Return the partitions that the layout has no more, and whose keys may still be there."""
        names = await self._store.read("HKEYS", self._keys.layout())
        return {
            PartitionId.parse(name.decode().removeprefix(_REMOVED))
            for name in names
            if name.startswith(_REMOVED.encode())
        }

    async def forget_removed(self, partitions: Collection[PartitionId]) -> None:
        """Note that the keys of removed partitions are erased."""
        fields = [f"{_REMOVED}{partition}" for partition in sorted(partitions)]
        await self._store.run("write_fields", [self._keys.layout()], [0, *fields])

    async def now_ms(self) -> int:
        """Return Redis's time, in unix ms."""
        seconds, micros = await self._store.read("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def _decode(self, revision: bytes | None, *values: bytes | None) -> Layout:
        """Return the layout; of a queue that has never changed, what its partition count says."""
        fields = dict(zip(FIELDS, values, strict=True))
        if fields["table"] is not None:
            return decode_layout(int(revision or 0), fields)
        if fields["generations"] is None:
            raise _unknown_queue(self._keys)
        (count,) = decode_counts(fields["generations"]).values()
        return Layout.first(count)

    async def bury(self) -> None:
        """Mark the queue as being deleted: brokers refuse it from now on."""
        await self._store.run("write_fields", [self._keys.layout()], [1, "tombstone", "1"])


def _unknown_queue(keys: Keys) -> UnknownQueueError:
    name = f"{keys.namespace}/{keys.queue}"
    return UnknownQueueError(f"queue {name}: the store has no layout of it; create it")
