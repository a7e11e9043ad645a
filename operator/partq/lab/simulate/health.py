"""How a simulated cluster is: who consumes what, who has how much, what is left to do."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from partq.broker.broker import Broker
from partq.core.model import MemberId, PartitionId
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts
from partq.lab.simulate.oracle.records import Records


class Life(Protocol):
    """A broker that runs, or starts."""

    @property
    def broker(self) -> Broker | None: ...  # noqa: D102


class PodLife(Protocol):
    """A pod of consumers."""

    @property
    def is_leaving(self) -> bool: ...  # noqa: D102


class ClusterFacts(Protocol):
    """What is judged of a simulated cluster."""

    @property
    def records(self) -> Records: ...  # noqa: D102
    @property
    def brokers(self) -> Mapping[str, Life]: ...  # noqa: D102
    @property
    def pods(self) -> Mapping[MemberId, PodLife]: ...  # noqa: D102
    @property
    def coordinators(self) -> Collection[object]: ...  # noqa: D102


def unready(world: ClusterFacts) -> list[str]:
    """Return the partitions that nobody consumes, each with what it lacks."""
    return [
        f"{name}: {state}"
        for name, seat in world.records.seats.items()
        if (state := _state(world, seat)) != "Ready"
    ]


def _state(world: ClusterFacts, seat: GroupPartitionFacts) -> str:
    owner = seat.log.owner
    life = world.brokers.get(owner)
    owned = (
        life.broker.owned.get(PartitionId.parse(seat.log.name)) if life and life.broker else None
    )
    if owned is None:
        return f"no broker serves it; on record is {owner or 'nobody'}"
    subscription = owned.groups.get(seat.group)
    if subscription is None:
        return f"{owner} does not know the group"
    if subscription.state != "Ready":
        return f"{subscription.state} at {owner}, member {subscription.member}"
    if subscription.member not in world.pods:
        return f"bound to {subscription.member}, which is gone"
    return "Ready"


def is_settled(world: ClusterFacts, source: str, target: str, name: str) -> bool:
    """Say whether the source stays a member and the target holds its other partitions.

    And one coordinator alone plans.
    """
    pod = world.pods.get(MemberId(source))
    return (
        pod is not None
        and not pod.is_leaving
        and len(world.coordinators) == 1
        and all(
            _state(world, seat).startswith(("Ready", "Paused"))
            for seat in world.records.seats.values()
            if seat.group == GROUP and seat.name != name and seat.member == target
        )
    )


def uneven(world: ClusterFacts) -> list[str]:
    """Return the pods that have more than their share, or less, with how much they have."""
    loads = Counter(dict.fromkeys((str(p) for p in world.pods), 0))
    loads.update(seat.member for seat in world.records.seats.values() if seat.group == GROUP)
    share, extra = divmod(loads.total(), len(loads))
    return [
        f"{pod} has {load}"
        for pod, load in loads.items()
        if not share <= load <= share + bool(extra)
    ]


def backlog(world: ClusterFacts) -> list[str]:
    """Return the partitions with messages that are not acknowledged."""
    return [
        f"{name}: {seat.cursor} of {len(seat.log.ids)}"
        for name, seat in world.records.seats.items()
        if seat.cursor < len(seat.log.ids) or seat.outbox
    ]
