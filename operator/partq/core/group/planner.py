"""Which partitions of a group move now, and to whom: from the judgement to a list of moves.

Three kinds of partitions are told apart. Those without a member that will serve them must move.
Those whose member is settled move only for balance, and only when nothing is in doubt. Those that
wait for a lost member, are being handed over, or were not seen stay where they are, unless a
member stands by for a lost one.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Protocol

from partq.core.group.assignors import (
    ASSIGNORS,
    NO_PRIORITIES,
    Assignor,
    exclusive,
    failover,
    moved,
    sticky,
)
from partq.core.group.disruption_budget import DisruptionBudget
from partq.core.group.group_type import GroupType as GroupType
from partq.core.group.membership import GroupAssessment, MemberState, OwnershipState
from partq.core.group.moves import Forced, Move, Trigger
from partq.core.group.observation import GroupObservation, MemberFact
from partq.core.group.placement import give_to_least_loaded, give_to_most_loaded
from partq.core.group.rebalance_delay import MembershipRules
from partq.core.group.replacements import choose_replacements, idle_replacements
from partq.core.group.standby import StandbyPolicy, choose_standbys, lost_sets
from partq.core.model import MemberId, PartitionId
from partq.core.parts.hash_ranges import (
    HashRange,
    RingOrder,
    auto_split,
    balanced,
    consistent_hash,
    declared,
    with_new_parts,
)

NOTHING_PROMISED: Mapping[PartitionId, MemberId] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """What a group's resource says about its assignment."""

    type: GroupType = GroupType.PARTITIONED
    strategy: str = "sticky"
    """A name of `assignors.ASSIGNORS`; used by the type Partitioned."""
    parts: int = 0
    """In groups of the type KeyShared: how many parts each partition is cut into. What is planned
    for, instead of partitions, are these parts."""
    hash_range: HashRange = HashRange.BALANCED
    """Used by the type KeyShared."""
    is_client_assigned: bool = False
    """Members choose their partitions: a plan only takes them from members that are lost."""
    standby: StandbyPolicy = StandbyPolicy.AT_ONCE
    """Whether a member that stands by waits for a lost one as long as the others do."""
    drain_ms: int = 3_000
    """How long a source may finish what it is processing."""
    membership: MembershipRules = field(default_factory=MembershipRules)
    is_paused: bool = False
    """Nothing moves for balance alone; partitions without a member still get one."""
    budget: DisruptionBudget = field(default_factory=DisruptionBudget)
    """How much may move for balance at a time."""


class Planner(Protocol):
    """The signature of `plan`: a judge of plans puts itself in its place."""

    def __call__(
        self,
        observation: GroupObservation,
        assessment: GroupAssessment,
        rules: GroupRules,
        under_way: Mapping[PartitionId, MemberId | None],
        promised: Mapping[PartitionId, MemberId],
    ) -> list[Move]:
        """Return the moves to start now, by partition."""


def plan(
    observation: GroupObservation,
    assessment: GroupAssessment,
    rules: GroupRules,
    under_way: Mapping[PartitionId, MemberId | None],
    promised: Mapping[PartitionId, MemberId] = NOTHING_PROMISED,
) -> list[Move]:
    """Return the moves to start now, by partition.

    Args:
        observation: what is known of the group.
        assessment: `membership.assess` of it.
        rules: the group's.
        under_way: the targets of the handoffs that run; these partitions are left alone.
        promised: the targets of moves for balance that an earlier plan made and that wait; they
            hold as long as no other plan moves less.
    """
    return _PlanBuilder(observation, assessment, rules, under_way, promised).plan()


def may_be_balanced(
    observation: GroupObservation, assessment: GroupAssessment, rules: GroupRules
) -> bool:
    """Whether partitions may move that nobody has lost.

    Not while members are unknown, may come back, or join: what moved now would move again. In a
    Failover group a loss re-deals the partitions of the other masters, too: they wait for a lost
    member although its own partitions may not.
    """
    return (
        not rules.is_paused
        and observation.is_complete
        and not assessment.join_wait_ms
        and OwnershipState.WAITING not in assessment.partitions.values()
        and not (
            rules.type is GroupType.FAILOVER and MemberState.WAITING in assessment.members.values()
        )
    )


class _PlanBuilder:
    """One plan; a partition is looked at once."""

    def __init__(
        self,
        observation: GroupObservation,
        assessment: GroupAssessment,
        rules: GroupRules,
        under_way: Mapping[PartitionId, MemberId | None],
        promised: Mapping[PartitionId, MemberId],
    ) -> None:
        self._promised = promised
        self._observation = observation
        self._assessment = assessment
        self._rules = rules
        self._under_way = under_way
        self._fixed: dict[PartitionId, MemberId] = {}
        self._settled: dict[PartitionId, MemberId] = {}
        self._homeless: list[PartitionId] = []
        for partition, state in sorted(assessment.partitions.items()):
            if partition in under_way:
                self._fix(partition, under_way[partition])
            else:
                self._sort_in(partition, state)
        self._is_dealt = rules.type.is_dealt
        self._taken_over = self._take_over()
        self._avoided = self._find_avoided()

    def _sort_in(self, partition: PartitionId, state: OwnershipState) -> None:
        member = self._observation.partitions[partition].member
        match state:
            case OwnershipState.SETTLED if member is not None:
                self._settled[partition] = member
            case OwnershipState.UNSEEN | OwnershipState.WAITING:
                self._fix(partition, member)
            case OwnershipState.LEAVING | OwnershipState.OVERDUE:
                self._homeless.append(partition)
            case OwnershipState.VACANT if not self._assessment.join_wait_ms:
                self._homeless.append(partition)

    def _fix(self, partition: PartitionId, member: MemberId | None) -> None:
        # A share of an outgoing member would move partitions of others now, and again when it ends.
        if member is not None and not self._assessment.is_outgoing(member):
            self._fixed[partition] = member

    def plan(self) -> list[Move]:
        if self._rules.type.is_open:
            return []
        if self._rules.is_client_assigned:
            # Nobody else has chosen it: it waits for a member that registers it.
            return [self._move(p, None) for p in self._homeless if self._is_lost(p)]
        may_balance = may_be_balanced(self._observation, self._assessment, self._rules)
        moves = [*self._taken_over, *self._inherit()]
        if not self._homeless and not may_balance:
            return moves
        free = self._working()
        # An avoided member keeps what it has: that is no part of what the others share.
        away = self._avoided - free
        members = (free | set(self._fixed.values())) - away
        kept = {**self._fixed, **self._settled}
        shared = [
            partition
            for partition in self._observation.partitions
            if kept.get(partition) not in away and (self._has_weight(partition) or self._is_on_ring)
        ]
        wanted = self._wanted(shared, members)

        loads = Counter(dict.fromkeys(free | away, 0))
        loads.update(
            member
            for partition, member in self._fixed.items()
            if member in loads and self._has_weight(partition)
        )
        for partition, member in self._settled.items():
            if self._is_undeclared(partition, wanted):
                if may_balance:
                    moves.append(self._move(partition, None))
                continue
            target = wanted.get(partition, member)
            if may_balance and target != member and self._is_free(target, partition):
                moves.append(self._move(partition, target))
                member = target
            loads[member] += self._has_weight(partition)
        unplaced = []
        for partition in self._homeless:
            replacement = wanted.get(self._heir(partition))
            if self._is_undeclared(partition, wanted):
                if self._observation.partitions[partition].member is not None:
                    moves.append(self._move(partition, None))
                continue
            if replacement is not None and self._is_free(replacement, partition):
                moves.append(self._move(partition, replacement))
                loads[replacement] += self._has_weight(partition)
            else:
                unplaced.append(partition)
        moves += self._place(unplaced, loads)
        moves.sort(key=lambda move: move.partition)
        return list(self._evened(moves, free))

    def _is_undeclared(
        self, partition: PartitionId, wanted: Mapping[PartitionId, MemberId]
    ) -> bool:
        """Whether no member wants a part where each says what it wants: then nobody has it."""
        is_sticky = self._rules.hash_range is HashRange.STICKY
        return is_sticky and self._heir(partition) not in wanted

    def _has_weight(self, partition: PartitionId) -> bool:
        """Whether a partition counts: where a strategy deals them out, those that go do not."""
        return not self._is_dealt or self._observation.succession.has_weight(partition)

    @property
    def _is_on_ring(self) -> bool:
        """Whether a part has the member that its slots have, also a part that goes."""
        return self._rules.hash_range in (HashRange.STICKY, HashRange.CONSISTENT_HASH)

    def _heir(self, partition: PartitionId) -> PartitionId:
        """Return whose member is to have a partition: of one that goes, that of its heir."""
        if self._is_on_ring or self._has_weight(partition):
            return partition
        if self._rules.hash_range is HashRange.AUTO_SPLIT:
            return self._staying.holding(partition) or partition
        return self._observation.succession.heirs.get(partition, partition)

    @cached_property
    def _staying(self) -> RingOrder:
        """The parts that stay, in the order of the ring."""
        staying = filter(self._has_weight, self._observation.partitions)
        return RingOrder(staying, self._observation.ring)

    def _preferred(self) -> dict[PartitionId, MemberId]:
        """Return the members of the partitions that new ones begin with."""
        owners = {**self._fixed, **self._settled}
        origins = self._observation.succession.origins
        return {q: owners[p] for q, p in origins.items() if p in owners}

    def _is_lost(self, partition: PartitionId) -> bool:
        """Whether its member will not give it back itself, also if its flow seems bound still."""
        member = self._observation.partitions[partition].member
        if member is None:
            return False
        is_gone = self._observation.facts.get(member) is MemberFact.IS_GONE_FOR_GOOD
        return is_gone or self._assessment.partitions[partition] is OwnershipState.OVERDUE

    def _inherit(self) -> list[Move]:
        """Let replacements take over whole sets: so a partition moves once in a rollout.

        The set of a member that is being replaced waits where it is until a replacement is there.
        """
        if not self._is_free_of_names():
            return []
        found = choose_replacements(
            self._observation, self._assessment, self._homeless, self._idle_replacements()
        )
        moves = [
            replace(self._move(partition, replacement), is_inherited=True)
            for partition, replacement in found.passed_on.items()
        ]
        self._fixed |= {**found.kept, **found.passed_on}
        self._homeless = [each for each in self._homeless if each not in self._fixed]
        return moves

    def _take_over(self) -> list[Move]:
        """Let members that stand by take over from lost ones before the rebalance delay is over.

        Where any member may have any partition, one that holds nothing takes a whole set: nobody
        else's share changes. In Failover and Exclusive groups everybody stands by for everybody.
        """
        if self._rules.standby is not StandbyPolicy.AT_ONCE or self._rules.is_client_assigned:
            return []
        bind_ms = self._rules.membership.bind_ms
        lost = lost_sets(self._observation, self._assessment, self._under_way, bind_ms)
        if not self._is_dealt:
            free = self._free()
            for partition in (each for partitions in lost.values() for each in partitions):
                if any(self._is_free(member, partition) for member in free):
                    del self._fixed[partition]
                    self._homeless.append(partition)
            self._homeless.sort()
            return []
        free_count = sum(s is MemberState.BOUND for s in self._assessment.members.values())
        if not (self._is_free_of_names() or self._is_shared_out(free_count)):
            return []
        holding = {*self._fixed.values(), *self._settled.values()}
        chosen = choose_standbys(self._observation, self._assessment, lost, holding)
        targets = {p: standby for member, standby in chosen.items() for p in lost[member]}
        self._fixed |= targets
        return [
            replace(self._move(partition, standby), is_inherited=True)
            for partition, standby in targets.items()
        ]

    def _idle_replacements(self) -> frozenset[MemberId]:
        holding = {*self._fixed.values(), *self._settled.values()}
        return idle_replacements(self._observation, self._assessment, holding)

    def _is_free_of_names(self) -> bool:
        """Whether any member may have any partition: other strategies go by rank or name."""
        if self._rules.type is GroupType.KEY_SHARED:
            return self._rules.hash_range is HashRange.BALANCED
        return self._is_dealt and self._rules.strategy == "sticky"

    def _find_avoided(self) -> frozenset[MemberId]:
        """Return members that get nothing more while others can. `Exclusive`: all or nothing."""
        is_first = self._rules.type is GroupType.EXCLUSIVE and not (self._settled or self._fixed)
        if not (self._is_free_of_names() or is_first):
            return frozenset()
        facts = self._observation.facts.items()
        return frozenset(m for m, fact in facts if fact is MemberFact.IS_AVOIDED)

    def _working(self) -> set[MemberId]:
        """Return the members that share the partitions: those to be avoided only without others."""
        working = self._free()
        return working.difference(self._avoided) or working

    def _free(self) -> set[MemberId]:
        """Return the bound members that stay, without replacements while others work."""
        free = {m for m, s in self._assessment.members.items() if s is MemberState.BOUND}
        return free.difference(self._idle_replacements()) or free

    def _wanted(
        self, shared: Sequence[PartitionId], members: Collection[MemberId]
    ) -> dict[PartitionId, MemberId]:
        """Return the target assignment: promised moves stay if they are as good as new ones.

        What started of a plan has changed the sizes by which it was made. Planned again, the rest
        might go to others than people were told.
        """
        assign = self._assignor(len(members))
        owned = {**self._fixed, **self._settled}
        if self._rules.hash_range is HashRange.AUTO_SPLIT:
            # A region that is half moved is no region of that size: its rest is taken as moved.
            promised = {p: m for p, m in self._promised.items() if p in self._settled}
            new, ring = self._observation.succession.origins, self._observation.ring
            return assign(shared, members, with_new_parts(owned | promised, new, ring))
        wanted = assign(shared, members, owned)
        settled = {p: self._settled[p] for p in shared if p in self._settled}
        told = {p: self._promised.get(p, member) for p, member in settled.items()}
        if told == settled:
            return wanted
        kept = {**{p: self._fixed[p] for p in shared if p in self._fixed}, **told}
        is_as_good = len(moved(settled, told)) <= len(moved(settled, wanted))
        return kept if is_as_good and assign(shared, members, kept) == kept else wanted

    def _assignor(self, member_count: int) -> Assignor:
        match self._rules.type:
            case GroupType.EXCLUSIVE:
                return partial(exclusive, priorities=self._observation.priorities)
            case GroupType.FAILOVER:
                return partial(failover, priorities=self._observation.priorities)
            case GroupType.KEY_SHARED:
                return self._part_assignor()
        is_shared_out = self._is_shared_out(member_count)
        assign = ASSIGNORS["sticky" if is_shared_out else self._rules.strategy]
        preferred = self._preferred() if assign is sticky else {}
        return partial(sticky, preferred=preferred) if preferred else assign

    def _part_assignor(self) -> Assignor:
        ring, ranges = self._observation.ring, self._observation.ranges
        match self._rules.hash_range:
            case HashRange.AUTO_SPLIT:
                return partial(auto_split, ring=ring)
            case HashRange.CONSISTENT_HASH:
                return partial(consistent_hash, ring=ring)
            case HashRange.STICKY:
                return partial(declared, ring=ring, ranges=ranges)
        return partial(balanced, preferred=self._preferred())

    def _is_shared_out(self, member_count: int) -> bool:
        """Whether there is a member for each partition, so that nobody gains by a new map.

        Then standbys take over one for one, and another standby changes nothing.
        """
        if self._rules.type is GroupType.KEY_SHARED:
            return False
        count = sum(map(self._has_weight, self._observation.partitions))
        is_enough = member_count >= count
        return is_enough and self._rules.strategy != "failover"

    def _place(
        self, partitions: Sequence[PartitionId], loads: Mapping[MemberId, int]
    ) -> Iterator[Move]:
        """Move what nobody was chosen for; what nobody can take becomes vacant, or stays so."""
        place = (
            give_to_most_loaded if self._rules.type is GroupType.EXCLUSIVE else give_to_least_loaded
        )
        priorities = NO_PRIORITIES if self._is_dealt else self._observation.priorities
        places = place(
            [self._observation.partitions[partition] for partition in partitions],
            loads,
            {member: (member in self._avoided, priorities.get(member, 0)) for member in loads},
            self._assessment.is_free,
        )
        for partition, target in places:
            if target is not None or self._observation.partitions[partition].member is not None:
                yield self._move(partition, target)

    def _evened(self, moves: Sequence[Move], working: Collection[MemberId]) -> Iterator[Move]:
        """Redirect balance moves away from members that take partitions others could not reach.

        It goes to the reachable member with the fewest, or stays: it would move once more.
        """
        owners = {**self._fixed, **self._settled}
        owners |= {m.partition: m.target for m in moves if m.target is not None}
        loads = Counter(owner for p, owner in owners.items() if self._has_weight(p))
        for move in moves:
            source, target = move.ownership.member, move.target
            if not move.may_wait or source is None or target is None:
                yield move
                continue
            if loads[target] <= loads[source] or not self._is_free_of_names():
                yield move
                continue
            loads[target] -= 1
            reachable = [m for m in working if self._is_free(m, move.partition)]
            other = min(reachable, key=lambda m: (loads[m], m), default=source)
            if loads[other] < loads[source]:  # which does not count this one
                loads[other] += 1
                yield replace(move, target=other)
            else:
                loads[source] += 1

    def _is_free(self, member: MemberId, partition: PartitionId) -> bool:
        return self._assessment.is_free(member, self._observation.partitions[partition].broker)

    def _move(self, partition: PartitionId, target: MemberId | None) -> Move:
        ownership = self._observation.partitions[partition]
        state = self._assessment.partitions[partition]
        member = ownership.member
        if member is None:
            return Move(ownership, target, Trigger.MEMBER_JOINED, Forced.UNASSIGNED)
        if state is OwnershipState.SETTLED:
            return Move(ownership, target, self._balance_trigger, None, may_wait=True)
        if state is OwnershipState.LEAVING:
            return Move(ownership, target, Trigger.MEMBER_LEFT, None)
        has_left = (
            member in self._assessment.departed
            or self._assessment.members[member] is MemberState.LEAVING
        )
        return Move(
            ownership,
            target,
            Trigger.MEMBER_LEFT if has_left else Trigger.MEMBER_LOST,
            Forced.SOURCE_UNBOUND if member in self._assessment.bound_at else Forced.SOURCE_LOST,
        )

    @cached_property  # of all partitions, so that a plan of many moves asks once
    def _balance_trigger(self) -> Trigger:
        """Name what put a settled map out of balance: a join, or what moves beside it."""
        states = set(self._assessment.partitions.values())
        is_after_loss = (
            self._rules.type is GroupType.FAILOVER
            and MemberState.GONE in self._assessment.members.values()
        )
        if self._assessment.newcomers or not (
            is_after_loss or states & {OwnershipState.LEAVING, OwnershipState.OVERDUE}
        ):
            return Trigger.MEMBER_JOINED
        return Trigger.MEMBER_LEFT if OwnershipState.LEAVING in states else Trigger.MEMBER_LOST
