"""Which broker owns which partition: first claims, and balance between living brokers.

When a broker dies, the others take its partitions over by themselves; nothing here hurries them. A
partition that moves between living brokers ends every token of it, so what was in flight is
delivered again: balance comes in small steps, and only while nothing else is going on.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from partq.core.group.assignors import sticky
from partq.core.group.observation import NO_SUCCESSION
from partq.core.layout import Succession
from partq.core.model import BrokerId, PartitionId

LEASE_FACTOR = 1.5
"""A lease is over when its counter has stood still for this many of its lengths."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """A broker's lease as the store has it."""

    incarnation: str
    counter: int
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class ObservedBroker:
    """What an observer knows of a broker, on its own clock; all instants are in milliseconds."""

    lease: LeaseSeen | None
    """The last lease seen; None: there never was one while this observer looked."""
    changed_at_ms: int
    """When the lease was last seen to change."""
    is_living: bool
    since_ms: int
    """Since when it is living, or is not."""


def watch(
    watched: Mapping[BrokerId, ObservedBroker],
    leases: Mapping[BrokerId, LeaseSeen],
    owners: Collection[BrokerId],
    now_ms: int,
) -> dict[BrokerId, ObservedBroker]:
    """Return what is known after a look at the leases.

    Args:
        watched: what was known before.
        leases: those in the store now.
        owners: brokers that partitions are said to belong to: they may have no lease.
        now_ms: the observer's own steady clock, never another machine's.
    """
    known: dict[BrokerId, ObservedBroker] = {}
    for broker in sorted({*leases, *owners}):
        before = watched.get(broker)
        lease = leases.get(broker)
        if before is None:
            known[broker] = ObservedBroker(lease, now_ms, lease is not None, now_ms)
            continue
        is_renewed = lease is not None and lease != before.lease
        changed_at_ms = now_ms if is_renewed else before.changed_at_ms
        is_living = lease is not None and now_ms - changed_at_ms < LEASE_FACTOR * lease.ttl_ms
        known[broker] = replace(
            before,
            lease=lease or before.lease,
            changed_at_ms=changed_at_ms,
            is_living=is_living,
            since_ms=before.since_ms if is_living == before.is_living else now_ms,
        )
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRules:
    """How brokers are balanced; times in milliseconds."""

    expected_count: int = 1
    """How many brokers the queue is to have."""
    settle_ms: int = 3_000
    """How long first claims wait for the expected brokers, and balance for a new broker."""
    takeover_leases: float = 2
    """For so many lengths of its lease the partitions of a dead broker are left to the others."""
    move_count: int = 4
    """How many partitions one step of balance moves."""
    move_gap_ms: int = 10_000
    """How long two steps of balance are apart."""
    default_ttl_ms: int = 3_000
    """The length of a lease that was never seen."""


@dataclass(frozen=True, slots=True)
class BrokerMove:
    """One partition is to pass from a living broker to another."""

    partition: PartitionId
    source: BrokerId
    target: BrokerId


Held = Mapping[BrokerId, Collection[PartitionId] | None]
"""What each living broker says it owns; None: it has not answered."""


def first_claims(
    partitions: Sequence[PartitionId],
    watched: Mapping[BrokerId, ObservedBroker],
    held: Held,
    owners: Mapping[PartitionId, BrokerId],
    rules: BrokerRules,
    now_ms: int,
    succession: Succession = NO_SUCCESSION,
) -> dict[BrokerId, list[PartitionId]]:
    """Return which broker is to claim which partitions: those that nobody serves or will claim.

    A new partition goes to the broker of the one that it begins with, where the shares allow it;
    an outgoing one to the broker of its heir.

    Args:
        partitions: all of the layout.
        watched: every broker, as `watch` knows it.
        held: what the living brokers say.
        owners: what the index of the store says.
        rules: the queue's.
        now_ms: the observer's steady clock.
        succession: which partitions follow which.
    """
    served = _served(held)
    living = [broker for broker, seen in watched.items() if seen.is_living and broker in held]
    if not living or (
        not served and not owners and _awaits_brokers(living, watched, rules, now_ms)
    ):
        return {}
    claimable = [
        partition
        for partition in partitions
        if partition not in served and _is_left(owners.get(partition), watched, held, rules, now_ms)
    ]
    able = [broker for broker in living if held[broker] is not None]
    preferred = {q: served[p] for q, p in succession.origins.items() if p in served}
    staying = [partition for partition in partitions if succession.has_weight(partition)]
    wanted = sticky(staying, able, served, preferred)
    outgoing = [partition for partition in claimable if not succession.has_weight(partition)]
    heirs = {p: wanted[q] for p in outgoing if (q := succession.heirs.get(p)) in wanted}
    wanted = {**wanted, **sticky(outgoing, able, {}), **heirs}
    claims: dict[BrokerId, list[PartitionId]] = defaultdict(list)
    for partition in claimable:
        if partition in wanted:
            claims[wanted[partition]].append(partition)
    return dict(claims)


def balance(
    partitions: Sequence[PartitionId],
    watched: Mapping[BrokerId, ObservedBroker],
    held: Held,
    rules: BrokerRules,
    now_ms: int,
    succession: Succession = NO_SUCCESSION,
) -> list[BrokerMove]:
    """Return the next step towards an even spread; none while any broker or partition is in doubt.

    Outgoing partitions count for none: they are not moved for it. The caller keeps the steps
    `move_gap_ms` apart, and asks only when no handoff is under way.
    """
    served = _served(held)
    living = [broker for broker, seen in watched.items() if seen.is_living]
    is_settled = all(
        broker in held
        and held[broker] is not None
        and now_ms - watched[broker].since_ms >= rules.settle_ms
        for broker in living
    )
    if not is_settled or len(served) < len(partitions):
        return []
    staying = [partition for partition in partitions if succession.has_weight(partition)]
    wanted = sticky(staying, living, served)
    moves = [
        BrokerMove(partition, served[partition], wanted[partition])
        for partition in partitions
        if wanted.get(partition, served[partition]) != served[partition]
    ]
    return moves[: rules.move_count]


def _served(held: Held) -> dict[PartitionId, BrokerId]:
    return {
        partition: broker
        for broker, partitions in sorted(held.items())
        for partition in partitions or ()
    }


def _awaits_brokers(
    living: Collection[BrokerId],
    watched: Mapping[BrokerId, ObservedBroker],
    rules: BrokerRules,
    now_ms: int,
) -> bool:
    """Whether a new queue's brokers are still starting: the first one must not get everything."""
    first_ms = min(watched[broker].since_ms for broker in living)
    return len(living) < rules.expected_count and now_ms - first_ms < rules.settle_ms


def _is_left(
    owner: BrokerId | None,
    watched: Mapping[BrokerId, ObservedBroker],
    held: Held,
    rules: BrokerRules,
    now_ms: int,
) -> bool:
    """Whether a partition that nobody serves is nobody's business but ours."""
    if owner is None or owner not in watched:
        return True
    seen = watched[owner]
    if seen.is_living:
        return held.get(owner) is not None  # it has answered, and did not name the partition
    ttl_ms = seen.lease.ttl_ms if seen.lease is not None else rules.default_ttl_ms
    return now_ms - seen.since_ms >= rules.takeover_leases * ttl_ms
