"""Sends dead letters back to the queues that they came from, and frees or drops them here.

Each goes to its queue as the replay of this log, numbered by its offset. The queue knows a number
that it has stored, so a replay that was cut off repeats nothing when it is begun again.
"""

from typing import Any

from partq.broker.broker import Broker
from partq.broker.middlewares import error_body
from partq.core.dead_letters import HEADER_PREFIX, replayer_of, without_death
from partq.core.model import Offset, PartitionId
from partq.errors import BadRequestError, ConflictError, PartqError
from partq.store.log import Entry
from partq.wire import batch
from partq.wire.dead_letters import DropBody, ReplayBody

READ_BYTES = 1024 * 1024
READ_ENTRIES = 64
BUDGET_S = 2.0
"""A call ends after this, at whatever message it is: its caller goes on from there."""


async def replay(broker: Broker, partition: PartitionId, body: ReplayBody) -> dict[str, Any]:
    """Replay messages of a partition that is owned here, in the order of their offsets.

    What was replayed is freed at the end of the call.

    Raises:
        NotOwnerError, ConflictError: nothing was replayed.
        StoreUnavailableError: some may have been; a repeat of the call goes on.
    """
    _check_groups(broker, partition)
    record = await broker.partitions.read(partition)
    at = max(body.offsets.get(str(partition), 0), record.trimmed)
    until, left = broker.clock() + BUDGET_S, body.max_messages
    counts = {True: 0, False: 0}
    answer: dict[str, Any] = {}
    try:
        while at < record.next and left and broker.clock() < until:
            entries = await broker.log.read(
                partition, Offset(at), max_bytes=READ_BYTES, max_entries=READ_ENTRIES
            )
            if not entries:
                break
            for entry in entries:
                for offset in range(max(at, entry.first), entry.first + entry.count):
                    if not left or broker.clock() >= until:
                        break
                    counts[await _send(broker, partition, entry, offset)] += 1
                    at, left = offset + 1, left - 1
    except PartqError as error:
        answer["stopped"] = error_body(error)
    await broker.log.trim(partition, broker_epoch=broker.find(partition).broker_epoch, expired=at)
    return {
        "next": at,
        "end": record.next,
        "replayed": counts[True],
        "repeated": counts[False],
        **answer,
    }


async def drop(broker: Broker, partition: PartitionId, body: DropBody) -> dict[str, Any]:
    """Drop the messages of a partition that is owned here, or say which would be.

    A stored batch is dropped as a whole or not at all.

    Raises:
        NotOwnerError, ConflictError: nothing was dropped.
        StoreUnavailableError: some may have been; a repeat of the call goes on.
    """
    _check_groups(broker, partition)
    record = await broker.partitions.read(partition)
    stop = record.next if body.before is None else min(body.before, record.next)
    first = record.trimmed
    while not body.is_dry_run and first < stop:
        epoch = broker.find(partition).broker_epoch
        freed = await broker.log.trim(partition, broker_epoch=epoch, expired=stop)
        if freed.first == first:
            break  # a pin holds the rest, or the batch is not to be dropped as a whole
        first = freed.first
    return {"start": record.trimmed, "stop": stop if body.is_dry_run else first}


def _check_groups(broker: Broker, partition: PartitionId) -> None:
    groups = broker.find(partition).groups
    if groups:
        raise ConflictError(
            f"queue {broker.settings.queue}: group {min(groups)} consumes it, and would get what "
            "is replayed or dropped here, too; move its cursors with `partq reset`, or remove it"
        )


async def _send(broker: Broker, partition: PartitionId, entry: Entry, offset: int) -> bool:
    """Send one message to its queue; False: it has it from an earlier replay."""
    at = offset - entry.first
    (message,) = batch.decode(entry.data, at, at + 1)
    queue = (message.headers or {}).get(HEADER_PREFIX + "queue", "")
    if not queue:
        raise BadRequestError(
            f"partition {partition}: message {offset} has no header {HEADER_PREFIX}queue, so "
            "nothing says where it came from; drop it, or publish it yourself"
        )
    message.headers = without_death(message.headers) or None
    slot = batch.read_slots(entry.data, batch.read_header(entry.data))[at]
    data = batch.encode([batch.encode_message(message)], [slot])
    producer = replayer_of(broker.settings.queue_uid, partition, entry.broker_epoch)
    return await broker.dead_letters.target.send(queue, slot, data, producer, offset)
