"""The brokers of other queues of the namespace, as a sender of dead letters finds and calls them.

They stand in the same Redis: their addresses, and the token by which they know a peer. A process
that can read that token could write the other queue anyway: no Secret, no operator is needed.
"""

import base64
from collections.abc import Collection
from dataclasses import dataclass

from partq.broker.peers.peer_client import PeerClient, UnansweredError, max_bytes
from partq.core.layout import Layout
from partq.core.records import LeaseIndex
from partq.errors import (
    DataLossError,
    InternalError,
    OutcomeUnknownError,
    StaleGenerationError,
    UnavailableError,
    UnknownPartitionError,
    UnknownQueueError,
    WrongPartitionError,
)
from partq.path_names import quoted
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.store.records.layout.seals import Seals
from partq.store.records.leases import Leases
from partq.store.records.lives import Lives
from partq.wire.calls import bodies, body_codec
from partq.wire.calls.answers import DeadLetterAnswer

CALL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Found:
    """Known brokers of a queue."""

    layout: Layout
    index: LeaseIndex
    token: str
    seals: Seals
    """Of its partitions."""


class RemoteQueues:
    """Sends dead letters to whichever broker owns their place in another queue."""

    def __init__(self, store: Store, keys: Keys, peers: PeerClient) -> None:
        self._store = store
        self._keys = keys
        self._peers = peers
        self._known: dict[str, _Found] = {}
        """Read again after every failure: whatever it was, the other side may have moved."""

    async def send(self, queue: str, slot: int, data: bytes, producer: str, number: int) -> bool:
        """Have a batch of one message stored in `queue`, at the partition of its slot.

        Returns whether it was not stored there before, under its number.

        Raises:
            UnknownQueueError: this Redis has no such queue.
            UnavailableError: no broker owns its partition.
            OutcomeUnknownError: no usable answer; the same call again finds out.
            PartqError: the broker's own refusal.
        """
        try:
            try:
                return await self._send(queue, slot, data, producer, number)
            except (StaleGenerationError, WrongPartitionError, UnknownPartitionError):
                # The layout has changed since it was read: the slot is in another partition.
                self._known.pop(queue, None)
                return await self._send(queue, slot, data, producer, number)
        except BaseException:
            self._known.pop(queue, None)
            raise

    async def find_quarantined(self, queue: str, group: str, slots: Collection[int]) -> set[int]:
        """Return those of some slots that a group of `queue` has in quarantine, as stored.

        Raises:
            UnknownQueueError: this Redis has no such queue.
            UnavailableError: no broker of it has run yet.
            StoreUnavailableError: no answer.
        """
        known = self._known.get(queue) or await self._find(queue)
        places = {(known.layout.partition_of(slot), group) for slot in slots}
        progress = await known.seals.read_progress(places)
        quarantined = {slot for each in progress.values() for slot in each.quarantined}
        return quarantined.intersection(slots)

    async def _send(self, queue: str, slot: int, data: bytes, producer: str, number: int) -> bool:
        found = self._known.get(queue) or await self._find(queue)
        partition = found.layout.partition_of(slot)
        broker = found.index.owners.get(partition)
        lease = found.index.leases.get(broker) if broker is not None else None
        if lease is None:
            raise UnavailableError(
                f"queue {queue}: no broker owns partition {partition}; check its brokers"
            )
        try:
            answer = await self._peers.call(
                "POST",
                f"{lease.url}/v1/queues/{quoted(queue, 'queue')}/dead-letters",
                DeadLetterAnswer,
                authorization=f"Bearer {found.token}",
                timeout_s=CALL_TIMEOUT_S,
                where=f"queue {queue}: ",
                data=body_codec.encode(
                    bodies.DeadLetterBody(
                        str(partition), producer, number, base64.b64encode(data).decode()
                    )
                ),
                limit_bytes=max_bytes(1),
            )
        except UnansweredError as error:
            raise OutcomeUnknownError(
                f"queue {queue}: broker {broker} at {lease.url} gave no usable answer ({error}); "
                "check that broker"
            ) from error
        except DataLossError as error:
            # To the sender it means that its own log lacks the message, and a letter is dropped.
            raise InternalError(f"{error.message} ({error.code}); check that broker") from error
        self._known[queue] = found
        return not answer.is_stored_before

    async def _find(self, queue: str) -> _Found:
        own = self._keys
        named = Keys(own.prefix, own.namespace, queue, "")
        uid = await Lives(self._store, named).current_uid()
        if uid is None:
            raise UnknownQueueError(
                f"queue {own.namespace}/{queue}: not found in the Redis of {own.queue}; "
                "create the PartitionedQueue, with the same Redis"
            )
        keys = Keys(own.prefix, own.namespace, queue, uid)
        leases = Leases(self._store, keys)
        token = await leases.read_peer_token()
        if token is None:
            raise UnavailableError(f"queue {queue}: no broker of it has run yet; check its brokers")
        layout = (await Layouts(self._store, keys).read()).layout
        return _Found(layout, await leases.read(), token, Seals(self._store, keys))
