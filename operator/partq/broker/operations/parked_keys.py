"""Keys of a group of order Key that wait: shown, and released before their time."""

import asyncio
from math import ceil, inf

from partq.broker.broker import Broker
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
STORE_TIMEOUT_S = 3.0
"""How long a release waits until it is stored."""


def slot_of_body(body: ReleaseKeyBody) -> int:
    """Return the slot that is to be released.

    Raises:
        BadRequestError: not just one of slot and key is given; or the key is too long.
    """
    if (body.slot is None) == (body.key is None):
        got = "none of them" if body.slot is None else "both"
        raise BadRequestError(f"release: got {got}; expected one of slot and key")
    return slot_of(body.key) if body.key is not None else body.slot or 0


async def list_parked(broker: Broker, partition: PartitionId, group: str) -> ParkedKeysResult:
    """Return the keys of a group that wait in a partition; none, if its order is not Key.

    Raises:
        NotOwnerError, UnknownGroupError: nobody knows here.
    """
    owned = broker.find(partition)
    consumed = owned.find(group)
    lanes, now = consumed.lanes, broker.clock()
    if lanes is None:
        return ParkedKeysResult([])
    moved = moved_keys(owned.layout, consumed)
    parked = [each for each in lanes.list_parked() if each.lane not in moved]
    more = max(0, len(parked) - MAX_LISTED)
    counts = lanes.redeliveries
    failed = await _find_failed(broker, partition, lanes) if parked else {}
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


async def _find_failed(broker: Broker, partition: PartitionId, lanes: LaneBook) -> dict[int, int]:
    """Return slot → its lowest failed message, of those that no member was sent here.

    Nothing of it was read since the partition was claimed. What is not read in time, or lies in
    more than `MAX_BATCHES_READ` batches, is left out.
    """
    unread = sorted(offset for offset in lanes.redeliveries if lanes.lane_of(offset) < 0)
    found: dict[int, int] = {}
    entry, reads = None, 0
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            for offset in unread:
                if entry is None or not entry.first <= offset < entry.first + entry.count:
                    if reads == MAX_BATCHES_READ:
                        break
                    reads += 1
                    entry = await broker.log.find(partition, Offset(offset))
                if entry is not None:
                    found.setdefault(entry.slots[offset - entry.first], offset)
    except (TimeoutError, StoreUnavailableError):
        pass  # the keys are listed all the same
    return found


def _state(lane: ParkedLane) -> str:
    if lane.until < inf:
        return "waits"
    return "quarantined" if lane.is_quarantined else "blocked"


async def release(
    broker: Broker, partition: PartitionId, group: str, slot: int
) -> ReleasedKeyResult:
    """Let a key wait no longer, for its time or until it is released.

    Raises:
        NotOwnerError, UnknownGroupError: nothing was changed.
        UnavailableError, FencedError: its messages are redelivered now; another broker that claims
            the partition may have them wait on.
    """
    consumed = broker.find(partition).find(group)
    if consumed.lanes is None:
        return ReleasedKeyResult(is_released=False)
    is_released = consumed.lanes.unpark(slot)
    if is_released and consumed.flow is not None:
        consumed.flow.notice(consumed)
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            # A call before may have released it, and was not stored in time.
            refusal = await broker.cursor_writer.store(consumed, has_changed=is_released)
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition}: slot {slot} of {group} waits no longer, and the store does "
            "not answer: another broker may have it wait on; repeat the call",
            retry_after_s=1.0,
        ) from None
    if refusal is not None:
        raise refusal
    return ReleasedKeyResult(is_released=is_released)
