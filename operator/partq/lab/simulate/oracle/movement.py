"""No rebalance moves what balance does not require (G5): plans, and what became of them.

What is judged is the type Partitioned with the strategy `sticky`, and Exclusive. Failover goes by
rank: there a member that joins or leaves may move any partition.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from partq.core.group.membership import GroupAssessment, OwnershipState
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.model import MemberId, PartitionId
from partq.lab.simulate.oracle.facts import SECOND
from partq.lab.simulate.oracle.records import Records

_UNTOUCHABLE: Final = frozenset({OwnershipState.WAITING, OwnershipState.UNSEEN})


class Movement:
    """Judges every plan of every coordinator, and every commit that takes from a living member."""

    def __init__(
        self,
        records: Records,
        group_type: GroupType,
        fail: Callable[[str, str], None],
        is_settled: Callable[[str, str, str], bool],
    ) -> None:
        """Prepare it.

        Args:
            records: who holds what.
            group_type: how the members share.
            fail: called with each violation.
            is_settled: `health.is_settled` of a source, a target and what passes between them.
        """
        self._records = records
        self._type = group_type
        self._fail = fail
        self._is_settled = is_settled
        self._urgent_count = 0
        """Commits that could not wait: what was planned before them did not know of them."""
        self._known_urgent: dict[tuple[str, int], int] = {}
        """How many there had been as an attempt began."""
        self._counted_on: dict[str, dict[str, MemberId | None]] = {}
        """By the partition of a move: what was under way as it was planned, and where to; and what
        a broker still showed of an earlier life of the group."""

    def plan(
        self,
        observation: GroupObservation,
        assessment: GroupAssessment,
        rules: GroupRules,
        under_way: Mapping[PartitionId, MemberId | None],
        promised: Mapping[PartitionId, MemberId],
    ) -> list[Move]:
        """Plan as the real coordinator does, and judge it."""
        moves = plan(observation, assessment, rules, under_way, promised)
        for what in superfluous(observation, assessment, rules.type, under_way, moves):
            self._fail("G5", f"planned: {what}")
        for move in (
            moves if not any(each.startswith(SECOND) for each in observation.listed) else ()
        ):
            self._counted_on[str(move.partition)] = {
                **{
                    str(p): ownership.member
                    for p, ownership in observation.partitions.items()
                    if self._is_over(ownership)
                },
                **{str(p): to for p, to in under_way.items()},
            }
        return moves

    def _is_over(self, seen: PartitionOwnership) -> bool:
        """Say whether what a coordinator has seen is of an earlier life of the group."""
        return seen.epoch <= self._records.group_partitions[str(seen.partition)].old_epoch

    def asked_to_pause(self, name: str, attempt: int) -> None:
        """Take a call of a coordinator: the attempt was planned before it."""
        self._known_urgent.setdefault((name, attempt), self._urgent_count)

    def committed(
        self, name: str, attempt: int, source: str, target: str, *, is_bound: bool
    ) -> None:
        """Take a commit that was just stored; `is_bound`: the source had it until then."""
        if not is_bound or not self._is_settled(source, target, name):
            self._urgent_count += 1
            return
        if self._known_urgent.get((name, attempt)) != self._urgent_count:
            return
        members = {
            other: self._records.group_partitions[other].member for other in self._records.logs
        }
        members[name] = source
        # What was under way as this was planned may still be, behind a broker that stands still.
        coming = {p: to or "" for p, to in self._counted_on.get(name, {}).items() if p != name}
        views = Counter(members.values()), Counter((members | coming).values())
        if not any(_is_better(self._type, loads[source], loads[target]) for loads in views):
            loads = views[0]
            self._fail(
                "G5",
                f"{name} moves from {source}, which has {loads[source]}, to "
                f"{target or 'nobody'}, which has {loads[target]}",
            )


def superfluous(
    observation: GroupObservation,
    assessment: GroupAssessment,
    group_type: GroupType,
    under_way: Mapping[PartitionId, MemberId | None],
    moves: Sequence[Move],
) -> Iterator[str]:
    """Return what a plan moves without need.

    A partition without a member, or whose member is lost or leaves, must move. One of a member
    that stays may only if without that move the sizes would differ by more than one; so no member
    both gives and gets.
    """
    before = {
        p: under_way.get(p, ownership.member) for p, ownership in observation.partitions.items()
    }
    settled = [
        move for move in moves if assessment.partitions[move.partition] is OwnershipState.SETTLED
    ]
    for move in moves:
        if assessment.partitions[move.partition] in _UNTOUCHABLE or move.partition in under_way:
            yield f"{move.partition} moves without a known reason"
    if group_type is GroupType.EXCLUSIVE:
        # With what they hold at brokers that nobody sees, and what is under way to them.
        stays = {OwnershipState.SETTLED, *_UNTOUCHABLE}
        held = Counter(
            before[p] for p, s in assessment.partitions.items() if s in stays or p in under_way
        )
        for move in settled:
            if held[move.target] < held[move.ownership.member]:
                yield f"{move.partition} leaves {move.ownership.member}, which has most"
    if group_type is not GroupType.PARTITIONED:
        return
    loads = Counter({**before, **{move.partition: move.target for move in moves}}.values())
    givers = {move.ownership.member for move in settled}
    for move in settled:
        source, target = move.ownership.member, move.target
        if target is None or loads[target] > loads[source] or target in givers:
            yield (
                f"{move.partition} from {source}, which then has {loads[source]}, to {target}, "
                f"which then has {loads[target]}"
            )


def _is_better(group_type: GroupType, source_load: int, target_load: int) -> bool:
    """Say whether a partition that changes hands serves what the type wants."""
    match group_type:
        case GroupType.PARTITIONED:
            return source_load >= target_load + 2
        case GroupType.EXCLUSIVE:
            return target_load >= source_load
        case GroupType.FAILOVER:
            return True
