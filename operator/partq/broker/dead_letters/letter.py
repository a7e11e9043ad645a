"""Writes a dead letter: its message, or of an undecodable batch what is left to tell."""

from dataclasses import dataclass

from partq.broker.delivery.decode_check import DecodeCheck
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.outbox import BrokenBatch
from partq.core.dead_letters import (
    BATCH_HEADER,
    OMITTED_HEADER,
    UNDECODABLE_HEADER,
    DeadLetter,
    DeadLetterReason,
    Origin,
    headers_of,
)
from partq.core.model import BrokerEpoch, Offset
from partq.errors import DataLossError, UndecodableError
from partq.store.keys import Keys
from partq.store.records.dead_letters import Outboxes
from partq.store.records.log import Entry, Log
from partq.wire import batch

MAX_VALUE_BYTES = batch.MAX_BATCH_BYTES - 65_536
"""A larger batch is no value of a message."""


@dataclass(frozen=True, slots=True)
class WrittenLetter:
    """A dead letter, ready to be sent."""

    slot: int
    data: bytes
    """It alone as a batch."""
    reason: DeadLetterReason
    shorter: bytes | None = None
    """The same without what it can do without; None: it can do without nothing."""
    left_out: str = ""
    """What that is."""
    carries_batch: bool = False
    """It has the bytes of an undecodable batch, which its queue may find too large."""


class LetterWriter:
    """Reads what dead letters are made of."""

    def __init__(self, log: Log, outboxes: Outboxes, keys: Keys, check: DecodeCheck) -> None:
        self._log = log
        self._outboxes = outboxes
        self._keys = keys
        self._check = check

    async def write(self, consumed: ConsumedPartition, letter: DeadLetter) -> WrittenLetter:
        """Return a letter of a group's outbox, with what became of it in its headers.

        Of an undecodable batch the bytes go with one letter; the others name it. Which one
        that was is the broker's memory: another broker sends them once more.

        Raises:
            DataLossError: its message is not in the log.
            StoreUnavailableError: no answer.
        """
        outbox, offset = consumed.outbox, letter.offset
        broken = outbox.broken
        if broken is None or not broken.spares(offset):
            entry = await self._read(consumed, letter)
            at = offset - entry.first
            try:
                (message,) = batch.decode(entry.data, at, at + 1)
            except UndecodableError:
                broken = await self._broken(consumed, entry)
            else:
                slot = batch.read_slots(entry.data, batch.read_header(entry.data))[at]
                return await self._message(consumed, letter, entry, message, slot)
        else:
            entry = None
        told = letter._replace(reason=DeadLetterReason.UNDECODABLE)
        headers = headers_of(None, self._origin(consumed, told, broken.broker_epoch), told)
        headers[UNDECODABLE_HEADER] = str(offset - broken.unreadable.first)
        slot = broken.slots[offset - broken.unreadable.first]
        if entry is None or broken.carrier not in {None, offset}:
            generation = consumed.partition.generation
            headers[BATCH_HEADER] = f"{generation}.{broken.broker_epoch}.{broken.carrier}"
            data = _alone(batch.Message(None, b"", headers), slot)
            return WrittenLetter(slot, data, DeadLetterReason.UNDECODABLE)
        omitted = batch.Message(None, b"", {**headers, OMITTED_HEADER: str(len(entry.data))})
        without = data = _alone(omitted, slot)
        if len(entry.data) <= MAX_VALUE_BYTES:
            data = _alone(batch.Message(None, entry.data, headers), slot)
        return WrittenLetter(
            slot,
            data,
            DeadLetterReason.UNDECODABLE,
            without,
            "the batch, which does not decode,",
            carries_batch=True,
        )

    async def _message(
        self,
        consumed: ConsumedPartition,
        letter: DeadLetter,
        entry: Entry,
        message: batch.Message,
        slot: int,
    ) -> WrittenLetter:
        """Return the letter of a message, with what its application said of it."""
        note = await self._outboxes.note(consumed.partition, consumed.group, letter.number)
        reason = DeadLetterReason(letter.reason)
        if note.is_asked_for:
            reason = DeadLetterReason.APPLICATION
        elif note.is_quarantined:
            reason = DeadLetterReason.QUARANTINED
        told = letter._replace(reason=reason)
        origin = self._origin(consumed, letter, entry.broker_epoch)
        headers = headers_of(message.headers, origin, told)
        message.headers = {**headers, **note.headers}
        data, shorter = _alone(message, slot), None
        if note.description:
            message.headers = {**headers, **note._replace(description="").headers}
            shorter = _alone(message, slot)
        return WrittenLetter(slot, data, reason, shorter, "the description of the application")

    async def _read(self, consumed: ConsumedPartition, letter: DeadLetter) -> Entry:
        partition, offset = consumed.partition, Offset(letter.offset)
        entry = await self._log.find(partition, offset)
        if entry is None:
            raise DataLossError(
                f"partition {partition}, group {consumed.group}: the log does not hold message "
                f"{offset} of a dead letter, expected it until the dead letter is stored; the "
                "record is read again, and a dead letter that misses its message is dropped"
            )
        return entry

    async def _broken(self, consumed: ConsumedPartition, entry: Entry) -> BrokenBatch:
        broken = consumed.outbox.broken
        if broken is None or broken.unreadable.first != entry.first:
            slots = batch.read_slots(entry.data, batch.read_header(entry.data))
            broken = BrokenBatch(await self._check.check(entry), slots, entry.broker_epoch)
            consumed.outbox.broken = broken
        return broken

    def _origin(
        self, consumed: ConsumedPartition, letter: DeadLetter, broker_epoch: BrokerEpoch
    ) -> Origin:
        return Origin(
            self._keys.queue,
            consumed.group,
            consumed.partition,
            Offset(letter.offset),
            broker_epoch,
        )


def _alone(message: batch.Message, slot: int) -> bytes:
    return batch.encode([batch.encode_message(message)], [slot])
