"""Periodic work of a broker: settings of its queue, expiry, trimming."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from partq.broker.config import QueueConfig, read_config
from partq.broker.dead_letters.forwarder import DeadLetterForwarder
from partq.broker.delivery.flows import FlowRegistry
from partq.broker.log.quota import StorageQuota
from partq.broker.ownership.owner import OwnedPartitions
from partq.broker.partition.partition import OwnedPartition
from partq.broker.retention.audit_backlog import AuditBacklog
from partq.broker.retention.expiry import Expiry
from partq.broker.retention.trimmer import Trimmer
from partq.errors import (
    ConflictError,
    FencedError,
    PartqError,
    StoreUnavailableError,
    UnknownGroupError,
)
from partq.store.records.layouts import Layouts
from partq.store.records.leases import Leases
from partq.store.records.partitions import Partitions

REFRESH_GAP_S = 1.0
"""How often layout, limits and the state of Redis are read."""

_log = logging.getLogger(__name__)


class ConfigRefresher:
    """Reads the queue's settings, and has the parts of a broker follow them."""

    def __init__(
        self,
        layouts: Layouts,
        leases: Leases,
        partitions: Partitions,
        *,
        ownership: OwnedPartitions,
        flow_registry: FlowRegistry,
        dead_letters: DeadLetterForwarder,
        learn: Callable[[QueueConfig, str], None],
    ) -> None:
        self._layouts = layouts
        self._leases = leases
        self._partitions = partitions
        self._ownership = ownership
        self._owned = ownership.owned
        self._flow_registry = flow_registry
        self._dead_letters = dead_letters
        self._learn = learn
        """Takes the settings, and the token of the peers."""
        self._drawn_token = secrets.token_urlsafe(24)
        """What the peers' token becomes if there is none yet."""

    async def refresh(self) -> None:
        """Read the queue's settings now; start the books of new groups, or end it all.

        Raises:
            UnknownQueueError: nobody has created the queue.
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent; what was known
                stays, and the rest is done.
        """
        config = await read_config(self._layouts)
        self._learn(config, await self._leases.peer_token(self._drawn_token))
        if config.is_deleted:
            self._ownership.drop_all()
            self._flow_registry.lose_all()
            return
        # Before anything is awaited: a group that comes meanwhile is in a later answer.
        for owned in list(self._owned.values()):
            for group in owned.groups.keys() - config.groups:
                self._ownership.lose_subscription(
                    owned.groups[group],
                    UnknownGroupError(f"group {group}: removed; create it again"),
                )
        silence: StoreUnavailableError | None = None
        try:
            await self._verify(config.generation)
        except StoreUnavailableError as error:
            # What is written for a group that was made again is refused all the same.
            silence = error
        for owned in list(self._owned.values()):
            try:
                await self._add_groups(owned, config.groups)
                self._dead_letters.watch(owned)
                await owned.audit.switch(is_on=config.audit)
            except FencedError as error:
                self._ownership.lose(owned, error)
            except StoreUnavailableError as error:
                silence = error
            except ConflictError as error:
                _log.warning("%s", error)  # the next refresh tries again
        if silence is not None:
            raise silence

    async def _add_groups(self, owned: OwnedPartition, groups: frozenset[str]) -> None:
        """Start the books of groups that are not here yet.

        Raises:
            StoreUnavailableError: no answer.
        """
        for group in groups - owned.groups.keys():
            try:
                record = await self._partitions.read_cursor(owned.id, group)
            except UnknownGroupError:
                continue  # its cursor is being made: the next refresh finds it
            if self._owned.get(owned.id) is owned:
                owned.add_groups({group: record})

    async def _verify(self, generation: int) -> None:
        """Drop the books of groups that were removed and made again since they were read."""
        unverified = [
            subscription
            for owned in self._owned.values()
            for subscription in owned.groups.values()
            if subscription.verified != generation
        ]
        births = await self._partitions.births(
            (subscription.partition, subscription.group) for subscription in unverified
        )
        for subscription in unverified:
            if births.get((subscription.partition, subscription.group)) == subscription.born:
                subscription.verified = generation
            else:
                self._ownership.lose_subscription(
                    subscription,
                    UnknownGroupError(
                        f"partition {subscription.partition}: group {subscription.group} was "
                        "removed and made again since its record was read; it is read again"
                    ),
                )


async def refresh_forever(
    refresh: Callable[[], Awaitable[None]],
    *,
    room: StorageQuota,
    flow_registry: FlowRegistry,
    expiry: Expiry,
    trimmer: Trimmer,
    audit_watch: AuditBacklog,
    is_ready: Callable[[], bool],
) -> None:
    """Look each second, until cancelled."""
    was_overfull = False

    async def look_at_room() -> None:
        nonlocal was_overfull
        await room.refresh()
        if was_overfull and not room.is_store_overfull:
            for flow in flow_registry.flows:
                flow.notice_all()
        was_overfull = room.is_store_overfull

    # What one asks of a silent node of a Redis Cluster, for seconds, does not hold up the others:
    # publishes go by what the room was at its last look.
    while True:
        if await _look(refresh) or is_ready():
            break
        await asyncio.sleep(REFRESH_GAP_S)
    await asyncio.gather(
        _look_forever(lambda: expiry.expire(), refresh),
        _look_forever(look_at_room),
        _look_forever(lambda: trimmer.trim(), lambda: audit_watch.measure()),
    )


async def _look_forever(*looks: Callable[[], Awaitable[None]]) -> None:
    while True:
        for look in looks:
            await _look(look)
        await asyncio.sleep(REFRESH_GAP_S)


async def _look(look: Callable[[], Awaitable[None]]) -> bool:
    """Look once; return whether that went well."""
    try:
        await look()
    except PartqError as error:
        _log.warning("queue not refreshed: %s", error)
        return False
    return True
