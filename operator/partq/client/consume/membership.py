"""What one consumer is in its group: its name, the partitions it holds, whom it tells."""

import logging
from collections.abc import Callable, Collection, Iterable

from partq.client.consume.assignment.assigned_partition import AssignedPartition, PartitionHolder
from partq.client.consume.callbacks import Callbacks
from partq.client.hooks.serializers import ValueDeserializer
from partq.core.model import Cause, PartitionId
from partq.errors import PartqError
from partq.wire.frames import Lanes, Range

log = logging.getLogger("partq.client")

OnAssigned = Callable[[PartitionId], object]
OnRevoked = Callable[[PartitionId, Cause], object]
OnStanding = Callable[[PartitionId], object]
OnLanes = Callable[[PartitionId, list[Range]], object]
OnError = Callable[[PartqError], object]


class Membership:
    """The partitions of all flows of a member, each under its highest token.

    Callbacks run in the event loop, at the moment of the change, and coroutines are awaited: a
    revocation is told before any later assignment of the partition, an assignment before its first
    message. One that raises stops the consumer.
    """

    def __init__(
        self,
        member: str,
        incarnation: str,
        *,
        on_assigned: OnAssigned | None,
        on_revoked: OnRevoked | None,
        on_error: OnError | None,
        on_active: OnStanding | None = None,
        on_inactive: OnStanding | None = None,
        on_lanes: OnLanes | None = None,
        priority: int = 0,
        ranges: list[tuple[int, int]] | None = None,
        value_deserializer: ValueDeserializer | None = None,
        wake: Callable[[], None],
    ) -> None:
        self.member = member
        self.incarnation = incarnation
        self.is_leaving = False
        self.fatal: Exception | None = None
        """Why the consumer has stopped."""
        self._failed: Exception | None = None
        """What a callback has raised, until the application is told."""
        self.callbacks = Callbacks(self._callback_failed)
        self.wake = wake
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_error = on_error
        self._on_lanes = on_lanes
        self._on_standing = {True: on_active, False: on_inactive}
        self.priority = priority
        self.ranges = ranges or []
        self._value_deserializer = value_deserializer
        self._is_active: dict[PartitionId, bool] = {}
        """The last standing of each partition; empty in groups whose members do not stand by."""
        self._untold: list[PartqError] = []
        self._was_warned = False
        self._highest: dict[PartitionId, tuple[int, int]] = {}
        self._assigned: dict[PartitionId, AssignedPartition] = {}
        self._held: dict[PartitionId, None] = {}
        self._sought: dict[PartitionId, AssignedPartition] = {}
        """Assignments that a seek has ended, until the next one begins in their place."""

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions that are held now."""
        return frozenset(self._assigned.keys() | self._sought.keys())

    @property
    def assigned(self) -> Collection[AssignedPartition]:
        """The rights to the partitions that are held now."""
        return self._assigned.values()

    def pause(self, partitions: Iterable[PartitionId]) -> None:
        """Have nothing of partitions that are held handed out; those that are paused stay so."""
        for partition in partitions:
            assigned = self._assigned.get(partition)
            if assigned is not None and not assigned.is_paused:
                assigned.holder.pause(assigned)
            elif assigned is None and partition in self._sought:
                self._sought[partition].is_paused = True

    def resume(self, partitions: Iterable[PartitionId]) -> None:
        """Have messages of partitions handed out again; others change nothing."""
        for partition in partitions:
            assigned = self._assigned.get(partition)
            if assigned is not None and assigned.is_paused:
                assigned.holder.resume(assigned)
            elif assigned is None and partition in self._sought:
                self._sought[partition].is_paused = False

    @property
    def paused(self) -> frozenset[PartitionId]:
        """The partitions that are held and paused."""
        held = {**self._assigned, **self._sought}
        return frozenset(partition for partition, each in held.items() if each.is_paused)

    @property
    def held(self) -> list[tuple[int, int]]:
        """The partitions that the member held last and that nobody has taken from it."""
        return [(partition.generation, partition.index) for partition in self._held]

    def begin(
        self,
        holder: PartitionHolder,
        kind: type[AssignedPartition],
        partition: PartitionId,
        token: tuple[int, int],
        cursor: int,
    ) -> AssignedPartition | None:
        """Take a partition under a new token; None when the token is not above the highest."""
        if not self.is_news(partition, token):
            return None
        before = self._assigned.get(partition)
        if before is not None:
            is_other_broker = before.token[0] != token[0]
            cause = Cause.BROKER_CHANGE if is_other_broker else Cause.FLOW_LOST
            before.holder.give_up(before, cause)
        sought = self._sought.get(partition)
        if sought is not None and sought.holder is not holder:
            self.end_seek(sought, Cause.BROKER_CHANGE)
            sought = None
        self._sought.pop(partition, None)
        self._highest[partition] = token
        assigned = self._assigned[partition] = kind(
            holder, partition, token, cursor, self._value_deserializer
        )
        self._held[partition] = None
        log.info("%s: assigned from offset %d", assigned, cursor)
        if sought is not None and sought.is_paused:
            holder.pause(assigned)
        if self._on_assigned is not None:
            # What a seek has moved is no news; a callback that seeks is to end first, all the same.
            callback = self._on_assigned if sought is None else _ignore
            assigned.waits += 1
            self.callbacks.call(partition, callback, partition, then=lambda: holder.go_on(assigned))
        return assigned

    def follow_lanes(self, frame: Lanes) -> None:
        """Take the token under which what comes next is delivered, and tell the slots."""
        token = (frame.broker_epoch, frame.epoch)
        assigned = self._assigned.get(PartitionId(frame.generation, frame.partition))
        if assigned is None or token < self._highest[assigned.partition]:
            return
        self._highest[assigned.partition] = assigned.token = token
        log.info("%s: has %d slots now", assigned, sum(stop - first for first, stop in frame.lanes))
        if self._on_lanes is not None:
            self.callbacks.call(
                assigned.partition, self._on_lanes, assigned.partition, list(frame.lanes)
            )

    def follow_round(self, assigned: AssignedPartition, token: tuple[int, int]) -> None:
        """Take a higher token of the same broker for a partition whose members take turns.

        It grows with each member that binds.
        """
        if token[0] == assigned.token[0] and token > assigned.token:
            self._highest[assigned.partition] = assigned.token = token

    def hold(self, partition: PartitionId) -> None:
        """Note that the member has a partition that no broker has assigned yet."""
        self._held[partition] = None
        self.wake()

    def forget(self, partition: PartitionId) -> None:
        """Note that a partition was taken away: it is not asked for again."""
        self._held.pop(partition, None)

    def end(self, assigned: AssignedPartition, cause: Cause) -> None:
        """Note that an assignment has ended, and tell.

        After a seek of this member the next one follows: `end_seek` tells it if none does.
        """
        if assigned.is_ended:
            return
        assigned.is_ended = True
        del self._assigned[assigned.partition]
        if assigned.is_sought:
            self._sought[assigned.partition] = assigned
        else:
            self._report_end(assigned, cause)
        self.wake()

    def end_seek(self, assigned: AssignedPartition, cause: Cause) -> None:
        """Tell that an assignment which a seek has ended is followed by none, if that is so."""
        if self._sought.get(assigned.partition) is assigned:
            del self._sought[assigned.partition]
            self._report_end(assigned, cause)
            self.wake()

    def _report_end(self, assigned: AssignedPartition, cause: Cause) -> None:
        log.info("%s: revoked (%s)", assigned, cause.name.lower())
        if self._on_revoked is not None:
            self.callbacks.call(assigned.partition, self._on_revoked, assigned.partition, cause)
        if assigned.partition in self._is_active:
            self.stand(assigned.partition, is_active=False)

    @property
    def wants_standing(self) -> bool:
        """Whether somebody wants to know which partitions are active here."""
        return any(self._on_standing.values())

    def stand(self, partition: PartitionId, *, is_active: bool) -> None:
        """Tell whether the member has a partition or stands by, if that was not told already.

        A broker that has lost the partition to another one may say so late: what is held counts.
        """
        if is_active is not (partition in self._assigned) or partition in self._sought:
            return
        if self._is_active.get(partition) is not is_active:
            self._is_active[partition] = is_active
            if (callback := self._on_standing[is_active]) is not None:
                self.callbacks.call(partition, callback, partition)

    def is_news(self, partition: PartitionId, token: tuple[int, int]) -> bool:
        """Say whether a token is above the highest that was seen for the partition."""
        return token > self._highest.get(partition, (-1, -1))

    def warn_that_it_registers_nothing(self, group: str) -> None:
        """Log, once, why a plain consumer gets nothing in a group whose members choose."""
        if not self._was_warned:
            self._was_warned = True
            log.warning(
                "group %s has assignment: Client, and a Consumer registers no partition: member %s "
                "gets no messages unless somebody registers some for it; use a "
                "ClientAssignedConsumer, or set spec.assignment of the ConsumerGroup to Server",
                *(group, self.member),
            )

    def report(self, error: PartqError) -> None:
        """Tell an error that stops only a part: to the callback, else by raising it once."""
        log.error("%s", error)
        if self._on_error is not None:
            self.callbacks.call(None, self._on_error, error)
        else:
            self._untold.append(error)
            self.wake()

    def stop(self, error: Exception) -> None:
        """Note that the consumer cannot continue."""
        self.fatal = self.fatal or error
        self.wake()

    def raise_error(self) -> None:
        """Raise what was not told by a callback, or why the consumer has stopped."""
        if self._untold:
            raise self._untold.pop(0)
        if self.fatal is not None:
            self._failed = None
            raise self.fatal

    def raise_failed_callback(self) -> None:
        """Raise what a callback has raised and no call has told."""
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _callback_failed(self, error: Exception) -> None:
        self._failed = self._failed or error
        self.stop(error)


def _ignore(partition: PartitionId) -> None:
    """Stand in its turn for a callback that is not called."""
