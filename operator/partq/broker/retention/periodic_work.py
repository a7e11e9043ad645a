"""What a broker does each second: config, expiry, quota, trimming, audit backlog."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from partq.broker.delivery import flow_liveness
from partq.broker.delivery.acks import AckHandler
from partq.broker.delivery.flow_registry import FlowRegistry
from partq.broker.log.quota import StorageQuota
from partq.broker.retention.audit_backlog import AuditBacklog
from partq.broker.retention.expiry import Expiry
from partq.broker.retention.trimmer import Trimmer
from partq.errors import PartqError

LOOK_GAP_S = 1.0
"""Between two looks at the queue's config, expired messages, quota, trimming, audit backlog."""

_log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]


async def work_periodically(
    refresh: Look,
    *,
    quota: StorageQuota,
    flow_registry: FlowRegistry,
    expiry: Expiry,
    trimmer: Trimmer,
    audit_backlog: AuditBacklog,
    measure_scheduled: Look,
    is_ready: Callable[[], bool],
) -> None:
    """Look each second, until cancelled; nothing before `refresh` has read the config once.

    Raises:
        ExceptionGroup: a look has failed otherwise than by a PartqError; all looks have ended.
    """
    was_overfull = False

    async def look_at_quota() -> None:
        nonlocal was_overfull
        await quota.refresh()
        if was_overfull and not quota.is_store_overfull:
            for flow in flow_registry.flows:
                flow.notice_all()
        was_overfull = quota.is_store_overfull

    while True:
        if await _look("settings", refresh) or is_ready():
            break
        await asyncio.sleep(LOOK_GAP_S)
    # Not bound methods: a test may put another method in the place of one while this runs.
    # What one asks of a silent node of a Redis Cluster, for seconds, does not hold up the others:
    # publishes go by what the quota was at its last look.
    rounds: tuple[Mapping[str, Look], ...] = (
        {"expiry": lambda: expiry.expire(), "settings": refresh},
        {"quota": look_at_quota},
        {"trimming": lambda: trimmer.trim(), "audit backlog": lambda: audit_backlog.measure()},
        {"scheduled messages": measure_scheduled},
    )
    async with asyncio.TaskGroup() as tasks:
        for looks in rounds:
            tasks.create_task(_look_forever(looks), name=f"looks: {', '.join(looks)}")


async def look_at_times(flow_registry: FlowRegistry, ack_handler: AckHandler) -> None:
    """Lose flows that are silent, and take back what takes too long, until cancelled."""
    while True:
        flow_registry.look()
        ack_handler.time_out()
        await asyncio.sleep(flow_liveness.LOOK_GAP_S)


async def _look_forever(looks: Mapping[str, Look]) -> None:
    while True:
        for name, look in looks.items():
            await _look(name, look)
        await asyncio.sleep(LOOK_GAP_S)


async def _look(name: str, look: Look) -> bool:
    """Look once; return whether that went well."""
    try:
        await look()
    except PartqError as error:
        _log.warning("the look %r failed: %s", name, error)
        return False
    return True
