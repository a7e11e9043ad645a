"""One partition of a producer: what is sent when, and what each answer means.

Messages are numbered per (producer, partition). At most `max_in_flight` batches are without an
answer; whatever goes wrong, they are sent again from the first unanswered one, in order, with the
same numbers and bytes, so the broker can tell a repeat from a new message.

A number is used for other messages only when no copy of the first ones can still be on its way.
Otherwise the partition continues under a new producer id, from number 0.

When a change of the partition count gives slots of the partition to others, nothing new is sent
until it is certain that no message that waits is stored. Then those of these slots are given away.

No I/O: the time and the requests' ids are arguments, answers are method calls.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from partq.client.produce.batching import BatchLimits, OpenBatch, ReadyBatch, SealedBatch
from partq.client.produce.refusals import FINAL, NOTHING_STORED
from partq.client.produce.results import UNKNOWN_OFFSET, MessageResult
from partq.client.produce.send_window import SendWindow
from partq.client.produce.window_cut import cut
from partq.client.producer_stats import ProducerTally
from partq.client.transport.answers import unsupported
from partq.client.transport.retries import retry_backoff
from partq.core.model import PartitionId
from partq.errors import (
    ConflictError,
    InternalError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    from_code,
)

START_AGAIN = "start it again from `due()`"


class _Gap(NamedTuple):
    """Numbers that a failed batch leaves to the batches behind it."""

    first: int
    error: PartqError


class PartitionSender:
    """Keeps the messages of one partition in order until each has an answer."""

    def __init__(
        self,
        partition: PartitionId,
        *,
        producer: str,
        first: int = 0,
        fixed_generation: int = 0,
        limits: BatchLimits,
        next_producer: Callable[[str], str | None],
        give_back: Callable[[int, int], None],
        tally: ProducerTally,
        are_numbers_fixed: bool = False,
        ends_at_change: bool = False,
    ) -> None:
        self.partition = partition
        self.producer = producer
        self.fixed_generation = fixed_generation
        """Of fixed numbers: the layout of the partition that they are counted for; else 0."""
        self.max_in_flight = 1
        self.features: frozenset[str] = frozenset()
        """What the partition's broker can do."""
        self.hold_until = 0.0
        """Nothing is sent before this time: a refusal or a missing broker asks for patience."""
        self.is_leaving = False
        """Slots go to other partitions, or may: only what is in doubt is sent, by itself."""
        self.broken: PartqError | None = None
        """Why this partition takes no more messages; only under a producer id that was given."""
        self._next_producer = next_producer
        self._give_back = give_back
        self._tally = tally
        self._are_numbers_fixed = are_numbers_fixed
        self._ends_at_change = ends_at_change
        self._open = OpenBatch(limits)
        self._is_due = False
        self._window = SendWindow(first)
        self._gap: _Gap | None = None
        self._has_moved = False
        self._has_adopted = False
        self._backoff = retry_backoff()
        self._refusal = ""

    # ---- messages come in ----

    @property
    def has_open(self) -> bool:
        """Whether messages wait for their batch to be complete."""
        return len(self._open) > 0 and not self._is_due

    @property
    def has_work(self) -> bool:
        """Whether something wants to be sent or waits for an answer."""
        return bool(self._window) or (len(self._open) > 0 and self._is_due)

    def add(
        self,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        result: MessageResult,
        deadline: float,
        ttl_ms: int = 0,
        order: Sequence[int] = (),
    ) -> None:
        """Take messages, to be answered by `deadline`.

        `ttl_ms` 0: they have no time to live. `order`: their places among all of the producer.
        """
        while encoded:
            taken = self._open.fill(encoded, slots, result, deadline, ttl_ms, order)
            if taken == len(encoded) and not self._open.is_full:
                return
            self._seal()
            encoded, slots, order = encoded[taken:], slots[taken:], order[taken:]

    def add_batch(self, ready: ReadyBatch, result: MessageResult, deadline: float) -> None:
        """Take a batch that is complete, to be answered by `deadline`."""
        if len(self._open):
            self._seal()
        batch = SealedBatch(
            ready.data,
            [(result, ready.count)],
            first=self._window.next,
            size_bytes=ready.size_bytes,
            deadline=deadline,
            ttl_ms=ready.ttl_ms,
            needs=ready.needs,
            order=ready.order,
            is_whole=ready.is_whole,
            message_id=ready.message_id,
            due=ready.due,
        )
        self._window.append(batch)

    def adopt(self, batches: Iterable[SealedBatch]) -> None:
        """Take batches that another partition has given away; they were never sent to this one."""
        if len(self._open):
            self._seal()
        for batch in batches:
            self._window.append(batch)
            # With fixed numbers nothing behind the first may fail by itself.
            self._has_adopted = not self._are_numbers_fixed

    def make_due(self) -> None:
        """Let the gathered messages go; more may join them until there is room to send."""
        self._is_due = len(self._open) > 0

    def _seal(self) -> None:
        self._window.append(self._open.seal(self._window.next))
        self._is_due = False

    # ---- batches go out ----

    def take(self, request: int, now: float) -> SealedBatch | None:
        """Return the next batch to send, as `request`; None when nothing can be sent now."""
        window = self._window
        if window.is_rewinding or window.sent_count >= self.max_in_flight or now < self.hold_until:
            return None
        if self.is_leaving and (window.sent_count or not window.is_head_in_doubt):
            return None
        if window.unsent is None and self._is_due:
            self._seal()
        batch = window.unsent
        if batch is None:
            return None
        if missing := batch.needs - self.features:
            if batch is not window.head:
                return None  # once those before it have their answers, it fails
            self._fail_head(batch, unsupported(missing, f"partition {self.partition}: its broker"))
            return self.take(request, now)
        if batch.was_sent:
            self._tally.resent(batch.count)
        window.send(batch, request, now)
        return batch

    # ---- answers come in ----

    def stored(self, request: int, offset: int) -> None:
        """Take the answer that a batch is stored, now or earlier.

        Raises:
            InternalError: an answer out of order; the connection cannot be trusted.
        """
        if self._answered_head(request) is None:
            return
        self._resolve_head(offset)
        self._backoff.reset()
        self._refusal = ""
        self._has_moved = False

    def refused(
        self, request: int, code: str, message: str, *, due: int, retry_after_s: float, now: float
    ) -> None:
        """Take a refusal of a batch; raises as `stored`."""
        head = self._answered_head(request)
        if head is None:
            return
        error = from_code(code, message, retry_after_s=retry_after_s or None)
        self._window.rewind()
        match code:
            case "resend_from" | "out_of_sequence" if due >= 0:
                self._go_on_from(due, error, now)
            case "unknown_producer" | "number_reused":
                first = head.first
                self._fail([batch for batch in self._window if batch.may_be_stored], error)
                if code == "number_reused":
                    reason = f"number {first} came before with other messages, which are stored"
                    self._start_anew(error, reason, "give each process its own producer id")
                else:
                    self._start_anew(error, f"number {first} came, and the producer is not known")
            case "stale_generation" if self._ends_at_change:
                for batch in self._window:
                    batch.forget_sent()  # behind what is never stored nothing is
                reason = f"the partition count of the queue has changed: {self._reason(error)}"
                self._break(NotStoredError(reason), reason)
            case "stale_generation":
                head.is_never_stored = True
                self.is_leaving = True
                self._refusal = f": {self._reason(error)}"
                self._hold(now, error.retry_after_s)
            case _ if isinstance(error, FINAL):
                self._fail_head(head, error)
            case _:
                head.may_be_stored = head.may_be_stored or code not in NOTHING_STORED
                self._refusal = f": {self._reason(error)}"
                self._hold(now, error.retry_after_s)

    def lost(self) -> None:
        """Send everything unanswered again: the connection to the broker has ended."""
        self._window.lose_requests()
        self._close_gap()

    def moved(self, now: float, *, is_elsewhere: bool) -> None:
        """Send everything unanswered again: another broker owns the partition, or none yet."""
        self.lost()
        if self._has_moved or not is_elsewhere:  # two brokers that name each other: take a breath
            self._hold(now, None)
        self._has_moved = True

    # ---- slots leave ----

    @property
    def may_give_away(self) -> bool:
        """Whether no message that waits is stored, or can be: numbers are taken in order."""
        return not self._window.awaits_answers and not self._window.is_head_in_doubt

    def give_away(
        self, partition_of: Callable[[int], PartitionId]
    ) -> dict[PartitionId, list[SealedBatch]]:
        """Return the messages of slots that other partitions take now, by partition, in order.

        To be called when it `may_give_away`. What stays goes on from the first number that is free.
        """
        self.is_leaving = False
        if len(self._open):
            self._seal()
        if not self._window:
            return {}
        first = self._window.position
        was_in_doubt = any(batch.may_be_stored for batch in self._window)
        parts = cut(self.partition, tuple(self._window), partition_of)
        kept = parts.pop(self.partition, [])
        if not parts:
            return {}
        for batch in chain(kept, *parts.values()):
            batch.forget_sent()  # under the number that it gets
        self._window.replace(kept)
        self.hold_until = 0.0
        if was_in_doubt:
            # Copies may be on their way, with numbers that other messages would get.
            reason = "slots have gone to other partitions"
            self._start_anew(NotStoredError(reason), reason)
        else:
            self._window.renumber(first)
        return parts

    @property
    def position(self) -> int:
        """The number of the first message without an answer, or of the next one."""
        return self._window.position

    def remove_window(self) -> list[SealedBatch]:
        """Return all messages without an answer; nothing is sent from here any more.

        To be called when it is known, from elsewhere, which of them are stored.
        """
        self.is_leaving = False
        if len(self._open):
            self._seal()
        self._window.give_requests_up()
        window = self._window.replace(())
        for batch in window:
            batch.forget_sent()
        return window

    # ---- time is up ----

    def expire(self, now: float) -> None:
        """Fail what is above its deadline. To be called regularly."""
        if self._is_due or (len(self._open) > 0 and self._open.deadline <= now):
            self._seal()  # so that a late-comer does not share an old message's deadline
        while (head := self._window.head) is not None and head.deadline <= now:
            if _is_uncertain(head):
                self._fail_uncertain("no answer within the delivery timeout")
            else:
                self._fail_head(head, self._too_late())
        if self._has_adopted:
            self._expire_adopted(now)

    def _expire_adopted(self, now: float) -> None:
        """Fail what has moved here and is too late, behind messages that have more time."""
        # What was never sent has nothing behind it that was.
        late = [each for each in self._window if each.deadline <= now and not each.was_sent]
        if late:
            place, first = list(self._window).index(late[0]), late[0].first
            self._fail(late, self._too_late())
            self._window.renumber(first, place)
        self._has_adopted = bool(self._window)

    def _too_late(self) -> NotStoredError:
        return NotStoredError(
            f"partition {self.partition}: not stored within the delivery timeout"
            + (self._refusal or "; publish it again when its broker is back")
        )

    def fail_all(self, error: PartqError) -> None:
        """Fail every message with `error`, or as of unknown outcome where that is the truth."""
        self._fail_all(error, self._doubt(self._reason(error)))

    # ---- inside ----

    def _reason(self, error: PartqError) -> str:
        return error.message.removeprefix(f"partition {self.partition}: ")

    def _doubt(self, reason: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"partition {self.partition}: {reason}; the message may or may not be stored: publish "
            "it again if it may be there twice"
        )

    def _fail_all(self, error: PartqError, doubt: OutcomeUnknownError) -> None:
        if len(self._open):
            self._seal()
        uncertain = [batch for batch in self._window if _is_uncertain(batch)]
        self._fail(uncertain, doubt)
        self._fail(list(self._window), error)
        self._window.give_requests_up()

    def _answered_head(self, request: int) -> SealedBatch | None:
        """Return the first batch without an answer if an answer is of it; count it as come."""
        batch = self._window.answered(request)
        if batch is None:
            return None  # given up before: the batch was sent again elsewhere, or has failed
        if self._window.is_rewinding:
            # Behind a refusal: refused, too. It goes out again behind the one refused.
            self._window.rewind()
            self._close_gap()
            return None
        if self._window.head is not batch:
            raise InternalError(
                f"partition {self.partition}: an answer came out of order; use a client of "
                "the broker's version"
            )
        return batch

    def _resolve_head(self, offset: int) -> None:
        head = self._window.pop_head()
        self._give_back(head.count, head.size_bytes)
        self._tally.stored(head.count, head.first_sent_at)
        head.resolve_stored(self.partition, offset)

    def _fail(self, batches: Sequence[SealedBatch], error: PartqError) -> None:
        for batch in batches:
            self._window.remove(batch)
            self._give_back(batch.count, batch.size_bytes)
            self._tally.failed(batch.count)
            batch.resolve_failed(self.partition, error)

    def _hold(self, now: float, retry_after_s: float | None) -> None:
        self.hold_until = now + self._backoff.next_s(retry_after_s)

    def _go_on_from(self, due: int, error: PartqError, now: float) -> None:
        """Continue from the message that the broker wants next."""
        if due < self._window.position:
            # The store has lost what it had confirmed. Nobody has those messages any more.
            self._start_anew(error, f"the store has lost its messages from number {due} on")
            return
        if due > self._window.next:
            reason = f"number {due} is due, so another process publishes under the same id"
            self._break(ConflictError(reason), reason)
            return
        if due == self._window.position:
            self._hold(now, None)
        while (head := self._window.head) is not None and head.end <= due:
            self._resolve_head(UNKNOWN_OFFSET)
        if head is not None and head.first < due:
            if head.is_whole:
                reason = f"number {due} is due, which lies in a transaction: its first messages "
                reason += "are stored without the others, so they were sent otherwise before"
                self._break(ConflictError(reason), reason)
                return
            known, rest = head.cut(due - head.first)
            self._window.pop_head()
            self._window.put_first(rest)
            self._window.put_first(known)
            self._resolve_head(UNKNOWN_OFFSET)

    def _fail_uncertain(self, reason: str) -> None:
        """Fail what may be stored; the rest continues under another producer id."""
        error = self._doubt(reason)
        self._fail([batch for batch in self._window if _is_uncertain(batch)], error)
        self._start_anew(error, reason)

    def _fail_head(self, head: SealedBatch, error: PartqError) -> None:
        """Fail the first batch, which is refused for good, and close the gap that it leaves.

        Where a number stands for one message and no other, everything behind it fails, too.
        """
        if self._are_numbers_fixed:
            self.fail_all(error)
            self.broken = error
            return
        if head.may_be_stored:
            # A repeat is refused. An earlier try may be stored, and so may what was sent behind it.
            self._fail_uncertain(f"a repeat was refused: {self._reason(error)}")
            return
        self._gap = self._gap or _Gap(head.first, error)
        self._fail([head], error)
        self._window.rewind()
        self._close_gap()

    def _close_gap(self) -> None:
        """Renumber behind failed batches, once every copy under way has its answer or is lost."""
        gap = self._gap
        if gap is None or self._window.awaits_answers:
            return
        self._gap = None
        if any(batch.may_be_stored for batch in self._window):
            # Not stored, as what was before them is not; but copies are on their way.
            self._start_anew(gap.error, self._reason(gap.error))
        else:
            self._window.renumber(gap.first)

    def _start_anew(self, error: PartqError, reason: str, advice: str = START_AGAIN) -> None:
        """Number from 0 under another producer id; what is left is certainly not stored."""
        self._gap = None
        producer = self._next_producer(self.producer)
        if producer is None:
            self._break(error, reason, advice)
            return
        self.producer = producer
        for batch in self._window:
            batch.forget_sent()
        self._window.give_requests_up()
        self._window.renumber(0)

    def _break(self, error: PartqError, reason: str, advice: str = START_AGAIN) -> None:
        """Fail everything from now on, for one reason and with one thing to do."""
        where = f"partition {self.partition}: {reason}"
        end = f"nothing can be published here as producer {self.producer!r}: {advice}"
        self._fail_all(
            NotStoredError(f"{where}; {end}"),
            OutcomeUnknownError(f"{where}; the message may or may not be stored; {end}"),
        )
        self.broken = type(error)(f"{where}; {end}")


def _is_uncertain(batch: SealedBatch) -> bool:
    return batch.may_be_stored or batch.request is not None
