"""How a simulated cluster is: who consumes what, who has how much, what is left to do."""

from collections import Counter
from typing import TYPE_CHECKING

from partq.core.model import MemberId, PartitionId
from partq.simulate.brokers import GROUP

if TYPE_CHECKING:
    from partq.simulate.world import World


def unready(world: "World") -> list[str]:
    """Return the partitions that nobody consumes, each with what it lacks."""
    return [
        f"{partition}: {state}"
        for partition in world.layout.partitions()
        if (state := _state(world, partition)) != "Ready"
    ]


def _state(world: "World", partition: PartitionId) -> str:
    facts = world.records.partitions[str(partition)]
    life = world.brokers.get(facts.owner)
    owned = life.broker.owned.get(partition) if life and life.broker else None
    if owned is None:
        return f"no broker serves it; on record is {facts.owner or 'nobody'}"
    subscription = owned.groups.get(GROUP)
    if subscription is None:
        return f"{facts.owner} does not know the group"
    if subscription.state != "Ready":
        return f"{subscription.state} at {facts.owner}, member {subscription.member}"
    if subscription.member not in world.pods:
        return f"bound to {subscription.member}, which is gone"
    return "Ready"


def is_settled(world: "World", source: str, target: str, name: str) -> bool:
    """Say whether who gives a partition stays, who gets it has all that is its own beside it.

    And one coordinator alone plans.
    """
    pod = world.pods.get(MemberId(source))
    return (
        pod is not None
        and not pod.is_leaving
        and len(world.coordinators) == 1
        and all(
            _state(world, partition).startswith(("Ready", "Paused"))
            for partition in world.layout.partitions()
            if str(partition) != name and world.records.partitions[str(partition)].member == target
        )
    )


def uneven(world: "World") -> list[str]:
    """Return the pods that have more than their share, or less, with how much they have."""
    loads = Counter(dict.fromkeys((str(p) for p in world.pods), 0))
    loads.update(facts.member for facts in world.records.partitions.values())
    share, extra = divmod(loads.total(), len(loads))
    return [
        f"{pod} has {load}"
        for pod, load in loads.items()
        if not share <= load <= share + bool(extra)
    ]


def backlog(world: "World") -> list[str]:
    """Return the partitions with messages that are not acknowledged."""
    return [
        f"{name}: {facts.cursor} of {len(facts.ids)}"
        for name, facts in world.records.partitions.items()
        if facts.cursor < len(facts.ids)
    ]
