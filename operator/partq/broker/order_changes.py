"""Changes of a group's order while it is consumed: each partition gets a book that fits it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from partq.broker.config import QueueConfig
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.flow_registry import FlowRegistry
from partq.broker.ownership.server_looks import Spawn
from partq.broker.partition.books import are_in_reach, bound, fits, remade
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.lanes.codec import MAX_BITS
from partq.core.model import BrokerId, Cause
from partq.core.records import (
    LeaseRecord,
    lacking_lanes,
    lacking_parts,
    lacking_sessions,
    lacking_turns,
)

SETTLE_TIMEOUT_S = 3.0
"""How long a change waits until the acks that came before it are stored; else it comes later."""

_log = logging.getLogger(__name__)


class OrderChanges:
    """Has books follow the orders of their groups.

    Args:
        flow_registry: binds and unbinds flows.
        cursor_writer: stores books.
        spawn: runs a change beside the others.
        leases: of the brokers that live, as far as this one knows.
    """

    def __init__(
        self,
        flow_registry: FlowRegistry,
        cursor_writer: CursorWriter,
        spawn: Spawn,
        leases: Callable[[], Mapping[BrokerId, LeaseRecord]],
    ) -> None:
        self._flow_registry = flow_registry
        self._cursor_writer = cursor_writer
        self._spawn = spawn
        self._leases = leases

    def in_effect(self, config: QueueConfig) -> QueueConfig:
        """Return the config with the orders and types that every living broker knows.

        Until they all do, a group of order Key has the order Ordered, one of type KeyShared or
        Shared shares no partition out, and one of type Session gives no session out, so that
        nothing of them is delivered.
        """
        leases = self._leases()
        lacks_lanes, lacks_parts = lacking_lanes(leases), lacking_parts(leases)
        lacks_sessions, lacks_turns = lacking_sessions(leases), lacking_turns(leases)
        if not (lacks_lanes or lacks_parts or lacks_sessions or lacks_turns):
            return config

        def known(rules: RedeliveryRules) -> RedeliveryRules:
            if lacks_parts and rules.parts:
                rules = replace(rules, parts=0)
            if lacks_turns and rules.takes_turns:
                rules = replace(rules, takes_turns=False)
            if lacks_sessions and rules.lock_s:
                rules = replace(rules, lock_s=0.0)
            if lacks_lanes and rules.order is NackOrder.KEY:
                rules = replace(rules, order=NackOrder.ORDERED)
            return rules

        redelivery = {group: known(rules) for group, rules in config.redelivery.items()}
        return replace(config, redelivery=redelivery)

    def follow(self, owned: OwnedPartition, config: QueueConfig) -> None:
        """Begin to change the books of a partition that do not fit the orders of their groups."""
        for group, consumed in owned.groups.items():
            rules = config.redelivery.get(group)
            if rules is None:
                continue
            if bound(consumed.book, rules):
                consumed.wake()
            if fits(consumed.book, rules):
                consumed.order_waits = ""
                continue
            book, before = consumed.book, consumed.order_waits
            is_far = not are_in_reach(book.cursor, book.acked_pairs())
            if (rules.parts or rules.takes_turns or rules.order is NackOrder.KEY) and is_far:
                consumed.order_waits = (
                    f"order Key waits, as acks lie more than {MAX_BITS:,} offsets above the cursor;"
                    f" it takes effect once the message at offset {book.cursor} is done"
                )
                if consumed.order_waits != before:
                    _log.warning(
                        "%s of %s: %s",
                        *(consumed.partition, consumed.group, consumed.order_waits),
                    )
                continue
            # A bind, a handoff or a change that is under way first: the next look comes soon.
            if not consumed.lock.locked():
                self._spawn(self._change(consumed, rules), f"order of {owned.id}/{group}")

    async def _change(self, consumed: ConsumedPartition, rules: RedeliveryRules) -> None:
        async with consumed.lock:
            if consumed.is_dropped or fits(consumed.book, rules):
                return
            self._flow_registry.unbind(consumed, Cause.FLOW_LOST)
            try:
                async with asyncio.timeout(SETTLE_TIMEOUT_S):
                    await self._cursor_writer.settle(consumed)
                    await consumed.settle_audit()
            except TimeoutError:
                _log.warning(
                    "%s of %s: the store does not answer, so the order stays for now",
                    *(consumed.partition, consumed.group),
                )
            else:
                if not consumed.is_dropped:
                    self._replace(consumed, rules)
        if not consumed.is_dropped:
            self._flow_registry.bind_soon(consumed)

    def _replace(self, consumed: ConsumedPartition, rules: RedeliveryRules) -> None:
        consumed.change_book(remade(consumed.book, rules))
        self._cursor_writer.notice(consumed)
        _log.info("%s of %s: order %s", consumed.partition, consumed.group, rules.order)
