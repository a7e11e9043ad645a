"""What a broker looks at each second: its queue's settings, what has aged, what can be freed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from partq.broker.config import read_config
from partq.broker.partition import OwnedPartition
from partq.errors import (
    ConflictError,
    FencedError,
    PartqError,
    StoreUnavailableError,
    UnknownGroupError,
)

if TYPE_CHECKING:
    from partq.broker.broker import Broker

REFRESH_GAP_S = 1.0
"""How often layout, limits and the state of Redis are read."""

_log = logging.getLogger(__name__)


async def refresh(broker: "Broker") -> None:
    """Read the queue's settings now; start the books of new groups, or end it all.

    Raises:
        UnknownQueueError: nobody has created the queue.
        StoreUnavailableError: no answer, or of a Redis Cluster a node is silent; what was known
            stays, and the rest is done.
    """
    config = await read_config(broker.layouts)
    broker.learn(config, await broker.leases.peer_token(broker.drawn_token))
    if config.is_deleted:
        broker.ownership.drop_all()
        broker.binder.lose_all()
        return
    # Before anything is awaited: a group that comes meanwhile is in a later answer.
    for owned in list(broker.owned.values()):
        for group in owned.groups.keys() - config.groups:
            broker.ownership.lose_subscription(
                owned.groups[group], UnknownGroupError(f"group {group}: removed; create it again")
            )
    silence: StoreUnavailableError | None = None
    try:
        await _verify(broker, config.generation)
    except StoreUnavailableError as error:
        silence = error  # what is written for a group that was made again is refused all the same
    for owned in list(broker.owned.values()):
        try:
            await _add_groups(broker, owned, config.groups)
            broker.dead_letters.watch(owned)
            await owned.audit.switch(is_on=config.audit)
        except FencedError as error:
            broker.ownership.lose(owned, error)
        except StoreUnavailableError as error:
            silence = error
        except ConflictError as error:
            _log.warning("%s", error)  # the next refresh tries again
    if silence is not None:
        raise silence


async def _add_groups(broker: "Broker", owned: OwnedPartition, groups: frozenset[str]) -> None:
    """Start the books of groups that are not here yet.

    Raises:
        StoreUnavailableError: no answer.
    """
    for group in groups - owned.groups.keys():
        try:
            record = await broker.partitions.read_cursor(owned.id, group)
        except UnknownGroupError:
            continue  # its cursor is being made: the next refresh finds it
        if broker.owned.get(owned.id) is owned:
            owned.add_groups({group: record})


async def _verify(broker: "Broker", generation: int) -> None:
    """Drop the books of groups that were removed and made again since they were read."""
    unverified = [
        subscription
        for owned in broker.owned.values()
        for subscription in owned.groups.values()
        if subscription.verified != generation
    ]
    births = await broker.partitions.births(
        (subscription.partition, subscription.group) for subscription in unverified
    )
    for subscription in unverified:
        if births.get((subscription.partition, subscription.group)) == subscription.born:
            subscription.verified = generation
        else:
            broker.ownership.lose_subscription(
                subscription,
                UnknownGroupError(
                    f"partition {subscription.partition}: group {subscription.group} was removed "
                    "and made again since its record was read; it is read again"
                ),
            )


async def refresh_forever(broker: "Broker") -> None:
    """Look each second, until cancelled."""
    was_overfull = False

    async def look_at_room() -> None:
        nonlocal was_overfull
        await broker.room.refresh()
        if was_overfull and not broker.room.is_store_overfull:
            for flow in broker.binder.flows:
                flow.notice_all()
        was_overfull = broker.room.is_store_overfull

    looks: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: broker.refresh(),
        look_at_room,
        lambda: broker.expiry.expire(),
        lambda: broker.trimmer.trim(),
        lambda: broker.audit_watch.look(),
    )
    while True:
        for look in looks:
            # None of them waits for another one's part of Redis.
            try:
                await look()
            except PartqError as error:
                _log.warning("queue not refreshed: %s", error)
                if not broker.is_ready:
                    break
        await asyncio.sleep(REFRESH_GAP_S)
