"""The broker's view of its queue: layout, limits, groups; read again each second."""

from collections.abc import Mapping
from dataclasses import dataclass

from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryBackoff, RedeliveryRules
from partq.core.dead_letters import OnExhausted
from partq.core.key_states import MAX_STATE_BYTES
from partq.core.layout import Layout
from partq.core.parts.hash_ranges import HashRange
from partq.errors import UnknownQueueError
from partq.store.records.configs import Configs
from partq.store.records.layout.layouts import Layouts
from partq.wire.effective_specs import BackoffSpec, GroupSpec, QueueSpec, read_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterRules:
    """What a group's config says of messages that it cannot process."""

    max_redeliveries: int | None
    """How often one is delivered again for a cause that counts, at most; None: no limit."""
    on_exhausted: OnExhausted = OnExhausted.SKIP
    """In a group of order Key: what becomes of the key of one that has failed more often."""
    queue: str
    """Where they go."""
    takes_expired: bool
    """Whether messages that outlive their time to live go there, too; else they are dropped."""


NO_DEAD_LETTERS = DeadLetterRules(max_redeliveries=None, queue="", takes_expired=False)
"""Of a group whose config an earlier version wrote, or is not stored (any more)."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The layout and the configs of the queue and its groups, as the operator wrote them."""

    layout: Layout
    generation: int
    """Grows with each change, so when a group is removed and created again."""
    groups: frozenset[str]
    types: Mapping[str, str]
    """The type of each group; empty: an earlier version has stored its config."""
    redelivery: Mapping[str, RedeliveryRules]
    """The rules of each group."""
    dead_letters: Mapping[str, DeadLetterRules]
    """Of each group whose config is stored; what another one wants is unknown."""
    client_assigned: frozenset[str]
    """The groups whose members choose their partitions themselves."""
    rebalance_delays: Mapping[str, float]
    """How long partitions of each group wait for a lost member, in seconds, as far as stored."""
    keyless_policy: str
    max_message_bytes: int
    max_spool_bytes: int | None
    max_unacked_per_flow: int
    message_ttl_s: float | None
    """How old a message may become that is not in flight; None: no limit."""
    audit: bool
    """Whether the brokers keep a record of what happens."""
    is_deleted: bool
    """The queue is being deleted: nothing of it is served any more."""
    retention_s: float = 0.0
    """How long messages stay stored that all groups have acknowledged; 0: not at all."""
    max_retained_bytes: int | None = None
    """The most bytes of them in all partitions; None: no limit."""
    id_window_ms: int = 0
    """For how long ids of messages are known; 0: they are not looked at."""
    max_ids: int = 0
    """How many ids a partition knows at most."""
    wanted_count: int | None = None
    """How many partitions the queue is to have; None: nobody has said."""


_UNKNOWN = RedeliveryRules(nack_delay_s=1.0)
"""Of a group whose spec is not stored, or not read yet. The default delay of a minute would hold
its partition up, although the group may ask for less."""


def redelivery_of(config: QueueConfig | None, group: str) -> RedeliveryRules:
    """Return the rules of a group; without a stored spec a nack waits for a second."""
    return (config and config.redelivery.get(group)) or _UNKNOWN


def dead_letters_of(config: QueueConfig | None, group: str) -> DeadLetterRules:
    """Return what a group wants done with dead letters; nothing, if its rules are not stored."""
    return (config and config.dead_letters.get(group)) or NO_DEAD_LETTERS


async def read_config(layouts: Layouts, configs: Configs) -> QueueConfig:
    """Read layout and configs.

    Raises:
        UnknownQueueError: the queue is not there.
        InternalError: a spec that is stored is not one.
    """
    known = await layouts.read()
    config = await configs.read_queue()
    if config is None:
        raise UnknownQueueError(
            "the queue has no config in the store: nobody has created it yet; create it"
        )
    spec = read_spec("queue", config.spec, QueueSpec)
    detection = spec.duplicate_detection
    groups = await configs.read_groups(config)
    specs = {
        group: read_spec(f"group {group}", each.spec, GroupSpec) for group, each in groups.items()
    }
    return QueueConfig(
        layout=known.layout,
        generation=config.resource_generation,
        groups=frozenset(config.groups),
        types={group: spec.type for group, spec in specs.items()},
        redelivery={group: _redelivery(spec) for group, spec in specs.items()},
        dead_letters={group: _dead_letters(spec) for group, spec in specs.items()},
        client_assigned=frozenset(g for g, each in specs.items() if each.assignment == "Client"),
        rebalance_delays={
            group: spec.rebalance.delay_seconds
            for group, spec in specs.items()
            if spec.rebalance is not None
        },
        keyless_policy=spec.keyless_policy,
        max_message_bytes=spec.limits.max_message_bytes,
        max_spool_bytes=spec.limits.max_spool_bytes,
        max_unacked_per_flow=spec.limits.max_unacked_per_flow,
        message_ttl_s=spec.message_ttl_seconds,
        retention_s=spec.retention_seconds,
        max_retained_bytes=spec.limits.max_retained_bytes,
        id_window_ms=0 if detection is None else 1000 * detection.window_seconds,
        max_ids=0 if detection is None else detection.max_ids_per_partition,
        audit=spec.audit,
        is_deleted=known.tombstone,
        wanted_count=spec.partitions,
    )


def _dead_letters(spec: GroupSpec) -> DeadLetterRules:
    """Read a group's rules; a spec that an earlier version wrote has none of them."""
    if spec.dead_letter is None:
        return NO_DEAD_LETTERS
    return DeadLetterRules(
        max_redeliveries=spec.ack.max_redeliveries if spec.ack is not None else None,
        on_exhausted=OnExhausted(spec.ack.on_exhausted if spec.ack is not None else "Skip"),
        queue=spec.dead_letter.queue,
        takes_expired=spec.dead_letter.expired,
    )


def _redelivery(spec: GroupSpec) -> RedeliveryRules:
    """Read a group's rules; a spec that an earlier version wrote has none of them."""
    ack, nack = spec.ack, spec.nack
    if ack is None or nack is None:
        return RedeliveryRules()
    return RedeliveryRules(
        order=NackOrder(nack.order),
        parts=spec.key_shared.parts if spec.key_shared is not None else 0,
        takes_ranges=spec.key_shared is not None and spec.key_shared.hash_range == HashRange.STICKY,
        takes_turns=spec.type == "Shared",
        lock_s=spec.session.lock_seconds if spec.session is not None else 0.0,
        max_state_bytes=min(
            spec.session.max_state_bytes if spec.session is not None else MAX_STATE_BYTES,
            MAX_STATE_BYTES,
        ),
        max_parked_keys=nack.max_parked_keys,
        max_span=ack.max_span,
        max_states=ack.max_states,
        nack_delay_s=nack.delay_seconds,
        nack_backoff=_backoff(nack.backoff),
        ack_timeout_s=ack.timeout_seconds,
        ack_tick_s=ack.tick_seconds,
        ack_backoff=_backoff(ack.backoff),
    )


def _backoff(spec: BackoffSpec | None) -> RedeliveryBackoff | None:
    if spec is None:
        return None
    return RedeliveryBackoff(spec.min_seconds, spec.max_seconds, spec.multiplier)
