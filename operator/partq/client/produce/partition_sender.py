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

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from partq.client.produce.batching import BatchLimits, OpenBatch, ReadyBatch, SealedBatch
from partq.client.produce.refusals import FINAL, NOTHING_STORED
from partq.client.produce.results import UNKNOWN_OFFSET, MessageResult
from partq.client.produce.window_cut import cut
from partq.client.producer_stats import ProducerTally
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
        self._next = first
        self._open = OpenBatch(limits)
        self._is_due = False
        self._window: deque[SealedBatch] = deque()
        self._sent_count = 0
        self._by_request: dict[int, SealedBatch] = {}
        self._is_rewinding = False
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
            first=self._next,
            size_bytes=ready.size_bytes,
            deadline=deadline,
            ttl_ms=ready.ttl_ms,
        )
        self._next = batch.end
        self._window.append(batch)

    def adopt(self, batches: Iterable[SealedBatch]) -> None:
        """Take batches that another partition has given away; they were never sent to this one."""
        if len(self._open):
            self._seal()
        for batch in batches:
            batch.first = self._next
            self._next = batch.end
            self._window.append(batch)
            # With fixed numbers nothing behind the first may fail by itself.
            self._has_adopted = not self._are_numbers_fixed

    def make_due(self) -> None:
        """Let the gathered messages go; more may join them until there is room to send."""
        self._is_due = len(self._open) > 0

    def _seal(self) -> None:
        batch = self._open.seal(self._next)
        self._next = batch.end
        self._window.append(batch)
        self._is_due = False

    # ---- batches go out ----

    def take(self, request: int, now: float) -> SealedBatch | None:
        """Return the next batch to send, as `request`; None when nothing can be sent now."""
        if self._is_rewinding or now < self.hold_until or self._sent_count >= self.max_in_flight:
            return None
        if self.is_leaving and (self._sent_count or not self._is_head_in_doubt):
            return None
        if self._sent_count == len(self._window):
            if not self._is_due:
                return None
            self._seal()
        batch = self._window[self._sent_count]
        if batch.was_sent:
            self._tally.resent(batch.count)
        batch.note_sent(now)
        self._sent_count += 1
        batch.request = request
        self._by_request[request] = batch
        return batch

    # ---- answers come in ----

    def stored(self, request: int, offset: int) -> None:
        """Take the answer that a batch is stored, now or earlier.

        Raises:
            InternalError: an answer out of order; the connection cannot be trusted.
        """
        if not self._is_head(request):
            return
        self._resolve_head(offset)
        self._backoff.reset()
        self._refusal = ""
        self._has_moved = False

    def refused(
        self, request: int, code: str, message: str, *, due: int, retry_after_s: float, now: float
    ) -> None:
        """Take a refusal of a batch; raises as `stored`."""
        if not self._is_head(request):
            return
        head = self._window[0]
        error = from_code(code, message, retry_after_s=retry_after_s or None)
        self._rewind()
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
                self._fail_head(error)
            case _:
                head.may_be_stored = head.may_be_stored or code not in NOTHING_STORED
                self._refusal = f": {self._reason(error)}"
                self._hold(now, error.retry_after_s)

    def lost(self) -> None:
        """Send everything unanswered again: the connection to the broker has ended."""
        for batch in self._by_request.values():
            batch.may_be_stored = True
            batch.request = None
        self._by_request.clear()
        self._rewind()
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
        return not self._by_request and not self._is_head_in_doubt

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
        first = self._window[0].first
        was_in_doubt = any(batch.may_be_stored for batch in self._window)
        parts = cut(self.partition, tuple(self._window), partition_of)
        kept = parts.pop(self.partition, [])
        if not parts:
            return {}
        for batch in chain(kept, *parts.values()):
            batch.forget_sent()  # under the number that it gets
        self._window = deque(kept)
        self._rewind()
        self.hold_until = 0.0
        if was_in_doubt:
            # Copies may be on their way, with numbers that other messages would get.
            reason = "slots have gone to other partitions"
            self._start_anew(NotStoredError(reason), reason)
        else:
            self._renumber(first)
        return parts

    @property
    def position(self) -> int:
        """The number of the first message without an answer, or of the next one."""
        return self._window[0].first if self._window else self._next

    def remove_window(self) -> list[SealedBatch]:
        """Return all messages without an answer; nothing is sent from here any more.

        To be called when it is known, from elsewhere, which of them are stored.
        """
        self.is_leaving = False
        if len(self._open):
            self._seal()
        window = list(self._window)
        for batch in window:
            batch.forget_sent()
        self._window.clear()
        self._by_request.clear()
        self._rewind()
        return window

    # ---- time is up ----

    def expire(self, now: float) -> None:
        """Fail what is above its deadline. To be called regularly."""
        if self._is_due or (len(self._open) > 0 and self._open.deadline <= now):
            self._seal()  # so that a late-comer does not share an old message's deadline
        while self._window and self._window[0].deadline <= now:
            head = self._window[0]
            if _is_uncertain(head):
                self._fail_uncertain("no answer within the delivery timeout")
            else:
                self._fail_head(self._too_late())
        if self._has_adopted:
            self._expire_adopted(now)

    def _expire_adopted(self, now: float) -> None:
        """Fail what has moved here and is too late, behind messages that have more time."""
        # What was never sent has nothing behind it that was.
        late = [each for each in self._window if each.deadline <= now and not each.was_sent]
        if late:
            place, first = self._window.index(late[0]), late[0].first
            self._fail(late, self._too_late())
            self._renumber(first, place)
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
        self._by_request.clear()
        self._rewind()

    @property
    def _is_head_in_doubt(self) -> bool:
        head = self._window[0] if self._window else None
        return head is not None and head.may_be_stored and not head.is_never_stored

    def _is_head(self, request: int) -> bool:
        """Say whether an answer is of the first unanswered batch, and count it as come."""
        batch = self._by_request.pop(request, None)
        if batch is None:
            return False  # given up before: the batch was sent again elsewhere, or has failed
        batch.request = None
        if self._is_rewinding:
            # Behind a refusal: refused, too. It goes out again behind the one refused.
            self._is_rewinding = bool(self._by_request)
            self._close_gap()
            return False
        if not self._window or self._window[0] is not batch:
            raise InternalError(
                f"partition {self.partition}: an answer came out of order; use a client of "
                "the broker's version"
            )
        return True

    def _resolve_head(self, offset: int) -> None:
        head = self._window.popleft()
        self._sent_count = max(0, self._sent_count - 1)
        self._give_back(head.count, head.size_bytes)
        self._tally.stored(head.count, head.first_sent_at)
        head.resolve_stored(self.partition, offset)

    def _fail(self, batches: Sequence[SealedBatch], error: PartqError) -> None:
        for batch in batches:
            self._window.remove(batch)
            self._give_back(batch.count, batch.size_bytes)
            self._tally.failed(batch.count)
            batch.resolve_failed(self.partition, error)

    def _rewind(self) -> None:
        """Send again from the first unanswered batch, once the answers under way have come."""
        self._sent_count = 0
        self._is_rewinding = bool(self._by_request)

    def _hold(self, now: float, retry_after_s: float | None) -> None:
        self.hold_until = now + self._backoff.next_s(retry_after_s)

    def _go_on_from(self, due: int, error: PartqError, now: float) -> None:
        """Continue from the message that the broker wants next."""
        if due < self._window[0].first:
            # The store has lost what it had confirmed. Nobody has those messages any more.
            self._start_anew(error, f"the store has lost its messages from number {due} on")
            return
        if due > self._next:
            reason = f"number {due} is due, so another process publishes under the same id"
            self._break(ConflictError(reason), reason)
            return
        if due == self._window[0].first:
            self._hold(now, None)
        while self._window and self._window[0].end <= due:
            self._resolve_head(UNKNOWN_OFFSET)
        if self._window and self._window[0].first < due:
            known, rest = self._window[0].cut(due - self._window[0].first)
            self._window[0] = known
            self._resolve_head(UNKNOWN_OFFSET)
            self._window.appendleft(rest)

    def _fail_uncertain(self, reason: str) -> None:
        """Fail what may be stored; the rest continues under another producer id."""
        error = self._doubt(reason)
        self._fail([batch for batch in self._window if _is_uncertain(batch)], error)
        self._start_anew(error, reason)

    def _fail_head(self, error: PartqError) -> None:
        """Fail the first batch, which is refused for good, and close the gap that it leaves.

        Where a number stands for one message and no other, everything behind it fails, too.
        """
        if self._are_numbers_fixed:
            self.fail_all(error)
            self.broken = error
            return
        head = self._window[0]
        if head.may_be_stored:
            # A repeat is refused. An earlier try may be stored, and so may what was sent behind it.
            self._fail_uncertain(f"a repeat was refused: {self._reason(error)}")
            return
        self._gap = self._gap or _Gap(head.first, error)
        self._fail([head], error)
        self._rewind()
        self._close_gap()

    def _close_gap(self) -> None:
        """Renumber behind failed batches, once every copy under way has its answer or is lost."""
        gap = self._gap
        if gap is None or self._by_request:
            return
        self._gap = None
        if any(batch.may_be_stored for batch in self._window):
            # Not stored, as what was before them is not; but copies are on their way.
            self._start_anew(gap.error, self._reason(gap.error))
        else:
            self._renumber(gap.first)

    def _start_anew(self, error: PartqError, reason: str, advice: str = START_AGAIN) -> None:
        """Number from 0 under another producer id; what is left is certainly not stored."""
        self._gap = None
        producer = self._next_producer(self.producer)
        if producer is None:
            self._break(error, reason, advice)
            return
        self.producer = producer
        self._by_request.clear()
        for batch in self._window:
            batch.forget_sent()
        self._rewind()
        self._renumber(0)

    def _renumber(self, first: int, place: int = 0) -> None:
        """Number the batches from a place in the window on."""
        self._next = first
        for batch in islice(self._window, place, None):
            batch.first = self._next
            self._next = batch.end

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
