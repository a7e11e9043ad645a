"""The members and partitions of a group, judged: bound, leaving, waited for, gone."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from partq.core.group.observation import (
    LEAVING_FACTS,
    FlowSeen,
    GroupObservation,
    LossSeen,
    MemberFact,
    PartitionOwnership,
)
from partq.core.group.rebalance_delay import MembershipRules, RebalanceDelay, join_wait_ms
from partq.core.model import BrokerId, MemberId, PartitionId

UNLIST_MS: Final = 10_000
"""How long, at least, a member without a flow stays listed: it may be about to bind."""


class MemberState(Enum):
    """What a member is to its group."""

    BOUND = auto()
    """Has a flow at a living broker, and stays."""
    LEAVING = auto()
    """Has a flow, and hands its partitions over."""
    WAITING = auto()
    """Has no flow; what it holds waits for it until the rebalance delay is over."""
    GONE = auto()
    """Has no flow, and will not come back or is late."""


class OwnershipState(Enum):
    """What a partition needs of the planner."""

    VACANT = auto()
    SETTLED = auto()
    LEAVING = auto()
    """Its member is bound and must hand it over."""
    WAITING = auto()
    """Its member is not bound; the rebalance delay runs."""
    OVERDUE = auto()
    """Its member is not bound, and nobody waits for it any more."""
    UNSEEN = auto()
    """Its broker did not answer: nothing is known, so nothing is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssessment:
    """The judgement: what each member and each partition is, and what to write down."""

    members: Mapping[MemberId, MemberState]
    partitions: Mapping[PartitionId, OwnershipState]
    bound_at: Mapping[MemberId, frozenset[BrokerId]]
    """The brokers where a member has a flow."""
    departed: frozenset[MemberId]
    """Gone members that are known not to return, as opposed to late ones."""
    join_wait_ms: int
    """How long joins wait for others to join; 0: no join is waiting."""
    newcomers: frozenset[MemberId]
    """Bound members that hold nothing."""
    to_mark: frozenset[MemberId]
    """Members to write down as lost, so that a restart does not start their delay again."""
    to_clear: frozenset[MemberId]
    """Members that were lost and are back."""
    to_unlist: frozenset[MemberId]
    """Members that are gone, late and hold nothing."""
    next_ms: int | None
    """When time alone changes something; None: it does not."""

    @property
    def is_quiet(self) -> bool:
        """Whether no partition has to move, and nobody is waited for."""
        return {OwnershipState.SETTLED, OwnershipState.VACANT}.issuperset(self.partitions.values())

    def is_outgoing(self, member: MemberId) -> bool:
        """Whether the member keeps none of its partitions: it is leaving, or has departed."""
        return member in self.departed or self.members.get(member) is MemberState.LEAVING

    def is_free(self, member: MemberId, broker: BrokerId | None) -> bool:
        """Whether the member can take over a partition of this broker now.

        A member that has lost its flow at a broker is avoided there until it binds again.
        """
        return self.members.get(member) is MemberState.BOUND and broker in self.bound_at[member]


def assess(observation: GroupObservation, rules: MembershipRules) -> GroupAssessment:
    """Judge every member and partition of a group."""
    return _Assessor(observation, rules).assess()


class _Assessor:
    """One judgement; indexes the observation once."""

    def __init__(self, observation: GroupObservation, rules: MembershipRules) -> None:
        self._observation = observation
        self._rules = rules
        self._flows = _by_member(observation.flows)
        self._last_loss = _last_losses(observation.losses)
        self._delay = RebalanceDelay(observation, rules)
        self._bound_at = {
            member: frozenset(flow.broker for flow in flows)
            for member, flows in self._flows.items()
        }
        self._held: dict[MemberId, list[PartitionOwnership]] = defaultdict(list)
        for ownership in observation.partitions.values():
            if ownership.member is not None:
                self._held[ownership.member].append(ownership)

    def assess(self) -> GroupAssessment:
        observation, rules = self._observation, self._rules
        everyone = {*self._flows, *self._held, *observation.lost_ms}
        departed = frozenset(member for member in everyone if self._has_departed(member))
        members = {member: self._member_state(member, departed) for member in sorted(everyone)}
        partitions = {
            partition: self._ownership_state(ownership, members, departed)
            for partition, ownership in observation.partitions.items()
        }
        newcomers = frozenset(
            member
            for member, state in members.items()
            if state is MemberState.BOUND and not self._held.get(member)
        )
        # A replacement may stand by for long: it neither begins nor ends what others wait for.
        joining = newcomers.difference(
            m for m, fact in observation.facts.items() if fact is MemberFact.IS_REPLACEMENT
        )
        ages_ms = [self._age_ms(member) for member in joining or newcomers]
        wait_ms = join_wait_ms(ages_ms, rules)
        waits = [
            self._delay.remaining_ms(observation.partitions[partition])
            for partition, state in partitions.items()
            if state is OwnershipState.WAITING
        ]
        if wait_ms:
            waits.append(wait_ms)
        waits += (
            rules.delay_ms - observation.lost_ms.get(member, 0)
            for member, state in members.items()
            if state is MemberState.WAITING and not self._held.get(member)
        )
        return GroupAssessment(
            members=members,
            partitions=partitions,
            bound_at=self._bound_at,
            departed=departed,
            join_wait_ms=wait_ms,
            newcomers=newcomers,
            to_mark=frozenset(self._to_mark()),
            to_clear=frozenset(self._to_clear()),
            to_unlist=frozenset(self._to_unlist()),
            next_ms=min(waits, default=None),
        )

    def _has_departed(self, member: MemberId) -> bool:
        """Whether a member without a flow is known not to return, or not within the delay."""
        if member in self._flows:
            return False
        fact = self._observation.facts.get(member)
        if fact in LEAVING_FACTS or fact is MemberFact.IS_HELD_BACK:
            return True
        last_loss = self._last_loss.get(member)
        if last_loss is None or not last_loss.is_leaving:
            return False
        # A member that has registered a partition since is back, and about to bind.
        return not any(
            each.registered_ms is not None and each.registered_ms < last_loss.age_ms
            for each in self._held.get(member, ())
        )

    def _member_state(self, member: MemberId, departed: Collection[MemberId]) -> MemberState:
        if flows := self._flows.get(member):
            fact = self._observation.facts.get(member)
            if fact in LEAVING_FACTS:
                return MemberState.LEAVING
            # A life that leaves says so at one broker after the other; a new life is no leaver.
            leaving = {flow.incarnation for flow in flows if flow.is_leaving}
            is_leaving = all(flow.incarnation in leaving for flow in flows)
            return MemberState.LEAVING if is_leaving else MemberState.BOUND
        if member in departed:
            return MemberState.GONE
        partitions = self._held.get(member, ())
        if any(
            ownership.broker is None or not self._delay.is_over(ownership)
            for ownership in partitions
        ):
            return MemberState.WAITING
        is_late = self._observation.lost_ms.get(member, 0) >= self._rules.delay_ms
        return MemberState.GONE if partitions or is_late else MemberState.WAITING

    def _ownership_state(
        self,
        ownership: PartitionOwnership,
        members: Mapping[MemberId, MemberState],
        departed: Collection[MemberId],
    ) -> OwnershipState:
        if ownership.broker is None:
            return OwnershipState.UNSEEN
        if ownership.member is None:
            return OwnershipState.VACANT
        is_leaving = members[ownership.member] is MemberState.LEAVING
        if ownership.is_bound:
            return OwnershipState.LEAVING if is_leaving else OwnershipState.SETTLED
        if ownership.member in departed or is_leaving or self._delay.is_over(ownership):
            return OwnershipState.OVERDUE
        return OwnershipState.WAITING

    def _to_mark(self) -> Iterator[MemberId]:
        for member in {*self._held, *self._observation.listed} - self._observation.lost_ms.keys():
            is_nowhere = self._observation.is_complete and member not in self._flows
            partitions = self._held.get(member, ())
            if any(self._delay.is_absent(ownership) for ownership in partitions) or (
                is_nowhere and not partitions
            ):
                yield member

    def _to_clear(self) -> Iterator[MemberId]:
        if not self._observation.is_complete:
            return
        for member in self._observation.lost_ms:
            partitions = self._held.get(member, ())
            if member in self._flows and all(
                ownership.broker is not None and not self._delay.is_absent(ownership)
                for ownership in partitions
            ):
                yield member

    def _to_unlist(self) -> Iterator[MemberId]:
        if not self._observation.is_complete:
            return
        # A member may hold something and never have been listed, or its listing was lost.
        for member in {*self._observation.listed, *self._observation.lost_ms}:
            lost_ms = self._observation.lost_ms.get(member, 0)
            if (
                member not in self._flows
                and not self._held.get(member)
                and lost_ms >= max(UNLIST_MS, self._rules.delay_ms)
            ):
                yield member

    def _age_ms(self, member: MemberId) -> int:
        return max(flow.age_ms for flow in self._flows[member])


def _by_member(flows: Iterable[FlowSeen]) -> dict[MemberId, list[FlowSeen]]:
    members: dict[MemberId, list[FlowSeen]] = defaultdict(list)
    for flow in flows:
        members[flow.member].append(flow)
    return dict(members)


def _last_losses(losses: Iterable[LossSeen]) -> dict[MemberId, LossSeen]:
    last: dict[MemberId, LossSeen] = {}
    for loss in losses:
        known = last.setdefault(loss.member, loss)
        if loss.age_ms < known.age_ms:
            last[loss.member] = loss
    return last
