"""What one consumer is in its group: its name, the partitions it holds, whom it tells."""

import logging
from collections.abc import Callable

from partq.client.consume.assigned_partition import AssignedPartition, PartitionHolder
from partq.client.consume.callbacks import Callbacks
from partq.core.model import Cause, PartitionId
from partq.errors import PartqError

log = logging.getLogger("partq.client")

OnAssigned = Callable[[PartitionId], object]
OnRevoked = Callable[[PartitionId, Cause], object]
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
        self._untold: list[PartqError] = []
        self._highest: dict[PartitionId, tuple[int, int]] = {}
        self._assigned: dict[PartitionId, AssignedPartition] = {}
        self._held: dict[PartitionId, None] = {}

    @property
    def partitions(self) -> frozenset[PartitionId]:
        """The partitions that are held now."""
        return frozenset(self._assigned)

    @property
    def held(self) -> list[tuple[int, int]]:
        """The partitions that the member held last and that nobody has taken from it."""
        return [(partition.generation, partition.index) for partition in self._held]

    def begin(
        self, holder: PartitionHolder, partition: PartitionId, token: tuple[int, int], cursor: int
    ) -> AssignedPartition | None:
        """Take a partition under a new token; None when the token is not above the highest."""
        if not self.is_news(partition, token):
            return None
        before = self._assigned.get(partition)
        if before is not None:
            is_other_broker = before.token[0] != token[0]
            cause = Cause.BROKER_CHANGE if is_other_broker else Cause.FLOW_LOST
            before.holder.give_up(before, cause)
        self._highest[partition] = token
        assigned = self._assigned[partition] = AssignedPartition(holder, partition, token, cursor)
        self._held[partition] = None
        log.info("%s: assigned from offset %d", assigned, cursor)
        if self._on_assigned is not None:
            assigned.waits += 1
            self.callbacks.call(
                partition, self._on_assigned, partition, then=lambda: holder.go_on(assigned)
            )
        return assigned

    def forget(self, partition: PartitionId) -> None:
        """Note that a partition was taken away: it is not asked for again."""
        self._held.pop(partition, None)

    def end(self, assigned: AssignedPartition, cause: Cause) -> None:
        """Note that an assignment has ended, and tell."""
        if assigned.is_ended:
            return
        assigned.is_ended = True
        del self._assigned[assigned.partition]
        log.info("%s: revoked (%s)", assigned, cause.name.lower())
        if self._on_revoked is not None:
            self.callbacks.call(assigned.partition, self._on_revoked, assigned.partition, cause)
        self.wake()

    def is_news(self, partition: PartitionId, token: tuple[int, int]) -> bool:
        """Say whether a token is above the highest that was seen for the partition."""
        return token > self._highest.get(partition, (-1, -1))

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
