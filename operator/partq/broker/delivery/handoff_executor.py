"""The broker's part of a handoff: pause, drain, commit, cancel, each fenced by its attempt."""

import asyncio
import logging
from collections.abc import Callable

from partq.aio import UntilAnswered
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.flow import Flow
from partq.broker.partition.audit_buffer import handoff_step
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.pauses import ActivePause, ClosedHandoff
from partq.core.group.moves import Forced
from partq.core.group.observation import NO_EPOCH
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
from partq.excerpts import counted, excerpt
from partq.store.records.partitions import Partitions
from partq.store.retries import WRITE_RETRY_S

MAX_PAUSE_LEASE_S = 60.0
MAX_DRAIN_S = 3600.0

_log = logging.getLogger(__name__)


class HandoffExecutor:
    """Carry out the calls of handoffs on consumed partitions."""

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
        consumed: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
        lease_s: float,
        drain_s: float,
        is_unregistering: bool = False,
    ) -> None:
        """Stop delivering for `lease_s` from now; a repeat renews that, not the drain.

        `is_unregistering`: the member asks for it itself, which gives the partition back.

        Where nothing is in flight, the end of the drain is recorded as by `record_drain_end`.

        Raises:
            FencedError: the broker epoch is over.
            AttemptRefusedError: the epoch is not the stored one, or the attempt is over or older.
        """
        if not 0 < lease_s <= MAX_PAUSE_LEASE_S or not 0 <= drain_s <= MAX_DRAIN_S:
            raise BadRequestError(
                f"pause: lease {lease_s:g} s and drain {drain_s:g} s; expected above 0 to "
                f"{MAX_PAUSE_LEASE_S:g} s and 0 to {MAX_DRAIN_S:g} s"
            )
        self._check(consumed, broker_epoch, attempt, epoch)
        now = self._clock()
        pause = consumed.pause
        if pause is not None and attempt < pause.attempt:
            raise _refused(consumed, f"attempt {pause.attempt} is under way")
        if pause is not None and attempt == pause.attempt and epoch != pause.epoch:
            raise _refused(consumed, f"attempt {attempt} began under epoch {pause.epoch}")
        if pause is None or attempt > pause.attempt:
            if pause is not None:
                _record(consumed, "cancel", pause.attempt)
            consumed.end_pause()
            pause = ActivePause(attempt, epoch, now + lease_s, now + drain_s)
            pause.is_unregistering = is_unregistering
            consumed.pause = pause
            consumed.to_hurry.set()
            _record(consumed, "pause", attempt)
            if consumed.flow is not None:
                consumed.flow.send_paused(consumed)
            _log.info("%s of %s paused, attempt %d", consumed.partition, consumed.group, attempt)
        pause.until = now + lease_s
        if pause.timer is not None:
            pause.timer.cancel()
        pause.timer = asyncio.get_running_loop().call_later(lease_s, self._lapse, consumed, pause)
        if consumed.is_drained:
            _record_drained(consumed, pause)

    def record_drain_end(
        self,
        consumed: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
    ) -> bool:
        """Return whether the drain of a pause in force is over, by acks or by time.

        Its end is recorded once per pause: `settle_audit` waits for that, before it is answered.

        Raises:
            FencedError, AttemptRefusedError: as `pause`; also when the pause has lapsed.
        """
        self._check(consumed, broker_epoch, attempt, epoch)
        pause = self._pause_in_force(consumed, attempt)
        is_over = consumed.is_drained or self._clock() >= pause.drain_until
        if is_over:
            _record_drained(consumed, pause)
        return is_over

    def cancel(
        self,
        consumed: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
    ) -> None:
        """Let the source continue. Nothing happens when the attempt is over already.

        Raises:
            FencedError, AttemptRefusedError: the broker epoch is over; a commit is under way.
        """
        if broker_epoch != consumed.broker_epoch:
            raise _fenced(consumed, broker_epoch)
        if epoch > consumed.epoch or consumed.is_committing:
            raise _refused(consumed, "the epoch is unknown, or a commit is under way")
        pause = consumed.pause
        if pause is not None and pause.attempt == attempt:
            _record(consumed, "cancel", attempt)
            self._resume(consumed)
        consumed.closed_attempt = max(consumed.closed_attempt, attempt)

    async def commit(
        self,
        consumed: ConsumedPartition,
        *,
        broker_epoch: BrokerEpoch,
        epoch: Epoch,
        attempt: int,
        source: MemberId | None,
        target: MemberId | None,
        forced: str,
    ) -> ClosedHandoff:
        """Give the partition to `target`, in one script, and deliver to it.

        `forced`: why it is committed by force, a word of `Forced`; empty: it is not.

        Raises:
            FencedError, AttemptRefusedError: nothing was changed; plan again.
        """
        if forced and forced not in tuple(Forced):
            raise BadRequestError(
                f"commit: cause {excerpt(forced)!r}; expected one of {', '.join(Forced)}"
            )
        async with consumed.lock:
            done = consumed.last_commit
            if done is not None and done.attempt == attempt and done.target == target:
                return done
            self._check(consumed, broker_epoch, attempt, epoch)
            if consumed.member != source:
                raise _refused(consumed, f"the recorded member is {consumed.member}")
            cuts_off = self._judge(consumed, attempt, forced)
            return await self._carry_out(
                consumed, attempt=attempt, target=target, forced=forced, cuts_off=cuts_off
            )

    def _judge(self, consumed: ConsumedPartition, attempt: int, forced: str) -> bool:
        """Return whether the commit cuts a living source off; refuse what must not pass."""
        if consumed.flow is None:
            if not forced and consumed.member is not None:
                # Its flow may have ended after all was drained: the pause stands for the cause.
                self._pause_in_force(consumed, attempt)
            return False
        pause = self._pause_in_force(consumed, attempt)
        if consumed.book.in_flight == 0:
            return False
        if forced != Forced.DRAIN_TIMEOUT:
            raise _refused(
                consumed,
                f"{counted(consumed.book.in_flight, 'message is', 'messages are')} in flight at "
                "the source",
            )
        if self._clock() < pause.drain_until:
            raise _refused(consumed, "the drain is not over")
        return True

    async def _carry_out(
        self,
        consumed: ConsumedPartition,
        *,
        attempt: int,
        target: MemberId | None,
        forced: str,
        cuts_off: bool,
    ) -> ClosedHandoff:
        # From here to the script's answer: no lapse, no delivery; acks wait for the outcome.
        consumed.is_committing = True
        try:
            await self._cursor_writer.settle(consumed)
            await consumed.settle_audit()
            if consumed.is_dropped:
                raise _fenced(consumed, consumed.broker_epoch)
            cause = Cause.FORCED_COMMIT if cuts_off else Cause.NONE
            epoch = await self._commit_until_answered(
                consumed, attempt=attempt, target=target, cause=cause, forced=forced
            )
            consumed.end_pause()
            consumed.unbind(cause)
            # The script has stored them.
            consumed.note_counts(consumed.counts, consumed.lane_counts)
            consumed.member = target
            consumed.incarnation = ""
            consumed.epoch = epoch
            consumed.registered = NO_EPOCH
            consumed.is_given_up = False
            consumed.closed_attempt = max(consumed.closed_attempt, attempt)
            closed = ClosedHandoff(attempt, target, epoch, was_forced=cuts_off)
            consumed.last_commit = closed
            _log.info(
                "%s of %s committed to %s, epoch %d, attempt %d%s",
                consumed.partition,
                consumed.group,
                target,
                epoch,
                attempt,
                ", forced" if cuts_off else "",
            )
        except (AttemptRefusedError, FencedError, UnknownGroupError) as error:
            # The record differs from memory, as after a bind whose answer was lost: it wins.
            self._on_lost(consumed, error)
            raise
        finally:
            consumed.is_committing = False
            while consumed.held_acks:
                consumed.held_acks.popleft()()
            pause = consumed.pause
            if pause is not None and self._clock() >= pause.until:
                _record(consumed, "lapse", pause.attempt)
                self._resume(consumed)
        flow = self._find_flow(consumed.group, target) if target is not None else None
        if flow is not None and not consumed.is_dropped:
            flow.attach(consumed)
        return closed

    async def _commit_until_answered(
        self,
        consumed: ConsumedPartition,
        *,
        attempt: int,
        target: MemberId | None,
        cause: Cause,
        forced: str,
    ) -> Epoch:
        book = consumed.book
        until_answered = UntilAnswered(_log, WRITE_RETRY_S)
        while True:
            # What a flow that is lost meanwhile leaves behind may be stored before, by a flush.
            redeliveries = book.redeliveries
            if cause is not Cause.NONE:
                flow = consumed.flow
                unsent = flow.unsent(consumed.partition) if flow is not None else None
                redeliveries = book.redeliveries_after_rewind(unsent)
            try:
                return await self._partitions.commit(
                    consumed.partition,
                    consumed.group,
                    **consumed.next_write(),
                    source=consumed.member,
                    epoch=consumed.epoch,
                    attempt=attempt,
                    target=target,
                    cause=cause,
                    cursor=Offset(book.cursor),
                    acked=book.stored_acks(),
                    redeliveries=redeliveries,
                    forced=forced,
                )
            except SupersededError:
                pass  # the book as it is now, under the next number
            except StoreUnavailableError as error:
                # The same script under the same attempt finds out whether it went through.
                await until_answered.failed(
                    "commit of %s: %s; asking again", consumed.partition, error
                )
                if consumed.is_dropped:
                    raise _fenced(consumed, consumed.broker_epoch) from error

    def _check(
        self, consumed: ConsumedPartition, broker_epoch: BrokerEpoch, attempt: int, epoch: Epoch
    ) -> None:
        if broker_epoch != consumed.broker_epoch:
            raise _fenced(consumed, broker_epoch)
        if consumed.lanes is not consumed.keys:
            raise _refused(consumed, "the group has the type Shared, in which no partition moves")
        if consumed.shares is not None:
            raise _refused(consumed, "its members share it, so its parts move, and not the whole")
        if epoch != consumed.epoch:
            raise _refused(consumed, f"epoch {epoch} is over; it is {consumed.epoch}")
        if attempt <= consumed.closed_attempt:
            raise _refused(consumed, f"attempts up to {consumed.closed_attempt} are over")

    def _pause_in_force(self, consumed: ConsumedPartition, attempt: int) -> ActivePause:
        pause = consumed.pause
        if (
            pause is None
            or (pause.attempt, pause.epoch) != (attempt, consumed.epoch)
            or self._clock() >= pause.until
        ):
            raise _refused(consumed, f"attempt {attempt} has no pause in force")
        return pause

    def _lapse(self, consumed: ConsumedPartition, pause: ActivePause) -> None:
        if consumed.pause is pause and not consumed.is_committing:
            _log.info("pause of %s lapsed, attempt %d", consumed.partition, pause.attempt)
            _record(consumed, "lapse", pause.attempt)
            self._resume(consumed)

    def _resume(self, consumed: ConsumedPartition) -> None:
        consumed.end_pause()
        if consumed.flow is not None:
            consumed.flow.send_resumed(consumed)
            consumed.flow.notice(consumed)


def _record_drained(consumed: ConsumedPartition, pause: ActivePause) -> None:
    if pause.is_drain_recorded:
        return
    pause.is_drain_recorded = True
    book = consumed.book
    forced = Forced.DRAIN_TIMEOUT.value if book.in_flight else ""
    first, stop = book.cursor, book.position
    _record(consumed, "drained", pause.attempt, first=first, stop=stop, cause=forced)


def _record(consumed: ConsumedPartition, kind: str, attempt: int, **fields: str | int) -> None:
    if (audit_writer := consumed.audit_writer) is not None:
        audit_writer.note(handoff_step(kind, consumed, attempt, **fields))


def _fenced(consumed: ConsumedPartition, broker_epoch: BrokerEpoch) -> FencedError:
    return FencedError(
        f"partition {consumed.partition}: broker epoch {broker_epoch} has ended; it is "
        f"{consumed.broker_epoch}: read the broker's state and plan again"
    )


def _refused(consumed: ConsumedPartition, why: str) -> AttemptRefusedError:
    return AttemptRefusedError(
        f"partition {consumed.partition} of {consumed.group}: {why}; read the broker's "
        "state and plan again under a new attempt"
    )
