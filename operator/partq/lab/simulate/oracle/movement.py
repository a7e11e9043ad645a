"""No rebalance moves what balance does not require (G5): plans, and what became of them.

What is judged is the type Partitioned with the strategy `sticky`, Exclusive, and Failover, which
goes by rank: what leaves a healthy master goes to the one that the partition's index names.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from partq.core.group.membership import GroupAssessment, MemberState, OwnershipState
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation, MemberFact, PartitionOwnership
from partq.core.group.planner import GroupRules, GroupType, plan
from partq.core.group.standby import StandbyPolicy
from partq.core.layout import Layout
from partq.core.model import MemberId, PartitionId
from partq.core.parts.hash_ranges import HashRange
from partq.core.parts.part_id import partition_of
from partq.lab.simulate.oracle.facts import IDLE, SECOND, GroupPartitionFacts
from partq.lab.simulate.oracle.records import Records

_STAYING: Final = frozenset({OwnershipState.SETTLED, OwnershipState.WAITING, OwnershipState.UNSEEN})


class Movement:
    """Judges every plan of every coordinator, and every commit that takes from a living member."""

    def __init__(
        self,
        records: Records,
        group_type: GroupType,
        fail: Callable[[str, str], None],
        is_steady: Callable[[str, str, str], bool],
        priority_of: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """Prepare it.

        Args:
            records: which member holds what.
            group_type: how the members share.
            fail: called with each violation.
            priority_of: of a member, by its name.
            is_steady: `health.is_steady` of a source, a target and what passes between them.
        """
        self._records = records
        self._type = group_type
        self._fail = fail
        self._is_steady = is_steady
        self._priority_of = priority_of
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
        for move in moves if rules.is_client_assigned else ():
            member = move.ownership.member
            is_gone = (
                observation.facts.get(member) is MemberFact.IS_GONE_FOR_GOOD if member else False
            )
            is_lost = is_gone or assessment.partitions[move.partition] is OwnershipState.OVERDUE
            if move.target is not None or not is_lost:
                self._fail("client", f"planned: {move.partition} from {member} to {move.target}")
        for what in superfluous(observation, assessment, rules, under_way, moves):
            self._fail("G5", f"planned: {what}")
        for move in (
            moves if not any(each.startswith((SECOND, IDLE)) for each in observation.listed) else ()
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
        name = str(partition_of(seen.partition))
        return seen.epoch <= self._records.group_partitions[name].old_epoch

    def _counted(self) -> Iterator[tuple[str, GroupPartitionFacts]]:
        """Return the partitions that count as load: they take messages, or are about to.

        In Exclusive all count: one member is to have also those that take no more messages.
        """
        layout = self._records.rescales.layout
        has_all = self._type is GroupType.EXCLUSIVE
        for name in self._records.logs:
            partition = PartitionId.parse(name)
            if layout is None or (
                partition in layout and (has_all or not _is_outgoing(layout, partition))
            ):
                yield name, self._records.group_partitions[name]

    def layout_changed(self) -> None:
        """Take the news of a step of a change of the partition count: plans did not know of it."""
        self._urgent_count += 1

    def asked_to_pause(self, name: str, attempt: int) -> None:
        """Take a call of a coordinator: the attempt was planned before it."""
        self._known_urgent.setdefault((name, attempt), self._urgent_count)

    def committed(
        self, name: str, attempt: int, source: str, target: str, *, is_bound: bool
    ) -> None:
        """Take a commit that was just stored; `is_bound`: the source had it until then."""
        if not is_bound or not self._is_steady(source, target, name):
            self._urgent_count += 1
            return
        if self._known_urgent.get((name, attempt)) != self._urgent_count:
            return
        members = {other: each.member for other, each in self._counted()}
        members[name] = source
        # What was under way as this was planned may still be, behind a broker that stands still.
        coming = {p: to or "" for p, to in self._counted_on.get(name, {}).items() if p != name}
        views = Counter(members.values()), Counter((members | coming).values())
        ranks = self._priority_of(source), self._priority_of(target)
        if self._type is not GroupType.PARTITIONED and target and ranks[0] != ranks[1]:
            is_better = ranks[1] < ranks[0]
        else:
            is_better = any(_is_better(self._type, loads[source], loads[target]) for loads in views)
        if not is_better:
            loads = views[0]
            self._fail(
                "G5",
                f"{name} moves from {source}, which has {loads[source]}, to "
                f"{target or 'nobody'}, which has {loads[target]}",
            )


def _is_outgoing(layout: Layout, partition: PartitionId) -> bool:
    """Say whether a partition takes no more messages, or will not once a change is committed."""
    if layout.next is not None and not layout.next.sealed.get(partition, True):
        return True
    return partition in layout.retired


def superfluous(
    observation: GroupObservation,
    assessment: GroupAssessment,
    rules: GroupRules,
    under_way: Mapping[PartitionId, MemberId | None],
    moves: Sequence[Move],
) -> Iterator[str]:
    """Return what a plan moves without need.

    A partition without a member, or whose member is late or leaves, must move; one whose member is
    certainly lost may, if somebody stands by. One of a member that stays may only if without that
    move the sizes would differ by more than one; so no member both gives and gets.
    """
    before = {
        p: under_way.get(p, ownership.member) for p, ownership in observation.partitions.items()
    }
    settled = [
        move for move in moves if assessment.partitions[move.partition] is OwnershipState.SETTLED
    ]
    waiting = [
        move for move in moves if assessment.partitions[move.partition] is OwnershipState.WAITING
    ]
    for move in moves:
        is_unseen = assessment.partitions[move.partition] is OwnershipState.UNSEEN
        if is_unseen or move.partition in under_way:
            yield f"{move.partition} moves without a known reason"
    yield from _early(observation, rules, before, waiting)
    match rules.type:
        case GroupType.EXCLUSIVE:
            # With what they hold at brokers that nobody sees, and what is under way to them.
            states = assessment.partitions.items()
            held = Counter(before[p] for p, s in states if s in _STAYING or p in under_way)
            rank = observation.priorities.get
            for move in settled:
                source, target = move.ownership.member, move.target
                if (rank(target or "", 0), -held[target]) > (rank(source or "", 0), -held[source]):
                    yield f"{move.partition} leaves {source}, which has most"
        case GroupType.FAILOVER:
            yield from _out_of_rank(observation, assessment, under_way, settled)
        case GroupType.KEY_SHARED if rules.hash_range is not HashRange.BALANCED:
            pass  # these maps are uneven, and go by regions and names
        case GroupType.PARTITIONED | GroupType.KEY_SHARED:
            owners = {**before, **{move.partition: move.target for move in moves}}
            outgoing = observation.succession.outgoing
            loads = Counter(owner for p, owner in owners.items() if p not in outgoing)
            givers = {move.ownership.member for move in settled}
            for move in settled:
                giver, taker = move.ownership.member, move.target
                if taker is None or loads[taker] > loads[giver] or taker in givers:
                    yield (
                        f"{move.partition} from {giver}, which then has {loads[giver]}, to "
                        f"{taker}, which then has {loads[taker]}"
                    )


def _early(
    observation: GroupObservation,
    rules: GroupRules,
    before: Mapping[PartitionId, MemberId | None],
    waiting: Sequence[Move],
) -> Iterator[str]:
    """Return what is taken from members that are waited for, without a sure loss or a standby."""
    bound = {flow.member for flow in observation.flows}
    lost_at = {(loss.member, loss.broker) for loss in observation.losses}
    takers: dict[MemberId | None, MemberId | None] = {}
    for move in waiting:
        member, target = move.ownership.member, move.target
        held = [each for each in observation.partitions.values() if each.member == member]
        if (
            rules.standby is not StandbyPolicy.AT_ONCE
            or not observation.is_complete
            or member in bound
            or target is None
            or any((member, each.broker) not in lost_at for each in held)
        ):
            yield f"{move.partition} does not wait for {member}"
        elif rules.type.is_dealt:
            begun = member is not None and observation.replacements.get(member) == target
            if takers.setdefault(member, target) != target:
                yield f"{move.partition} is parted from the set of {member}"
            if target in before.values() and not begun:
                yield f"{move.partition} goes to {target}, which does not stand by"
    if len(set(takers.values())) < len(takers):
        yield "one standby takes the sets of several members"


def _out_of_rank(
    observation: GroupObservation,
    assessment: GroupAssessment,
    under_way: Mapping[PartitionId, MemberId | None],
    settled: Sequence[Move],
) -> Iterator[str]:
    """Return what leaves a healthy master for another one than its index names, or too early."""
    ranks = observation.priorities
    members = {m for m, state in assessment.members.items() if state is MemberState.BOUND}
    coming = {member for member in under_way.values() if member is not None}
    members |= {member for member in coming if not assessment.is_outgoing(member)}
    facts = observation.facts
    working = {m for m in members if facts.get(m) is not MemberFact.IS_REPLACEMENT}
    working |= members & {each.member for each in observation.partitions.values()}
    places = []
    for candidates in (working, members):
        best = min((ranks.get(member, 0) for member in candidates), default=0)
        places.append(sorted(m for m in candidates if ranks.get(m, 0) == best))
    for move in settled:
        if MemberState.WAITING in assessment.members.values():
            yield f"{move.partition} leaves {move.ownership.member} while a member may return"
        index = move.partition.index
        if move.target not in {masters[index % len(masters)] for masters in places if masters}:
            yield f"{move.partition} goes to {move.target}, which is not its master by rank"


def _is_better(group_type: GroupType, source_load: int, target_load: int) -> bool:
    """Say whether a partition that changes hands serves what the type wants."""
    match group_type:
        case GroupType.PARTITIONED | GroupType.KEY_SHARED:
            return source_load >= target_load + 2
        case GroupType.SHARED | GroupType.SESSION:
            return False  # nothing changes hands
        case GroupType.EXCLUSIVE:
            return target_load >= source_load
        case GroupType.FAILOVER:
            return True
