"""What an application does with the partitions that its consumer has."""

from abc import abstractmethod
from collections.abc import Collection
from typing import cast

from partq.client.consume.membership import Membership
from partq.client.consume.seeks import ConsumerSeeks
from partq.client.message_iterator import MessageIterator
from partq.client.transport.partition_router import PartitionRouter
from partq.client.transport.positions import SeekWhere
from partq.client.transport.session import Session
from partq.core.model import Offset, PartitionId
from partq.errors import FencedError, UnavailableError
from partq.excerpts import excerpt, some_of
from partq.wire.calls.positions import PositionResult, PositionsBody

POSITIONS_TIMEOUT_S = 10.0
"""For how long a call for positions is repeated while brokers change or do not answer."""


class PartitionCalls(MessageIterator):
    """Moves, pauses and measures partitions of a consumer: a part of `Consumer`."""

    _membership: Membership
    _seeks: ConsumerSeeks
    _session: Session
    _group: str

    @abstractmethod
    def _check_open(self) -> None:
        """Raise `RuntimeError` unless the consumer is open."""

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions that this member holds now."""
        return self._membership.partitions

    async def seek(self, where: SeekWhere) -> dict[PartitionId, int]:
        """Move the group's cursor in partitions that the consumer has, and go on from there.

        Acks that were given before count. Nothing that came before is handed out afterwards, and an
        ack of it is refused; what is redelivered has the cause `RESET`, and no count.
        `on_revoked` and `on_assigned` are not called. A call that is cancelled may move it all the
        same, and the next one waits for the broker's answer.

        Args:
            where: `earliest`, `latest` or {"at_ms": int}, the first message that was stored then or
                later, in all partitions; or an offset or `LogPosition` per partition.

        Returns:
            where each partition continues: there, or at the first message that is stored.

        Raises:
            BadRequestError, RolledBackError: `where` is something else, lies in the future, or
                behind the end.
            FencedError: the consumer has not, or not any more, a partition that is meant, or none.
            UnavailableError: a handoff is under way, a broker knows no seeks, or the connection or
                Redis was lost. A repeat moves a cursor again; other partitions may have been moved.
            RuntimeError: the consumer is not open.
        """
        self._check_open()
        return await self._seeks.seek(where)

    def pause(self, partitions: Collection[PartitionId]) -> None:
        """Have no message of these partitions handed out until `resume`; they stay held.

        The broker delivers nothing of them meanwhile, and their lag grows. What was handed out can
        be acknowledged. A pause ends with `resume`, when the partition is taken away, and when it
        gets another broker; a `seek` keeps it. What is paused already stays so.

        Args:
            partitions: some that the consumer has.

        Raises:
            FencedError: the consumer has not, or not any more, one of them; nothing was paused.
            TypeError: it is no collection of `PartitionId`; nothing was paused.
            RuntimeError: the consumer is not open.
        """
        self._check_open()
        check_collection_of(PartitionId, "pause", partitions)
        held = self.partitions
        if missing := [str(each) for each in partitions if each not in held]:
            raise FencedError(
                f"pause: got {some_of(missing)}, expected partitions that this consumer has, of "
                f"{some_of([str(each) for each in held])}; nothing was paused: pause where it is "
                "assigned"
            )
        self._membership.pause(partitions)

    def resume(self, partitions: Collection[PartitionId]) -> None:
        """Hand out messages of these partitions again; others, and a repeat, change nothing.

        It may be called late, by a timer: a consumer that is closed has no partitions.

        Raises:
            TypeError: it is no collection of `PartitionId`; nothing was resumed.
            RuntimeError: from another event loop or thread; nothing was resumed.
        """
        self._entered_loop.check()
        check_collection_of(PartitionId, "resume", partitions)
        self._membership.resume(partitions)

    def position(self, partition: PartitionId) -> Offset:
        """Return the offset of the next message, in turn, that is handed out of a partition.

        It asks no broker. Messages that were given back and are redelivered alone may be below it.

        Raises:
            FencedError: the consumer has not, or not any more, the partition.
            UnavailableError: a seek of it is under way.
            RuntimeError: the consumer is not open.
        """
        self._check_open()
        for assigned in self._membership.assigned:
            if assigned.partition == partition:
                return Offset(
                    min([assigned.begun_upto, *self._held.offsets_of(assigned.queue, partition)])
                )
        if partition in self.partitions:
            raise UnavailableError(
                f"position: a seek of partition {partition} is under way; ask once it has returned"
            )
        raise FencedError(
            f"position: got {excerpt(str(partition))}, expected a partition that this consumer "
            f"has, of {some_of([str(each) for each in self.partitions])}"
        )

    async def end_offsets(self) -> dict[PartitionId, int]:
        """Return the offset of the next message to be stored, of each partition that is held.

        One call to one broker, which asks the others; repeated for at most 10 s while a partition
        has no owner.

        Raises:
            UnavailableError, StoreUnavailableError: a partition had no answer in that time.
            PartqError: what a broker refuses the call with.
            RuntimeError: the consumer is not open.
        """
        self._check_open()
        found = await self._positions(PositionsBody(to="latest"))
        return {partition: end for partition, (_, end) in found.items()}

    async def lag(self) -> dict[PartitionId, int]:
        """Return how many messages lie behind the group's stored cursor, of each held partition.

        Those that are in flight count. So do those that were acknowledged out of order, until the
        cursor passes them, which the lag of `partq status` leaves out. Calls and errors: as
        `end_offsets`, and UnknownGroupError when the group was removed.
        """
        self._check_open()
        found = await self._positions(PositionsBody(group=self._group))
        return {partition: max(0, end - cursor) for partition, (cursor, end) in found.items()}

    async def _positions(self, asked: PositionsBody) -> dict[PartitionId, tuple[int, int]]:
        """Return an offset and the end, of each partition that is held."""

        def body(partitions: list[PartitionId]) -> PositionsBody:
            asked.partitions = [str(each) for each in partitions]
            return asked

        router = PartitionRouter(self._session, timeout_s=POSITIONS_TIMEOUT_S)
        held = sorted(self.partitions)
        found = await router.ask_each("POST", "/positions", held, body, PositionResult)
        return {each: (cast(int, found[each].offset), cast(int, found[each].end)) for each in held}

    def paused(self) -> frozenset[PartitionId]:
        """Return the partitions that this member holds and has paused."""
        return self._membership.paused


def check_collection_of(kind: type, call: str, partitions: object) -> None:
    """Refuse what does not name partitions; a `PartitionId` is a tuple, too.

    Raises:
        TypeError: it is no collection of this kind.
    """
    if isinstance(partitions, kind) or not isinstance(partitions, Collection):
        raise TypeError(
            f"{call}: got {excerpt(repr(partitions))}, expected a collection of {kind.__name__}"
        )
    for each in partitions:
        if not isinstance(each, kind):
            raise TypeError(
                f"{call}: got {excerpt(repr(each))} among the partitions, expected a "
                f"{kind.__name__}"
            )
