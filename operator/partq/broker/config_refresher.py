"""The config of a broker's queue: read again, and followed by its parts."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from partq.broker.config import QueueConfig, read_config
from partq.broker.dead_letters.forwarder import DeadLetterForwarder
from partq.broker.delivery.flow_registry import FlowRegistry
from partq.broker.order_changes import OrderChanges
from partq.broker.ownership.owned_partitions import OwnedPartitions
from partq.broker.ownership.server_looks import ServerLooks, Spawn
from partq.broker.partition.owned_partition import OwnedPartition
from partq.errors import ConflictError, FencedError, PartqError, UnknownGroupError
from partq.store.records.configs import Configs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.leases import Leases
from partq.store.records.log import Log
from partq.store.records.partitions import Partitions

_log = logging.getLogger(__name__)


class ConfigRefresher:
    """Reads the queue's config, and has the parts of a broker follow it."""

    def __init__(
        self,
        layouts: Layouts,
        configs: Configs,
        leases: Leases,
        partitions: Partitions,
        *,
        ownership: OwnedPartitions,
        flow_registry: FlowRegistry,
        dead_letters: DeadLetterForwarder,
        learn: Callable[[QueueConfig, str], None],
        refresh_owners: Callable[[], Awaitable[None]],
        order_changes: OrderChanges,
        log: Log,
        spawn: Spawn,
    ) -> None:
        self._layouts = layouts
        self._configs = configs
        self._leases = leases
        self._partitions = partitions
        self._ownership = ownership
        self._owned = ownership.owned
        self._looks = ServerLooks("settings", ownership.owned, log, spawn)
        self._flow_registry = flow_registry
        self._dead_letters = dead_letters
        self._learn = learn
        """Takes the config, and the token of the peers."""
        self._refresh_owners = refresh_owners
        self._order_changes = order_changes
        self._revision = 0
        """Of the layout for which the owners were read last."""
        self._drawn_token = secrets.token_urlsafe(24)
        """Becomes the peers' token if none is stored yet."""
        self._reading = asyncio.Lock()
        """Held while the config is read, so that what was read earlier is not taken later."""
        self._restart_count = 0
        self.is_void = False
        """The store was restarted since the layout was read, and may have forgotten it.

        Nothing is sealed or opened by it: it may be of a change that is not committed any more, and
        is aborted with all that its partitions have.
        """

    def forget(self) -> None:
        """Take the news that the store may have forgotten what was read: it is read again."""
        self.is_void = True
        self._restart_count += 1

    async def refresh(self) -> None:
        """Read the queue's config now; start the books of new groups, or end it all.

        Raises:
            UnknownQueueError: nobody has created the queue.
            StoreUnavailableError: no answer, or of a Redis Cluster a node is silent; what was known
                stays, and the rest is done.
        """
        async with self._reading:
            while True:
                restart_count = self._restart_count
                config = await read_config(self._layouts, self._configs)
                await self._find_owners(config.layout.revision)
                token = await self._leases.peer_token(self._drawn_token)
                if restart_count == self._restart_count:
                    break
            self.is_void = False
            config = self._order_changes.in_effect(config)
            self._learn(config, token)
        if config.is_deleted:
            self._ownership.drop_all()
            self._flow_registry.lose_all()
            return
        self._flow_registry.follow_types()
        self._flow_registry.follow_orders()
        # Before anything is awaited: a group that comes meanwhile is in a later answer.
        for owned in list(self._owned.values()):
            for group in sorted(owned.groups.keys() - config.groups):
                self._ownership.lose_group(
                    owned.groups[group],
                    UnknownGroupError(f"group {group}: removed; create it again"),
                )
        await self._looks.look(partial(self._follow, config))

    async def _find_owners(self, revision: int) -> None:
        """Read who owns new partitions before the layout brings messages for them here."""
        if revision == self._revision:
            return
        try:
            await self._refresh_owners()
        except PartqError as error:
            _log.warning("the owners of new partitions could not be read: %s", error)
        self._revision = revision

    async def _follow(self, config: QueueConfig, partitions: Sequence[OwnedPartition]) -> None:
        """Have partitions follow the config.

        Raises:
            StoreUnavailableError: no answer.
        """
        await self._verify(partitions, config.generation)
        for owned in partitions:
            if self._owned.get(owned.id) is not owned:
                continue
            try:
                await self._add_groups(owned, config.groups)
                self._order_changes.follow(owned, config)
                self._dead_letters.watch(owned)
                await owned.audit.switch(is_on=config.audit)
            except FencedError as error:
                self._ownership.lose(owned, error)
            except ConflictError as error:
                _log.warning("%s", error)  # the next refresh tries again

    async def _add_groups(self, owned: OwnedPartition, groups: frozenset[str]) -> None:
        """Start the books of groups that are not here yet.

        Raises:
            StoreUnavailableError: no answer.
        """
        # In an order that does not depend on the process: simulated histories are repeated.
        for group in sorted(groups - owned.groups.keys()):
            try:
                record = await self._partitions.read_cursor(owned.id, group)
            except UnknownGroupError:
                continue  # its cursor is being made: the next refresh finds it
            if self._owned.get(owned.id) is owned:
                owned.add_groups({group: record})
                # No coordinator gives out a Shared group: its flows may be here already.
                self._flow_registry.bind_soon(owned.groups[group])

    async def _verify(self, partitions: Sequence[OwnedPartition], generation: int) -> None:
        """Drop the books of groups that were removed and created again since they were read.

        Raises:
            StoreUnavailableError: no answer. What is written for such a group is refused anyway.
        """
        unverified = [
            consumed
            for owned in partitions
            for consumed in owned.groups.values()
            if consumed.verified != generation
        ]
        births = await self._partitions.births(
            (consumed.partition, consumed.group) for consumed in unverified
        )
        for consumed in unverified:
            if births.get((consumed.partition, consumed.group)) == consumed.born:
                consumed.verified = generation
            else:
                self._ownership.lose_group(
                    consumed,
                    UnknownGroupError(
                        f"partition {consumed.partition}: group {consumed.group} was "
                        "removed and created again since its record was read; it is read again"
                    ),
                )
