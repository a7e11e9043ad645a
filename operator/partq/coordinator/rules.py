"""From the effective specs of a queue and a group to the rules that the core takes."""

from collections.abc import Mapping
from dataclasses import replace

from partq.core.brokers import BrokerRules
from partq.core.group.assignors import assignor
from partq.core.group.disruption_budget import BudgetLimit, DisruptionBudget
from partq.core.group.group_type import OPEN_TYPES, GroupType
from partq.core.group.planner import GroupRules
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.group.standby import StandbyPolicy
from partq.core.model import Start
from partq.core.parts.hash_ranges import HashRange
from partq.core.parts.part_id import DEFAULT_PARTS, MAX_SEATS, PARTS, PARTS_TEXT
from partq.core.slot_table import MAX_PARTITIONS
from partq.errors import SettingsError
from partq.excerpts import excerpt
from partq.wire.effective_specs import EffectiveSpec

MAX_SECONDS = 3600
MAX_INTERVAL_SECONDS = 86_400
MAX_MOVES = 100_000
"""Moves that a disruption budget may let start, at once or per minute."""
MAX_BROKERS = 1000


def broker_rules(queue: EffectiveSpec) -> BrokerRules:
    """Read how many brokers a queue is to have.

    Raises:
        SettingsError: the spec is broken.
    """
    replicas = section(queue, "brokers").get("replicas", 1)
    if not isinstance(replicas, int) or not 1 <= replicas <= MAX_BROKERS:
        raise SettingsError(
            f"brokers.replicas: got {excerpt(repr(replicas))}, expected 1 to {MAX_BROKERS}"
        )
    return BrokerRules(expected_count=replicas)


def wanted_partition_count(queue: EffectiveSpec) -> int | None:
    """Read how many partitions a queue is to have; None: an earlier version has written the spec.

    Raises:
        SettingsError: the spec is broken.
    """
    count = queue.get("partitions")
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PARTITIONS:
        raise SettingsError(
            f"partitions: got {excerpt(repr(count))}, expected a whole number from 1 to "
            f"{MAX_PARTITIONS}"
        )
    return count


def group_rules(queue: EffectiveSpec, group: EffectiveSpec) -> GroupRules:
    """Read a group's rules; what it does not say, its queue says.

    Raises:
        SettingsError: a spec is broken; it names the field.
    """
    rebalance = dict(section(queue, "rebalance"))
    overrides = section(group, "rebalance")
    rebalance |= {name: value for name, value in overrides.items() if value is not None}
    defaults = GroupRules()
    delay_ms = _ms(rebalance, "delaySeconds", defaults.membership.delay_ms)
    type_name = group.get("type", defaults.type.value)
    try:
        group_type = GroupType(str(type_name))
    except ValueError:
        expected = ", ".join(GroupType)
        raise SettingsError(
            f"type: got {excerpt(repr(type_name))}, expected one of {expected}"
        ) from None
    assignment = group.get("assignment", "Server")
    if assignment not in ("Server", "Client"):
        raise SettingsError(
            f"assignment: got {excerpt(repr(assignment))}, expected Server or Client"
        )
    standby_name = rebalance.get("standby", defaults.standby.value)
    try:
        standby = StandbyPolicy(str(standby_name))
    except ValueError:
        expected = " or ".join(StandbyPolicy)
        raise SettingsError(
            f"rebalance.standby: got {excerpt(repr(standby_name))}, expected {expected}"
        ) from None
    strategy = str(group.get("strategy") or defaults.strategy)
    assignor(strategy)
    is_shared = group_type is GroupType.KEY_SHARED
    parts, hash_range = _key_shared(group) if is_shared else (0, defaults.hash_range)
    _check_seats(queue, parts)
    return GroupRules(
        type=group_type,
        strategy=strategy,
        parts=parts,
        hash_range=hash_range,
        is_client_assigned=assignment == "Client",
        standby=standby,
        drain_ms=_ms(rebalance, "maxHandoffSeconds", defaults.drain_ms),
        membership=MembershipRules(delay_ms=delay_ms),
        is_paused=rebalance.get("paused") is True,
        budget=_budget(rebalance),
    )


def _check_seats(queue: EffectiveSpec, parts: int) -> None:
    """Refuse a group that would have too many parts.

    Raises:
        SettingsError: it would; or the spec of the queue is broken.
    """
    partitions = wanted_partition_count(queue) or 1
    if partitions * parts > MAX_SEATS:
        raise SettingsError(
            f"keyShared.parts: got {parts} with {partitions} partitions, {partitions * parts:,} "
            f"parts in all; expected at most {MAX_SEATS:,}"
        )


def check_partition_count(queue: EffectiveSpec, groups: Mapping[str, EffectiveSpec]) -> None:
    """Refuse a partition count with which one of the groups would have too many parts.

    Raises:
        SettingsError: it names that group; or the spec of the queue is broken.
    """
    partitions = wanted_partition_count(queue) or 1
    for name, group in groups.items():
        if group.get("type") != GroupType.KEY_SHARED.value:
            continue
        try:
            parts, _ = _key_shared(group)
        except SettingsError:
            continue  # it is refused by itself, whatever the partition count
        if partitions * parts > MAX_SEATS:
            raise SettingsError(
                f"partitions: got {partitions}, of which group {name} would have {parts} parts "
                f"each, {partitions * parts:,} in all; expected at most {MAX_SEATS:,} parts, so "
                f"{MAX_SEATS // parts:,} partitions while there is that group"
            )


def _key_shared(group: EffectiveSpec) -> tuple[int, HashRange]:
    """Read into how many parts partitions are cut, and how these are shared out."""
    shared = section(group, "keyShared")
    parts = shared.get("parts", DEFAULT_PARTS)
    if isinstance(parts, bool) or not isinstance(parts, int) or parts not in PARTS:
        raise SettingsError(
            f"keyShared.parts: got {excerpt(repr(parts))}, expected one of {PARTS_TEXT}"
        )
    name = shared.get("hashRange", HashRange.BALANCED.value)
    try:
        return parts, HashRange(str(name))
    except ValueError:
        expected = ", ".join(HashRange)
        raise SettingsError(
            f"keyShared.hashRange: got {excerpt(repr(name))}, expected one of {expected}"
        ) from None


def check_key_shared(
    queue: EffectiveSpec, group: EffectiveSpec, before: EffectiveSpec | None
) -> None:
    """Check what a group's spec must have in common with its queue's, and with its last one.

    A group that there is stays right when its queue is to have too many partitions for it:
    `check_partition_count` refuses that.

    Raises:
        SettingsError: it cannot take effect; it names the field.
    """
    kinds = [group.get("type"), *([] if before is None else [before.get("type")])]
    for lasting in (GroupType.KEY_SHARED.value, *sorted(OPEN_TYPES)):
        if before is not None and kinds[0] != kinds[1] and lasting in kinds:
            raise SettingsError(
                f"type: got {kinds[0]}, expected {kinds[1]}: a group that is made as {lasting} "
                f"stays so, and no other one becomes {lasting}; make another group"
            )
    if kinds[0] != GroupType.KEY_SHARED:
        return
    parts, _ = _key_shared(group)
    if before is None:
        _check_seats(queue, parts)  # else it is the partition count that was raised
    elif parts != (had := section(before, "keyShared").get("parts")):
        raise SettingsError(
            f"keyShared.parts: got {parts}, expected {had}: a group keeps the parts that it was "
            "made with; make another group"
        )


def at_once(rules: GroupRules) -> GroupRules:
    """Return rules that wait for nothing and balance even when that is paused: for one look."""
    membership = replace(rules.membership, delay_ms=0, join_quiet_ms=0, join_limit_ms=0)
    return replace(rules, membership=membership, is_paused=False, budget=DisruptionBudget())


def group_start(group: EffectiveSpec) -> Start:
    """Read where a new group begins.

    Raises:
        SettingsError: the spec is broken.
    """
    at_ms = group.get("startAtMs")
    if at_ms is not None:
        if isinstance(at_ms, bool) or not isinstance(at_ms, int) or at_ms < 0:
            raise SettingsError(
                f"startAtMs: got {excerpt(repr(at_ms))}, expected unix milliseconds, 0 or more"
            )
        return at_ms
    match group.get("start", "Earliest"):
        case "Earliest":
            return "Earliest"
        case "Latest":
            return "Latest"
        case other:
            raise SettingsError(f"start: got {excerpt(repr(other))}, expected Earliest or Latest")


def section(spec: EffectiveSpec, field: str) -> EffectiveSpec:
    """Return an object inside a spec; empty: it has none.

    Raises:
        SettingsError: it is something else.
    """
    value = spec.get(field) or {}
    if not isinstance(value, Mapping):
        raise SettingsError(f"{field}: got {excerpt(repr(value))}, expected an object")
    return value


def _budget(rebalance: EffectiveSpec) -> DisruptionBudget:
    return DisruptionBudget(
        max_paused=_count(rebalance, BudgetLimit.PAUSED),
        max_per_minute=_count(rebalance, BudgetLimit.PER_MINUTE),
        min_interval_ms=_ms(rebalance, BudgetLimit.INTERVAL, 0, max_seconds=MAX_INTERVAL_SECONDS),
    )


def _count(rebalance: EffectiveSpec, field: str) -> int:
    count = rebalance.get(field, 0)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_MOVES:
        raise SettingsError(
            f"rebalance.{field}: got {excerpt(repr(count))}, expected a whole number from 0 to "
            f"{MAX_MOVES}"
        )
    return count


def _ms(spec: EffectiveSpec, field: str, default_ms: int, *, max_seconds: int = MAX_SECONDS) -> int:
    seconds = spec.get(field, default_ms / 1000)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= max_seconds:
        raise SettingsError(
            f"rebalance.{field}: got {excerpt(repr(seconds))}, expected 0 to {max_seconds} seconds"
        )
    return round(seconds * 1000)
