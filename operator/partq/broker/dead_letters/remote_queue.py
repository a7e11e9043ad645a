"""The brokers of other queues of the namespace, as a sender of dead letters finds and calls them.

They stand in the same Redis: their addresses, and the token by which they know a peer. Whoever can
read that token could write the other queue anyway, so it needs no Secret and no operator.
"""

import base64
from dataclasses import dataclass

from aiohttp import ClientError, ClientSession

from partq.broker.peers import call_peer, max_bytes
from partq.broker.tls import BrokerTls
from partq.core.layout import Layout
from partq.errors import (
    DataLossError,
    InternalError,
    OutcomeUnknownError,
    PartqError,
    UnavailableError,
    UnknownQueueError,
)
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.layouts import Layouts
from partq.store.records.leases import BrokerIndex, Leases
from partq.wire.calls import bodies
from partq.wire.calls.answers import DeadLetterAnswer
from partq.wire.calls.replies import convert, read_error

CALL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Found:
    """Known brokers of a queue."""

    layout: Layout
    index: BrokerIndex
    token: str


class RemoteQueues:
    """Sends dead letters to whichever broker owns their place in another queue."""

    def __init__(
        self, store: Store, keys: Keys, session: ClientSession, tls: BrokerTls | None = None
    ) -> None:
        self._store = store
        self._keys = keys
        self._session = session
        self._tls = tls
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
            return await self._send(queue, slot, data, producer, number)
        except BaseException:
            self._known.pop(queue, None)
            raise

    async def _send(self, queue: str, slot: int, data: bytes, producer: str, number: int) -> bool:
        found = self._known.get(queue) or await self._find(queue)
        partition = found.layout.partition_of(slot)
        broker = found.index.owners.get(partition)
        lease = found.index.leases.get(broker) if broker is not None else None
        if lease is None:
            raise UnavailableError(
                f"queue {queue}: no broker owns partition {partition}; look at its brokers"
            )
        try:
            _, answer = await call_peer(
                self._session,
                self._tls,
                "POST",
                f"{lease.url}/v1/queues/{queue}/dead-letters",
                data=bodies.encode(
                    bodies.DeadLetterBody(
                        str(partition), producer, number, base64.b64encode(data).decode()
                    )
                ),
                headers={"Authorization": f"Bearer {found.token}"},
                timeout_s=CALL_TIMEOUT_S,
                limit_bytes=max_bytes(1),
            )
            outcome = read_error(answer, f"queue {queue}: ") or convert(answer, DeadLetterAnswer)
        except (ClientError, TimeoutError, ValueError) as error:
            raise OutcomeUnknownError(
                f"queue {queue}: broker {broker} at {lease.url} gave no usable answer "
                f"({str(error) or type(error).__name__}); look at that broker"
            ) from error
        if isinstance(outcome, DataLossError):
            # To the sender it means that its own log lacks the message, and a letter is dropped.
            raise InternalError(f"{outcome.message} ({outcome.code}); look at that broker")
        if isinstance(outcome, PartqError):
            raise outcome
        self._known[queue] = found
        return not outcome.is_stored_before

    async def _find(self, queue: str) -> _Found:
        own = self._keys
        named = Keys(own.prefix, own.namespace, queue, "")
        uid = await Layouts(self._store, named).current_uid()
        if uid is None:
            raise UnknownQueueError(
                f"queue {own.namespace}/{queue}: the Redis of {own.queue} has none of this name; "
                "create the PartitionedQueue, with the same Redis"
            )
        keys = Keys(own.prefix, own.namespace, queue, uid)
        leases = Leases(self._store, keys)
        token = await leases.read_peer_token()
        if token is None:
            raise UnavailableError(
                f"queue {queue}: no broker of it has run yet; look at its brokers"
            )
        layout = (await Layouts(self._store, keys).read()).layout
        return _Found(layout, await leases.read(), token)
