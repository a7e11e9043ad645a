"""Keys of a group of order Key that wait: shown, and released before their time."""

import asyncio
from math import ceil, inf

from partq.broker.broker import Broker
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.key_counts import moved_keys
from partq.core.hashing import slot_of
from partq.core.lanes.lane_book import LaneBook
from partq.core.lanes.lane_sender import ParkedLane
from partq.core.model import Offset, PartitionId
from partq.errors import BadRequestError, StoreUnavailableError, UnavailableError
from partq.wire.calls.answers import UNSET
from partq.wire.calls.parked_keys import (
    ParkedKey,
    ParkedKeysResult,
    ReleasedKeyResult,
    ReleaseKeyBody,
)

MAX_LISTED = 4096
"""Keys of one partition in an answer: the most that may wait while new messages are sent."""
KEY_BYTES = 300
"""Of memory, for one of them: the value, and its JSON."""
MAX_BATCHES_READ = 64
"""Of one partition, to learn of which keys the messages are that have failed."""
MAX_BATCHES_NAMED = 4096
"""The same, where all keys wait for those."""
STORE_TIMEOUT_S = 3.0
"""How long a release waits until it is stored."""


def slot_of_body(body: ReleaseKeyBody) -> int | None:
    """Return the slot that is to be released; None: all that wait.

    Raises:
        BadRequestError: not just one of slot, key and all is given; or the key is too long.
    """
    given = [body.slot is not None, body.key is not None, body.all].count(True)
    if given != 1:
        got = f"{given} of them" if given else "none of them"
        raise BadRequestError(f"release: got {got}; expected one of slot, key and all")
    return slot_of(body.key) if body.key is not None else body.slot


async def list_parked(broker: Broker, partition: PartitionId, group: str) -> ParkedKeysResult:
    """Return the keys of a group that wait in a partition; none, if its order is not Key.

    Raises:
        NotOwnerError, UnknownGroupError: nobody knows here.
    """
    owned = broker.find(partition)
    consumed = owned.find(group)
    lanes, now = consumed.keys, broker.clock()
    if lanes is None:
        return ParkedKeysResult([])
    await _name_parked(broker, consumed, lanes)
    moved = moved_keys(owned.layout, consumed)
    parked = [each for each in lanes.list_parked() if each.lane not in moved]
    more = max(0, len(parked) - MAX_LISTED)
    counts = lanes.redeliveries
    failed, _ = await _find_failed(broker, partition, lanes) if parked else ({}, True)
    keys = [
        ParkedKey(
            slot=each.lane,
            offset=(at := failed.get(each.lane, -1) if each.offset < 0 else each.offset),
            due_ms=max(0, ceil((each.until - now) * 1000)) if each.until < inf else 0,
            redeliveries=counts.get(at, 0),
            state=_state(each),
        )
        for each in parked[:MAX_LISTED]
    ]
    return ParkedKeysResult(keys, more or UNSET, lanes.stands_still or UNSET)


async def _name_parked(broker: Broker, consumed: ConsumedPartition, lanes: LaneBook) -> bool:
    """Have keys wait one by one, where all wait as the record does not name all that do.

    Each of these has a message whose failure was counted, and is known once that is read. False:
    all wait on, as not all of these messages could be read now.
    """
    if not lanes.are_all_parked:
        return True
    found, is_whole = await _find_failed(broker, consumed.partition, lanes, most=MAX_BATCHES_NAMED)
    if not is_whole or consumed.keys is not lanes or consumed.is_dropped:
        return False
    lanes.park_by_name({*found, *map(lanes.lane_of, lanes.redeliveries)} - {-1})
    consumed.wake()
    return True


async def _find_failed(
    broker: Broker, partition: PartitionId, lanes: LaneBook, *, most: int = MAX_BATCHES_READ
) -> tuple[dict[int, int], bool]:
    """Return slot → its lowest failed message, of those that no member was sent here.

    Nothing of it was read since the partition was claimed. What is not read in time, or lies in
    more than `most` batches, is left out; False: something is.
    """
    unread = sorted(offset for offset in lanes.redeliveries if lanes.lane_of(offset) < 0)
    found: dict[int, int] = {}
    entry, reads = None, 0
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            for offset in unread:
                if entry is None or not entry.first <= offset < entry.first + entry.count:
                    if reads == most:
                        return found, False
                    reads += 1
                    entry = await broker.log.find(partition, Offset(offset))
                if entry is not None:
                    found.setdefault(entry.slots[offset - entry.first], offset)
    except (TimeoutError, StoreUnavailableError):
        return found, False
    return found, True


def _state(lane: ParkedLane) -> str:
    if lane.until < inf:
        return "waits"
    return "quarantined" if lane.is_quarantined else "blocked"


async def release(
    broker: Broker, partition: PartitionId, group: str, slot: int | None
) -> ReleasedKeyResult:
    """Let a key wait no longer, for its time or until it is released; None: all that wait.

    Raises:
        NotOwnerError, UnknownGroupError: nothing was changed.
        UnavailableError, FencedError: its messages are redelivered now; another broker that claims
            the partition may have them wait on. Or nothing was changed, as the error says.
    """
    consumed = broker.find(partition).find(group)
    lanes, released = consumed.keys, 0
    if lanes is None:
        return ReleasedKeyResult(is_released=False, released=0 if slot is None else UNSET)
    is_named = await _name_parked(broker, consumed, lanes)
    if slot is None:
        released = lanes.unpark_all()
        is_released = released > 0
    else:
        is_released = lanes.unpark(slot)
        if not (is_released or is_named):
            raise UnavailableError(
                f"partition {partition}: nothing was released of {group}: all keys wait, as more "
                "do than its record names, and the messages that failed could not all be read to "
                "find out which; repeat the call, or release all (`partq keys release --all`)",
                retry_after_s=1.0,
            )
    if is_released:
        consumed.wake()
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            # A call before may have released it, and was not stored in time.
            refusal = await broker.cursor_writer.store(consumed, has_changed=is_released)
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: {'no key' if slot is None else f'slot {slot}'} of {group} "
            f"waits {'any more' if slot is None else 'no longer'}, and the store does not answer: "
            "another broker may have it wait on; repeat the call",
            retry_after_s=1.0,
        ) from None
    if refusal is not None:
        raise refusal
    return ReleasedKeyResult(is_released, released if slot is None else UNSET)
