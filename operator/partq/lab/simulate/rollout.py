"""What a rolling update costs: partq's own parts in simulated time, and two simple assignors."""

import random
import statistics
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from partq.core.group.assignors import ASSIGNORS, moved
from partq.core.group.planner import GroupType
from partq.core.model import MemberId, PartitionId
from partq.errors import InternalError
from partq.lab.simulate.cluster import SimCluster, with_loop
from partq.lab.simulate.health import uneven, unready
from partq.lab.simulate.process_isolation import alone
from partq.lab.simulate.rolling import Rolling
from partq.lab.simulate.schedule import Setting

READY_S: Final = 1.0
"""How long a new pod takes to be Ready."""
GRACE_S: Final = 30.0
SETTLED_S: Final = 60.0
"""How long everything may take before the first pod is replaced, and after the last one was."""
RUNS: Final = 20
"""The simple assignors go by names, and names are drawn: so theirs is an average."""


@dataclass(frozen=True, slots=True)
class Case:
    """A Deployment of which each pod is replaced once."""

    partition_count: int
    pod_count: int
    is_surge: bool
    """A new pod comes before an old one goes; else after."""


CASES: Final = tuple(
    Case(partition_count, pod_count, is_surge)
    for partition_count, pod_count in ((16, 4), (64, 8), (256, 20))
    for is_surge in (True, False)
)


@dataclass(frozen=True, slots=True)
class Moves:
    """How often partitions were moved in a rollout."""

    count: float
    most: int
    """Those of the partition that was moved most often."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a rollout costs."""

    case: Case
    partq: Moves
    pauses_ms: tuple[float, ...]
    """How long each partition of partq had no member, in simulated milliseconds."""
    sticky: Moves
    modulo: Moves


def cost(case: Case, seed: int = 0) -> Cost:
    """Roll a Deployment out, by partq and by the simple assignors.

    Raises:
        InternalError: an invariant did not hold, or not everything was consumed in the end.
    """
    with alone(seed):
        cluster = _rolled_out(case, seed)
    counts = cluster.watcher.handoffs.moves
    return Cost(
        case=case,
        partq=Moves(counts.total(), max(counts.values(), default=0)),
        pauses_ms=tuple(1000 * pause_s for pause_s in cluster.watcher.handoffs.pauses_s),
        sticky=_simple(case, "sticky", seed),
        modulo=_simple(case, "modulo", seed),
    )


# ---- partq --------------------------------------------------------------------------------------


def _rolled_out(case: Case, seed: int) -> SimCluster:
    setting = Setting(
        partition_count=case.partition_count,
        broker_count=2,
        pod_count=case.pod_count,
        delay_s=5.0,
        max_handoff_s=3.0,
        is_aware=True,
        work_s=0.0,
        group_type=GroupType.PARTITIONED,
        pull_share=0.0,
    )
    cluster = SimCluster(setting, random.Random(seed))  # noqa: S311  chance that can be repeated
    try:
        cluster.begin()
        _wait_until_balanced(cluster)
        cluster.loop.run_until(
            cluster.loop.time() + 1.0
        )  # the answers to the last commits are heard
        cluster.watcher.handoffs.moves.clear()
        cluster.watcher.handoffs.pauses_s.clear()
        rolling = Rolling(cluster, is_surge=case.is_surge, ready_s=READY_S, grace_s=GRACE_S)
        with_loop(cluster.loop, rolling.go_on)
        cluster.loop.run_until(cluster.loop.time() + case.pod_count * (READY_S + 1.0))
        _wait_until_balanced(cluster)
    finally:
        cluster.loop.finish()
    return cluster


def _wait_until_balanced(cluster: SimCluster) -> None:
    """Wait until every partition is consumed, and no pod has more than its share."""
    ends_at = cluster.loop.time() + SETTLED_S
    while waiting := unready(cluster) or uneven(cluster):
        if cluster.loop.time() > ends_at:
            cluster.watcher.fail("G7", f"after {SETTLED_S} s still: {waiting}")
        if (violation := cluster.watcher.violation) is not None or cluster.loop.trouble:
            raise InternalError(f"the rollout failed: {violation or cluster.loop.trouble[0]!r}")
        cluster.loop.run_until(cluster.loop.time() + 0.1)


# ---- the simple ones ----------------------------------------------------------------------------


def _simple(case: Case, name: str, seed: int) -> Moves:
    """Roll out with an assignor that follows every change of the members at once."""
    rng = random.Random(seed)  # noqa: S311  chance that can be repeated
    counts = [_replaced_one_by_one(case, name, rng) for _ in range(RUNS)]
    return Moves(
        statistics.fmean(count.total() for count in counts),
        max(max(count.values()) for count in counts),
    )


def _replaced_one_by_one(case: Case, name: str, rng: random.Random) -> Counter[PartitionId]:
    partitions = [PartitionId(1, index) for index in range(case.partition_count)]
    pods = _names(case.pod_count, rng)
    moves: Counter[PartitionId] = Counter()
    assign = ASSIGNORS[name]
    held: Mapping[PartitionId, MemberId] = assign(partitions, pods, {})

    def follow(members: Collection[MemberId]) -> None:
        nonlocal held
        target = assign(partitions, members, held)
        moves.update(moved(held, target))
        held = target

    living = set(pods)
    for old, new in zip(pods, _names(case.pod_count, rng), strict=True):
        follow(living | {new} if case.is_surge else living - {old})
        living = (living | {new}) - {old}
        follow(living)
    return moves


def _names(count: int, rng: random.Random) -> list[MemberId]:
    return [MemberId(f"{rng.getrandbits(64):016x}") for _ in range(count)]
