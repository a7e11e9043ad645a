"""The broker's part of a handoff: pause, drain, commit, cancel, each fenced by its attempt."""

import asyncio
import logging
from collections.abc import Callable

from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.flow import Flow
from partq.broker.partition.audit_buffer import handoff_step
from partq.broker.partition.group_partition import ActivePause, ClosedHandoff, ConsumedPartition
from partq.core.model import BrokerEpoch, Cause, Epoch, MemberId, Offset
from partq.errors import (
    AttemptRefusedError,
    BadRequestError,
    FencedError,
    PartqError,
    StoreUnavailableError,
    SupersededError,
    UnknownGroupError,
)
from partq.store.records.partitions import Partitions

FORCED_CAUSES = ("source_lost", "source_unbound", "unassigned", "drain_timeout")
MAX_PAUSE_LEASE_S = 60.0
MAX_DRAIN_S = 3600.0
RETRY_GAP_S = 0.05

_log = logging.getLogger(__name__)


class HandoffExecutor:
    """Carry out the calls of handoffs on subscriptions of owned partitions."""

    def __init__(
        self,
        partitions: Partitions,
        cursor_writer: CursorWriter,
        *,
        clock: Callable[[], float],
        find_flow: Callable[[str, MemberId], Flow | None],
        on_lost: Callable[[ConsumedPartition, PartqError], None],
    ) -> None:
        self._partitions = partitions
        self._cursor_writer = cursor_writer
        self._clock = clock
        self._find_flow = find_flow
        self._on_lost = on_lost

    def pause(
        self,
        subscription: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
        lease_s: float,
        drain_s: float,
    ) -> None:
        """Stop delivering for `lease_s` from now; a repeat renews that, not the drain.

        Raises:
            FencedError: the broker epoch is over.
            AttemptRefusedError: the epoch is not the stored one, or the attempt is over or older.
        """
        if not 0 < lease_s <= MAX_PAUSE_LEASE_S or not 0 <= drain_s <= MAX_DRAIN_S:
            raise BadRequestError(
                f"pause: lease {lease_s:g} s and drain {drain_s:g} s; expected above 0 to "
                f"{MAX_PAUSE_LEASE_S:g} s and 0 to {MAX_DRAIN_S:g} s"
            )
        self._check(subscription, broker_epoch, attempt, epoch)
        now = self._clock()
        pause = subscription.pause
        if pause is not None and attempt < pause.attempt:
            raise _refused(subscription, f"attempt {pause.attempt} is under way")
        if pause is not None and attempt == pause.attempt and epoch != pause.epoch:
            raise _refused(subscription, f"attempt {attempt} began under epoch {pause.epoch}")
        if pause is None or attempt > pause.attempt:
            if pause is not None:
                _record(subscription, "cancel", pause.attempt)
            subscription.end_pause()
            pause = ActivePause(attempt, epoch, now + lease_s, now + drain_s)
            subscription.pause = pause
            subscription.to_hurry.set()
            _record(subscription, "pause", attempt)
            if subscription.flow is not None:
                subscription.flow.send_paused(subscription)
            _log.info(
                "%s of %s paused, attempt %d", subscription.partition, subscription.group, attempt
            )
        pause.until = now + lease_s
        if pause.timer is not None:
            pause.timer.cancel()
        pause.timer = asyncio.get_running_loop().call_later(
            lease_s, self._lapse, subscription, pause
        )

    def watch(
        self,
        subscription: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
    ) -> bool:
        """Return whether the drain of a pause in force is over, by acks or by time.

        Raises:
            FencedError, AttemptRefusedError: as `pause`; also when the pause has lapsed.
        """
        self._check(subscription, broker_epoch, attempt, epoch)
        pause = self._pause_in_force(subscription, attempt)
        return subscription.is_drained or self._clock() >= pause.drain_until

    def record_drained(self, subscription: ConsumedPartition, attempt: int) -> None:
        """Record the end of a drain, once per pause; `settle_audit` waits for that.

        After `watch` has said so, and before it is answered.
        """
        pause = subscription.pause
        if pause is None or pause.attempt != attempt or pause.is_told:
            return
        pause.is_told = True
        book = subscription.book
        cause = "drain_timeout" if book.in_flight else ""
        first, stop = book.cursor, book.position
        _record(subscription, "drained", attempt, first=first, stop=stop, cause=cause)

    def cancel(
        self,
        subscription: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
    ) -> None:
        """Let the source go on. Nothing happens when the attempt is over already.

        Raises:
            FencedError, AttemptRefusedError: the broker epoch is over; a commit is under way.
        """
        if broker_epoch != subscription.broker_epoch:
            raise _fenced(subscription, broker_epoch)
        if epoch > subscription.epoch or subscription.is_committing:
            raise _refused(subscription, "the epoch is unknown, or a commit is under way")
        pause = subscription.pause
        if pause is not None and pause.attempt == attempt:
            _record(subscription, "cancel", attempt)
            self._resume(subscription)
        subscription.closed_attempt = max(subscription.closed_attempt, attempt)

    async def commit(
        self,
        subscription: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
        source: MemberId | None,
        target: MemberId | None,
        cause: str,
    ) -> ClosedHandoff:
        """Give the partition to `target`, in one script, and deliver to it.

        Raises:
            FencedError, AttemptRefusedError: nothing was changed; plan again.
        """
        if cause and cause not in FORCED_CAUSES:
            raise BadRequestError(f"commit: cause {cause!r}; expected one of {FORCED_CAUSES}")
        async with subscription.lock:
            done = subscription.last_commit
            if done is not None and done.attempt == attempt and done.target == target:
                return done
            self._check(subscription, broker_epoch, attempt, epoch)
            if subscription.member != source:
                raise _refused(subscription, f"the recorded member is {subscription.member}")
            is_forced = self._judge(subscription, attempt, cause)
            return await self._carry_out(
                subscription, attempt=attempt, target=target, why=cause, is_forced=is_forced
            )

    def _judge(self, subscription: ConsumedPartition, attempt: int, cause: str) -> bool:
        """Return whether the commit cuts a living source off; refuse what must not pass."""
        if subscription.flow is None:
            if not cause and subscription.member is not None:
                # Its flow may have ended after all was drained: the pause stands for the cause.
                self._pause_in_force(subscription, attempt)
            return False
        pause = self._pause_in_force(subscription, attempt)
        if subscription.book.in_flight == 0:
            return False
        if cause != "drain_timeout":
            raise _refused(
                subscription, f"{subscription.book.in_flight} messages are in flight at the source"
            )
        if self._clock() < pause.drain_until:
            raise _refused(subscription, "the drain is not over")
        return True

    async def _carry_out(
        self,
        subscription: ConsumedPartition,
        *,
        attempt: int,
        target: MemberId | None,
        why: str,
        is_forced: bool,
    ) -> ClosedHandoff:
        # From here to the script's answer: no lapse, no delivery; acks wait for the outcome.
        subscription.is_committing = True
        try:
            await self._cursor_writer.settle(subscription)
            await subscription.settle_audit()
            if subscription.is_dropped:
                raise _fenced(subscription, subscription.broker_epoch)
            cause = Cause.FORCED_COMMIT if is_forced else Cause.NONE
            epoch = await self._commit_until_answered(
                subscription, attempt=attempt, target=target, cause=cause, why=why
            )
            subscription.end_pause()
            subscription.unbind(cause)
            subscription.note_counts(subscription.counts)  # the script has stored them
            subscription.member = target
            subscription.incarnation = ""
            subscription.epoch = epoch
            subscription.closed_attempt = max(subscription.closed_attempt, attempt)
            closed = ClosedHandoff(attempt, target, epoch, is_forced)
            subscription.last_commit = closed
            _log.info(
                "%s of %s committed to %s, epoch %d, attempt %d%s",
                subscription.partition,
                subscription.group,
                target,
                epoch,
                attempt,
                ", forced" if is_forced else "",
            )
        except (AttemptRefusedError, FencedError, UnknownGroupError) as error:
            # The record differs from memory, as after a bind whose answer was lost: it wins.
            self._on_lost(subscription, error)
            raise
        finally:
            subscription.is_committing = False
            while subscription.held_acks:
                subscription.held_acks.popleft()()
            pause = subscription.pause
            if pause is not None and self._clock() >= pause.until:
                _record(subscription, "lapse", pause.attempt)
                self._resume(subscription)
        flow = self._find_flow(subscription.group, target) if target is not None else None
        if flow is not None and not subscription.is_dropped:
            flow.attach(subscription)
        return closed

    async def _commit_until_answered(
        self,
        subscription: ConsumedPartition,
        *,
        attempt: int,
        target: MemberId | None,
        cause: Cause,
        why: str,
    ) -> Epoch:
        book = subscription.book
        while True:
            # What a flow that is lost meanwhile leaves behind may be stored before, by a flush.
            redeliveries = book.redeliveries
            if cause is not Cause.NONE:
                flow = subscription.flow
                unsent = flow.unsent(subscription.partition) if flow is not None else None
                redeliveries = book.redeliveries_after_rewind(unsent)
            try:
                return await self._partitions.commit(
                    subscription.partition,
                    subscription.group,
                    **subscription.next_write(),
                    source=subscription.member,
                    epoch=subscription.epoch,
                    attempt=attempt,
                    target=target,
                    cause=cause,
                    cursor=Offset(book.cursor),
                    acked=book.acked.pairs(),
                    redeliveries=redeliveries,
                    why=why,
                )
            except SupersededError:
                pass  # the book as it is now, under the next number
            except StoreUnavailableError as error:
                # The same script under the same attempt finds out whether it went through.
                _log.warning("commit of %s: %s; asking again", subscription.partition, error)
                await asyncio.sleep(RETRY_GAP_S)
                if subscription.is_dropped:
                    raise _fenced(subscription, subscription.broker_epoch) from error

    def _check(
        self, subscription: ConsumedPartition, broker_epoch: BrokerEpoch, attempt: int, epoch: Epoch
    ) -> None:
        if broker_epoch != subscription.broker_epoch:
            raise _fenced(subscription, broker_epoch)
        if epoch != subscription.epoch:
            raise _refused(subscription, f"epoch {epoch} is over; it is {subscription.epoch}")
        if attempt <= subscription.closed_attempt:
            raise _refused(subscription, f"attempts up to {subscription.closed_attempt} are over")

    def _pause_in_force(self, subscription: ConsumedPartition, attempt: int) -> ActivePause:
        pause = subscription.pause
        if (
            pause is None
            or (pause.attempt, pause.epoch) != (attempt, subscription.epoch)
            or self._clock() >= pause.until
        ):
            raise _refused(subscription, f"attempt {attempt} has no pause in force")
        return pause

    def _lapse(self, subscription: ConsumedPartition, pause: ActivePause) -> None:
        if subscription.pause is pause and not subscription.is_committing:
            _log.info("pause of %s lapsed, attempt %d", subscription.partition, pause.attempt)
            _record(subscription, "lapse", pause.attempt)
            self._resume(subscription)

    def _resume(self, subscription: ConsumedPartition) -> None:
        subscription.end_pause()
        if subscription.flow is not None:
            subscription.flow.send_resumed(subscription)
            subscription.flow.notice(subscription)


def _record(subscription: ConsumedPartition, kind: str, attempt: int, **fields: str | int) -> None:
    if (audit_writer := subscription.audit_writer) is not None:
        audit_writer.note(handoff_step(kind, subscription, attempt, **fields))


def _fenced(subscription: ConsumedPartition, broker_epoch: BrokerEpoch) -> FencedError:
    return FencedError(
        f"partition {subscription.partition}: broker epoch {broker_epoch} has ended; it is "
        f"{subscription.broker_epoch}: read the broker's state and plan again"
    )


def _refused(subscription: ConsumedPartition, why: str) -> AttemptRefusedError:
    return AttemptRefusedError(
        f"partition {subscription.partition} of {subscription.group}: {why}; read the broker's "
        "state and plan again under a new attempt"
    )
