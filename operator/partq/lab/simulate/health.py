"""State of a simulated cluster: what each member consumes and holds, what is left to do."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

from partq.broker.broker import Broker
from partq.broker.parts.partition_shares import PartitionShares
from partq.broker.parts.turn_shares import TurnShares
from partq.core.model import MemberId, PartitionId
from partq.core.sessions.session_book import SessionBook
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts
from partq.lab.simulate.oracle.records import Records
from partq.lab.simulate.schedule import Setting


class Life(Protocol):
    """A broker that runs, or starts."""

    @property
    def broker(self) -> Broker | None: ...  # noqa: D102


class PodLife(Protocol):
    """A pod of consumers."""

    @property
    def is_leaving(self) -> bool: ...  # noqa: D102
    @property
    def group(self) -> str: ...  # noqa: D102


class Wishes(Protocol):
    """What the administrator wants."""

    @property
    def partition_count(self) -> int: ...  # noqa: D102


class ClusterFacts(Protocol):
    """What is judged of a simulated cluster."""

    @property
    def setting(self) -> Setting: ...  # noqa: D102
    @property
    def unanswered(self) -> Collection[int]: ...  # noqa: D102
    @property
    def administrator(self) -> Wishes: ...  # noqa: D102
    @property
    def records(self) -> Records: ...  # noqa: D102
    @property
    def brokers(self) -> Mapping[str, Life]: ...  # noqa: D102
    @property
    def pods(self) -> Mapping[MemberId, PodLife]: ...  # noqa: D102
    @property
    def coordinators(self) -> Collection[object]: ...  # noqa: D102


def unready(cluster: ClusterFacts) -> list[str]:
    """Return the partitions that nobody consumes, each with what it lacks."""
    return [
        f"{facts.name}: {state}"
        for facts in cluster.records.living()
        if (state := _state(cluster, facts)) != "Ready"
    ]


def _state(cluster: ClusterFacts, facts: GroupPartitionFacts) -> str:
    owner = facts.log.owner
    life = cluster.brokers.get(owner)
    owned = (
        life.broker.owned.get(PartitionId.parse(facts.log.name)) if life and life.broker else None
    )
    if owned is None:
        return f"no broker serves it; recorded is {owner or 'nobody'}"
    consumed = owned.groups.get(facts.group)
    if consumed is None:
        return f"{owner} does not know the group"
    if isinstance(consumed.book, SessionBook):
        return "Ready"  # any member may have its sessions
    if isinstance(consumed.shares, PartitionShares):
        return _state_of_parts(cluster, consumed.shares)
    if isinstance(consumed.shares, TurnShares):
        bound = consumed.shares.bound_members()
        pods = {name for name, pod in cluster.pods.items() if pod.group == GROUP}
        return f"bound to {sorted(bound)}, not to {sorted(pods)}" if bound != pods else "Ready"
    if consumed.state != "Ready":
        return f"{consumed.state} at {owner}, member {consumed.member}"
    if consumed.member not in cluster.pods:
        return f"bound to {consumed.member}, which is gone"
    return "Ready"


def _state_of_parts(cluster: ClusterFacts, shares: PartitionShares) -> str:
    owners, bound = shares.owners, shares.bound_members()
    for part in range(owners.count):
        owner = owners.owner(part)
        if owner is None or owner not in cluster.pods or owner not in bound:
            return f"part {part} is with {owner or 'nobody'}"
    return "Ready"


def is_steady(cluster: ClusterFacts, source: str, target: str, name: str) -> bool:
    """Say whether the source stays a member and the target holds its other partitions.

    And one coordinator alone plans.
    """
    pod = cluster.pods.get(MemberId(source))
    return (
        pod is not None
        and not pod.is_leaving
        and len(cluster.coordinators) == 1
        and all(
            _state(cluster, facts).startswith(("Ready", "Paused"))
            for facts in cluster.records.living()
            if facts.group == GROUP and facts.name != name and facts.member == target
        )
    )


def uneven(cluster: ClusterFacts) -> list[str]:
    """Return the pods that have more than their share, or less, with how much they have."""
    loads = Counter(dict.fromkeys((str(p) for p in cluster.pods), 0))
    loads.update(facts.member for facts in cluster.records.living() if facts.group == GROUP)
    share, extra = divmod(loads.total(), len(loads))
    return [
        f"{pod} has {load}"
        for pod, load in loads.items()
        if not share <= load <= share + bool(extra)
    ]


def backlog(cluster: ClusterFacts) -> list[str]:
    """Return the partitions with messages that are not acknowledged."""
    return [
        f"{facts.name}: {facts.cursor} of {len(facts.log.ids)}"
        for facts in cluster.records.living()
        if facts.cursor < len(facts.log.ids) or facts.outbox
    ]


def unsettled(cluster: ClusterFacts) -> list[str]:
    """Return what is left to do of changes of the partition count."""
    layout, wanted = cluster.records.rescales.layout, cluster.administrator.partition_count
    if layout is None:
        return ["the queue has no layout"]
    left = [f"{each} is open, and not in the layout" for each in cluster.records.rescales.unnamed()]
    if layout.revision == 0 and layout.partition_count == wanted:
        return left
    if cluster.unanswered:
        left.append(f"{len(cluster.unanswered)} messages are published, and not confirmed")
    if layout.partition_count != wanted:
        left.append(f"{layout.partition_count} partitions, {wanted} are wanted")
    if layout.next is not None:
        left.append("a change is being prepared")
    left += [f"{each} waits for {[*map(str, of)]}" for each, of in layout.lineage.items()]
    if not cluster.setting.is_audited:  # their record is kept, as nobody archives it here
        left += [f"{each} is retired" for each in layout.retired]
    return left
