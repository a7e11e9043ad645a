"""Sends dead letters back to the queues that they came from, and frees or drops them here.

One is on its way at a time. Before it is sent, its offset and the number under which it goes are
stored; its queue knows a number that it has stored. Afterwards the store knows that it was sent. A
replay that was cut off at any step so repeats nothing and passes nothing over when the next one
begins, whichever dead letters either of them chooses.

A dead letter that stands for an undecodable message is not a message. It stays here; where others
behind it are to be freed, it is first written again at the end of its partition, in the same
steps. So the log is freed from its beginning on, and nothing in it is lost.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from partq.broker.broker import Broker
from partq.broker.partition.owned_partition import OwnedPartition, ReplayProgress
from partq.core.dead_letters import (
    ANY_LETTER,
    HEADER_PREFIX,
    MAX_REPLAYED_AHEAD,
    LetterFilter,
    is_undecodable,
    replayer_of,
    without_death,
)
from partq.core.model import Offset, PartitionId
from partq.errors import (
    BadRequestError,
    BatchTooLargeError,
    ConflictError,
    MessageTooLargeError,
    PartqError,
    QuotaExceededError,
    UndecodableError,
    UnknownQueueError,
)
from partq.excerpts import counted
from partq.store.records.dead_letters import ReplayRecord
from partq.store.records.log import Entry, Trim
from partq.wire import batch
from partq.wire.calls.answers import UNSET, ErrorDetail
from partq.wire.calls.dead_letters import DropBody, DropResult, ReplayBody, ReplayResult
from partq.wire.calls.replies import error_detail

_log = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024
READ_ENTRIES = 64
REFUSED = (BatchTooLargeError, MessageTooLargeError, QuotaExceededError, UnknownQueueError)
"""By which a queue says of a first try that it does not get the message."""
BUDGET_S = 2.0
"""A call ends after this, at whatever message it is: its caller continues from there."""


async def replay(broker: Broker, partition: PartitionId, body: ReplayBody) -> ReplayResult:
    """Replay messages of a partition that is owned here, in the order of their offsets.

    What was replayed is freed at the end of the call, where nothing before it is left. What is
    skipped or not chosen stays. Calls for one partition wait for each other.

    Raises:
        NotOwnerError, ConflictError: nothing was replayed.
        StoreUnavailableError: some may have been; a repeat of the call continues.
    """
    owned, until = broker.find(partition), broker.clock() + BUDGET_S
    async with owned.replaying:
        _check_groups(broker, partition)
        stored = await broker.partitions.read(partition)
        record = await broker.replays.advance(
            partition, broker_epoch=owned.broker_epoch, write=next(owned.writes)
        )
        wanted = LetterFilter(body.key, body.reason)
        at, end = _progress(
            owned, record.below, stored.next, body.offsets.get(str(partition)), wanted
        )
        call = _ReplayCall(
            *(broker, owned, wanted, record, (await broker.replays.read_sent(partition)).ahead),
            *(record.below, at, end, until, body.max_messages),
        )
        answer = ReplayResult()
        try:
            await call.finish_earlier()
            await call.replay()
        except PartqError as error:
            answer.stopped = call.detail_of(error)
        finally:
            owned.replay = ReplayProgress(call.at, call.end, wanted)
        below = await call.close()
        await broker.log.trim(partition, broker_epoch=owned.broker_epoch, expired=below)
    if call.skipped:
        answer.skipped_because = error_detail(
            UndecodableError(
                f"partition {partition}: {counted(call.skipped, 'dead letter')} cannot be sent "
                "back, as the message behind each does not decode; the first is "
                f"{call.first_skipped}; publish what they stood for again, then drop them"
            )
        )
    answer.next, answer.end = call.at, call.end
    answer.replayed, answer.repeated, answer.skipped = call.replayed, call.repeated, call.skipped
    quarantined, first = await call.count_quarantined()
    answer.quarantined, answer.first_quarantined = quarantined or UNSET, first or UNSET
    return answer


def _progress(
    owned: OwnedPartition, below: int, end: int, offset: int | None, wanted: LetterFilter
) -> tuple[int, int]:
    """Return where a call begins, and where it ends.

    A replay of all never begins above what a call has come to: it would change the order of keys.
    """
    known = owned.replay
    if offset is None:
        return below, end
    if known is not None and known.wanted == wanted:
        return max(below, min(offset, known.at)), known.end
    return below if wanted == ANY_LETTER else max(below, min(offset, end)), end


async def drop(broker: Broker, partition: PartitionId, body: DropBody) -> DropResult:
    """Drop the messages of a partition that is owned here, or say which would be.

    A stored batch is dropped as a whole or not at all. Where the oldest message is not a dead
    letter, the queue may be the wrong one: only what `before` names is dropped.

    Raises:
        NotOwnerError, ConflictError: nothing was dropped.
        StoreUnavailableError: some may have been; a repeat of the call continues.
    """
    _check_groups(broker, partition)
    epoch = broker.find(partition).broker_epoch
    record = await broker.partitions.read(partition)
    stop = record.next if body.before is None else min(body.before, record.next)
    first = Offset(record.trimmed)
    if body.before is None:
        await _check_kind(broker, partition, first, record.next)
    result = DropResult(record.trimmed, first)
    while first < stop:
        freed = await broker.log.trim(
            partition, broker_epoch=epoch, expired=stop, is_dry_run=body.is_dry_run
        )
        is_done = freed.first == first or body.is_dry_run
        first = result.stop = freed.first
        if is_done and first < stop:
            result.stopped = error_detail(await _held(broker, partition, freed, stop))
        if is_done:
            break
    return result


async def _held(broker: Broker, partition: PartitionId, freed: Trim, stop: int) -> ConflictError:
    """Return why messages below `stop` are not dropped."""
    what = f"partition {partition} of queue {broker.settings.queue}: messages {freed.first} to"
    if freed.held < stop:
        return ConflictError(
            f"{what} {stop - 1} are not dropped, as a pin keeps what is stored from {freed.held} "
            "on; end the pin, or wait until it ends"
        )
    entry = await broker.log.find(partition, freed.first)
    if entry is None:
        return ConflictError(f"{what} {stop - 1} are not dropped, as the log changed; run it again")
    end = entry.first + entry.count
    return ConflictError(
        f"{what} {end - 1} are stored as one batch, which is dropped as a whole or not at all: "
        f"before {stop}, it is not; to drop it, give --before {end}"
    )


def _check_groups(broker: Broker, partition: PartitionId) -> None:
    groups = broker.find(partition).groups
    if groups:
        raise ConflictError(
            f"queue {broker.settings.queue}: group {min(groups)} consumes it, and would get what "
            "is replayed or dropped here, too; where its cursors are makes no difference; on "
            "Kubernetes delete the ConsumerGroup, elsewhere `partq groups remove` removes it"
        )


async def _check_kind(broker: Broker, partition: PartitionId, first: Offset, end: int) -> None:
    entries = await broker.log.read(partition, first, max_bytes=1, max_entries=1)
    if not entries:
        return
    at = max(first, entries[0].first)
    try:
        (message,) = batch.decode(entries[0].data, at - entries[0].first, at - entries[0].first + 1)
    except UndecodableError:
        headers = None
    else:
        headers = message.headers
    if HEADER_PREFIX + "queue" not in (headers or {}):
        raise ConflictError(
            f"partition {partition} of queue {broker.settings.queue}: message {at} is not a dead "
            f"letter, as it lacks the header {HEADER_PREFIX}queue: nothing was dropped; name the "
            "dead-letter queue itself, or say of this one what is to be dropped, dead letter or "
            f"not: --partition {partition} --before {end}"
        )


@dataclass(slots=True)
class _ReplayCall:
    """One call of a replay. It takes at least one step, whatever the time."""

    broker: Broker
    owned: OwnedPartition
    wanted: LetterFilter
    record: ReplayRecord
    ahead: AbstractSet[int]
    """What was sent back by earlier calls though something before it was not."""
    done: int
    """All below it was sent back, set aside or is no longer stored: it is freed."""
    at: int
    end: int
    until: float
    left: int
    unfinished: int | None = None
    """The offset that an earlier call has left on its way, until it has arrived."""
    over: int | None = None
    """The offset that is no longer on its way, which the store does not know yet."""
    is_sent: bool = False
    """Whether its queue has it, or certainly does not get it."""
    replayed: int = 0
    repeated: int = 0
    skipped: int = 0
    first_skipped: str = ""
    sent_to: dict[tuple[str, str], Counter[int]] = field(default_factory=dict)
    """Queue and group that letters came from → slot → how many were sent back."""

    async def finish_earlier(self) -> None:
        """Send again what was on its way when a call was cut off: it may have arrived, or not.

        Raises:
            PartqError: it is still not known.
        """
        offset, number = self.record.sending, self.record.number
        if offset is None:
            return
        self.unfinished = offset
        entry = await self.broker.log.find(self.owned.id, Offset(offset))
        if entry is None:  # dropped, or it has outlived its time to live
            self.over, self.is_sent, self.unfinished = offset, False, None
            return
        message = self._message(entry, offset)
        is_copy = is_undecodable(message.headers)
        try:
            is_new = await self._send(entry, offset, message, number)
        except UnknownQueueError:  # what may have arrived there was deleted with the queue
            self.over, self.is_sent, self.unfinished = offset, False, None
            return
        self.over, self.is_sent, self.unfinished = offset, True, None
        self.ahead |= {offset}
        if not is_copy:
            self._count(is_new=is_new)

    async def replay(self) -> None:
        """Take the messages in turn until the end, or until the time or the number is used up.

        Raises:
            PartqError: the message at `at`, or one before it that is set aside, was not stored.
        """
        while self.at < self.end and self.left > 0:
            entries = await self._read(self.at)
            if not entries:
                self.at = self.end  # the rest has outlived its time to live meanwhile
            for entry in entries:
                stop = min(entry.first + entry.count, self.end)
                for offset in range(max(self.at, entry.first), stop):
                    await self._resend(entry, offset)
                    if self.left <= 0 or self.broker.clock() >= self.until:
                        return

    def detail_of(self, error: PartqError) -> ErrorDetail:
        """Return why the call has stopped."""
        detail = error_detail(error)
        if self.unfinished is not None:
            detail.message = (
                f"partition {self.owned.id}: message {self.unfinished} was on its way when an "
                f"earlier replay ended, and has to arrive before others go: {error.message}"
            )
        return detail

    async def close(self) -> int:
        """Have the store know what has happened; return below which offset all is to be freed.

        Raises:
            PartqError: it may not know the last step; the next call finds out.
        """
        self.record = await self._advance(None)
        return self.record.below

    async def _resend(self, entry: Entry, offset: int) -> None:
        """Skip a dead letter that is not a message, or send it back once the way to it is free."""
        if offset in self.ahead:
            if self.done == self.at:
                self.done = offset + 1
            self.at = offset + 1
            # A caller counts the offsets of a replay of all, and the wanted messages of others.
            self.left -= self.wanted == ANY_LETTER
            return
        message = self._chosen(entry, offset)
        if message is None:
            self.at = offset + 1
            return
        headers = message.headers or {}
        if is_undecodable(headers):
            told = (headers.get(HEADER_PREFIX + name, "?") for name in ("queue", "position"))
            self.first_skipped = self.first_skipped or " ".join(told)
            self.skipped += 1
            self.left -= 1
        else:
            self._check_origin(message, offset)
            while self.wanted == ANY_LETTER and self.done < self.at:
                if not await self._set_aside():
                    return
            self._note_place(entry, offset, headers)
            self._count(is_new=await self._deliver(entry, offset, message))
            if self.done == self.at:
                self.done = offset + 1
        self.at = offset + 1

    def _note_place(self, entry: Entry, offset: int, headers: Mapping[str, str]) -> None:
        place = (headers.get(HEADER_PREFIX + "queue", ""), headers.get(HEADER_PREFIX + "group", ""))
        self.sent_to.setdefault(place, Counter())[entry.slots[offset - entry.first]] += 1

    async def count_quarantined(self) -> tuple[int, str]:
        """Return how many went to keys in quarantine, and where one of these is."""
        count, first = 0, ""
        for (queue, group), slots in self.sent_to.items():
            try:
                found = await self.broker.dead_letters.target.find_quarantined(queue, group, slots)
            except PartqError as error:  # they are sent all the same
                _log.warning("quarantined keys of %s of %s are not known: %s", group, queue, error)
                continue
            count += sum(slots[slot] for slot in found)
            if found:
                first = first or f"slot {min(found)} of group {group} of queue {queue}"
        return count, first

    def _chosen(self, entry: Entry, offset: int) -> batch.Message | None:
        """Return a message if it is to be sent back; None: it is not one of those that are wanted.

        Raises:
            UndecodableError: all are wanted, and it is not a dead letter.
        """
        try:
            message = self._message(entry, offset)
        except UndecodableError:
            if self.wanted == ANY_LETTER:
                raise
            return None
        headers = message.headers or {}
        is_letter = HEADER_PREFIX + "queue" in headers
        is_wanted = is_letter and self.wanted.has(message.key, headers)
        return message if is_wanted or self.wanted == ANY_LETTER else None

    async def _set_aside(self) -> bool:
        """Write what was skipped again at the end of the log; False: the time is over.

        What was sent back, but could not be freed yet, may lie between.
        """
        entries = await self._read(self.done)
        for entry in entries:
            for offset in range(max(self.done, entry.first), entry.first + entry.count):
                if offset >= self.at:
                    break
                message = self._message(entry, offset)
                if is_undecodable(message.headers) and offset not in self.ahead:
                    self.done = offset
                    await self._deliver(entry, offset, message)
                self.done = offset + 1
                if self.broker.clock() >= self.until:
                    return False
        if not entries or entries[-1].first + entries[-1].count >= self.at:
            self.done = self.at
        return True

    async def _deliver(self, entry: Entry, offset: int, message: batch.Message) -> bool:
        """Have one message stored in its queue; False: it has it from an earlier replay.

        Raises:
            ConflictError: the store cannot remember more of those that are sent out of order.
            PartqError: it is not stored, or that is not known; the next call finds out.
        """
        self.record = await self._advance(offset)
        if self.record.is_full:
            raise ConflictError(
                f"partition {self.owned.id}: message {offset} is not replayed, as "
                f"{MAX_REPLAYED_AHEAD} behind message {self.record.below} were, which is left and "
                "holds the log; replay or drop the oldest dead letters of the partition first"
            )
        if self.record.sending is None:
            return False  # the store knows that it was sent
        if self.record.sending != offset:
            raise ConflictError(
                f"partition {self.owned.id}: message {self.record.sending} is on its way back, and "
                f"message {offset} has to wait for it; run the replay again"
            )
        try:
            is_new = await self._send(entry, offset, message, self.record.number)
        except REFUSED:
            self.over, self.is_sent = offset, False
            raise
        self.over, self.is_sent = offset, True
        return is_new

    async def _advance(self, begin: int | None) -> ReplayRecord:
        record = await self.broker.replays.advance(
            self.owned.id,
            broker_epoch=self.owned.broker_epoch,
            write=next(self.owned.writes),
            over=self.over,
            is_sent=self.is_sent,
            passed=self.done,
            begin=begin,
        )
        self.over = None
        return record

    async def _send(self, entry: Entry, offset: int, message: batch.Message, number: int) -> bool:
        queue = self.broker.settings.queue
        if not is_undecodable(message.headers):
            queue = _origin(message)
            message.headers = without_death(message.headers) or None
        slot = batch.read_slots(entry.data, batch.read_header(entry.data))[offset - entry.first]
        data = batch.encode([batch.encode_message(message)], [slot])
        producer = replayer_of(self.broker.settings.queue_uid, self.owned.id)
        return await self.broker.dead_letters.target.send(queue, slot, data, producer, number)

    def _count(self, *, is_new: bool) -> None:
        self.left -= 1
        if is_new:
            self.replayed += 1
        else:
            self.repeated += 1

    def _check_origin(self, message: batch.Message, offset: int) -> None:
        if not _origin(message):
            raise BadRequestError(
                f"partition {self.owned.id}: message {offset} has no header {HEADER_PREFIX}queue, "
                "so nothing says where it came from; drop it, or publish it yourself"
            )

    def _message(self, entry: Entry, offset: int) -> batch.Message:
        at = offset - entry.first
        try:
            (message,) = batch.decode(entry.data, at, at + 1)
        except UndecodableError as error:
            raise UndecodableError(
                f"partition {self.owned.id}: message {offset} of this queue is not a dead letter "
                f"of a broker ({error.message}); drop it: --partition {self.owned.id} --before "
                f"{entry.first + entry.count}"
            ) from error
        return message

    async def _read(self, start: int) -> list[Entry]:
        return await self.broker.log.read(
            self.owned.id, Offset(start), max_bytes=READ_BYTES, max_entries=READ_ENTRIES
        )


def _origin(message: batch.Message) -> str:
    """Return the queue that a dead letter came from; empty: nothing says that."""
    return (message.headers or {}).get(HEADER_PREFIX + "queue", "")
