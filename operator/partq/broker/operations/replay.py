"""Sends dead letters back to the queues that they came from, and frees or drops them here.

Each goes to its queue as the replay of this log, numbered by its offset. The queue knows a number
that it has stored, so a replay that was cut off repeats nothing when it is begun again.

A dead letter that stands for an undecodable message is not a message. It stays here; where others
behind it are to be freed, it is first written again at the end of its partition, numbered in
the same way. So the log is freed from its beginning on, and nothing in it is lost.
"""

from dataclasses import dataclass

from partq.broker.broker import Broker
from partq.broker.partition.owned_partition import OwnedPartition, ReplayProgress
from partq.core.dead_letters import HEADER_PREFIX, is_undecodable, replayer_of, without_death
from partq.core.model import Offset, PartitionId
from partq.errors import BadRequestError, ConflictError, PartqError, UndecodableError
from partq.excerpts import counted
from partq.store.records.log import Entry, Trim
from partq.wire import batch
from partq.wire.calls.dead_letters import DropBody, DropResult, ReplayBody, ReplayResult
from partq.wire.calls.replies import error_detail

READ_BYTES = 1024 * 1024
READ_ENTRIES = 64
BUDGET_S = 2.0
"""A call ends after this, at whatever message it is: its caller continues from there."""


async def replay(broker: Broker, partition: PartitionId, body: ReplayBody) -> ReplayResult:
    """Replay messages of a partition that is owned here, in the order of their offsets.

    What was replayed is freed at the end of the call. What is skipped stays.

    Raises:
        NotOwnerError, ConflictError: nothing was replayed.
        StoreUnavailableError: some may have been; a repeat of the call continues.
    """
    _check_groups(broker, partition)
    owned = broker.find(partition)
    record = await broker.partitions.read(partition)
    begun = _progress(owned, record.trimmed, record.next, body.offsets.get(str(partition)))
    call = _ReplayCall(broker, owned, *begun, broker.clock() + BUDGET_S, body.max_messages)
    answer = ReplayResult()
    try:
        await call.replay()
    except PartqError as error:
        answer.stopped = error_detail(error)
    finally:
        owned.replay = ReplayProgress(call.done, call.at, call.end)
    await broker.log.trim(partition, broker_epoch=owned.broker_epoch, expired=call.done)
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
    return answer


def _progress(owned: OwnedPartition, trimmed: int, end: int, offset: int | None) -> ReplayProgress:
    """Return where a call begins: never above what a call has come to, as all below is freed."""
    known = owned.replay
    if offset is None or known is None:
        return ReplayProgress(trimmed, trimmed, end)
    done = max(known.done, trimmed)
    return ReplayProgress(done, max(done, min(offset, known.at)), known.end)


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
    done: int
    at: int
    end: int
    until: float
    left: int
    replayed: int = 0
    repeated: int = 0
    skipped: int = 0
    first_skipped: str = ""

    async def replay(self) -> None:
        """Take the messages in turn until the end, or until the time or the number is used up.

        Raises:
            PartqError: the message at `at`, or one before it that is set aside, was not stored.
        """
        while self.at < self.end:
            entries = await self._read(self.at)
            if not entries:
                self.at = self.end  # the rest has outlived its time to live meanwhile
            for entry in entries:
                stop = min(entry.first + entry.count, self.end)
                for offset in range(max(self.at, entry.first), stop):
                    await self._resend(entry, offset)
                    if not self.left or self.broker.clock() >= self.until:
                        return

    async def _resend(self, entry: Entry, offset: int) -> None:
        """Skip a dead letter that is not a message, or send it back once the way to it is free."""
        message = self._message(entry, offset)
        headers = message.headers or {}
        if is_undecodable(headers):
            told = (headers.get(HEADER_PREFIX + name, "?") for name in ("queue", "position"))
            self.first_skipped = self.first_skipped or " ".join(told)
            self.skipped += 1
        else:
            while self.done < self.at:
                if not await self._set_aside():
                    return
            if await self._send(entry, offset, message):
                self.replayed += 1
            else:
                self.repeated += 1
            self.done = offset + 1
        self.at = offset + 1
        self.left -= 1

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
                if is_undecodable(message.headers):
                    await self._store(self.broker.settings.queue, entry, offset, message)
                self.done = offset + 1
                if self.broker.clock() >= self.until:
                    return False
        if not entries or entries[-1].first + entries[-1].count >= self.at:
            self.done = self.at
        return True

    async def _send(self, entry: Entry, offset: int, message: batch.Message) -> bool:
        """Send one message to its queue; False: it has it from an earlier replay."""
        queue = (message.headers or {}).get(HEADER_PREFIX + "queue", "")
        if not queue:
            raise BadRequestError(
                f"partition {self.owned.id}: message {offset} has no header {HEADER_PREFIX}queue, "
                "so nothing says where it came from; drop it, or publish it yourself"
            )
        message.headers = without_death(message.headers) or None
        return await self._store(queue, entry, offset, message)

    async def _store(self, queue: str, entry: Entry, offset: int, message: batch.Message) -> bool:
        slot = batch.read_slots(entry.data, batch.read_header(entry.data))[offset - entry.first]
        data = batch.encode([batch.encode_message(message)], [slot])
        uid = self.broker.settings.queue_uid
        producer = replayer_of(uid, self.owned.id, entry.broker_epoch)
        return await self.broker.dead_letters.target.send(queue, slot, data, producer, offset)

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
