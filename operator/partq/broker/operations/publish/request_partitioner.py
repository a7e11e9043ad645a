"""Where a message of a plain HTTP publish goes: by its key, or by the queue's policy."""

import random
from collections.abc import Collection

from aiohttp import web

from partq.broker.broker import Broker
from partq.core.hashing import slot_of
from partq.core.keyless_partitioner import KeylessPartitioner
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.numbering.message_ids import check_message_id
from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.wire.calls.bodies import ID_NAME, PublishBody
from partq.wire.partition_key import KEY_NAMES, partition_key


class RequestPartitioner:
    """Keys and slots of the messages of one request."""

    def __init__(self, broker: Broker, request: web.Request) -> None:
        self._broker = broker
        self._given = [
            (f"header {name}", value)
            for name in KEY_NAMES
            for value in request.headers.getall(name, ())
        ]
        """Headers are the request's, so they are the key of each of its messages."""
        self._message_id = request.headers.get(ID_NAME)
        self._avoided: set[PartitionId] = set()
        self._keyless: KeylessPartitioner | None = None

    def key(self, body: PublishBody) -> str | None:
        """Return a message's partition key, wherever it stands; None: it has none.

        Raises:
            KeyConflictError: it has two.
        """
        own = [] if body.key is None else [("key", body.key)]
        return partition_key([*self._given, *own])

    def message_id(self, body: PublishBody) -> str | None:
        """Return a message's id, from the request's header or its field; None: it has none.

        Raises:
            BadRequestError: it has two, or one that may not be an id.
        """
        given = {each for each in (self._message_id, body.message_id) if each is not None}
        if len(given) > 1:
            raise BadRequestError(
                f"message: {ID_NAME} is {excerpt(self._message_id)} and message_id is "
                f"{excerpt(body.message_id)}; expected one id: leave one of them out"
            )
        for each in given:
            check_message_id(each)
            return each
        return None

    def fixed_slot(
        self, body: PublishBody, key: str | None, message_id: str | None = None
    ) -> int | None:
        """Return the slot of a message; None: any partition will do.

        That is so without a key; where the queue knows ids, without an id, too.

        Raises:
            BadRequestError: no such slot, or no such key.
        """
        if key is not None:
            return slot_of(key)
        if body.slot is None and message_id is not None and self._broker.config.id_window_ms:
            return slot_of(message_id)
        if body.slot is not None and not 0 <= body.slot < SLOT_COUNT:
            raise BadRequestError(
                f"message: slot {excerpt(body.slot)}; expected 0 to {SLOT_COUNT - 1}"
            )
        return body.slot

    @property
    def has_choice(self) -> bool:
        """Whether a partition is left that is served and was not avoided."""
        return len(self._unavailable()) < len(self._broker.config.layout.current_partitions)

    def draw(self) -> int:
        """Return a slot of a partition by the policy; of one that is served, if any is."""
        if self._keyless is None:
            config = self._broker.config
            self._keyless = KeylessPartitioner(
                config.layout,
                config.keyless_policy,
                random,  # spreads load, keeps no secret
                unavailable=self._unavailable(),
                turns=self._broker.keyless_turns,
            )
        return self._keyless.slot()

    def avoid(self, partitions: Collection[PartitionId]) -> None:
        """Draw these no more, nor what else belongs to the brokers that do not answer for them."""
        owners = self._broker.claims.owners
        away = {owners.get(partition) for partition in partitions} - {None, self._broker.id}
        self._avoided.update(partitions)
        self._avoided.update(p for p, owner in owners.items() if owner in away)
        self._keyless = None

    def _unavailable(self) -> set[PartitionId]:
        broker = self._broker
        closed = {each.id for each in broker.owned.values() if not each.layout.is_open}
        usable = broker.claims.served() - self._avoided - closed
        return set(broker.config.layout.current_partitions) - usable
