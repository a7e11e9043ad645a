"""Who is in a group: members, flows, losses, and how long a lost member's partitions wait.

Everything is derived from what the brokers, the store and the runtime say now; ages are lengths in
milliseconds, measured by whoever saw the event. So a coordinator that has just started judges like
the one before it, and no clock is compared with another.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, TypeVar

from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId

Key = TypeVar("Key", bound=Hashable)

NO_EPOCH: Final = Epoch(0)
NO_BROKER_EPOCH: Final = BrokerEpoch(0)
UNLIST_MS: Final = 10_000
"""How long, at least, a member without a flow stays listed: it may be about to bind."""


class MemberFact(Enum):
    """What the runtime (Kubernetes, or whoever starts the consumers) knows of a member."""

    UNKNOWN = auto()
    EXISTS = auto()
    IS_TERMINATING = auto()
    """It is shutting down and will not come back under this id."""
    IS_GONE_FOR_GOOD = auto()
    IS_REPLACEMENT = auto()
    """It is there to take over from one that will leave; until then it stands by."""
    IS_BEING_REPLACED = auto()
    """It is shutting down, can go on for a while, and another comes to take over from it."""
    IS_AVOIDED = auto()
    """It works, and gets nothing more while others can: it is about to go, or not well."""
    IS_HELD_BACK = auto()
    """Its process ends again and again, and the next one is not started within the delay."""


LEAVING_FACTS: Final = frozenset(
    {MemberFact.IS_TERMINATING, MemberFact.IS_GONE_FOR_GOOD, MemberFact.IS_BEING_REPLACED}
)
"""What is known of those that will not come back under their id."""


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
class MembershipRules:
    """How patient a group is; all in milliseconds."""

    delay_ms: int = 5_000
    """The rebalance delay: how long a lost member's partitions wait for it."""
    bind_ms: int = 2_000
    """How long members may take to bind at a broker that has just claimed a partition."""
    join_quiet_ms: int = 500
    """A join is planned when nobody else has joined for so long, ..."""
    join_limit_ms: int = 2_000
    """... and at the latest so long after the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSeen:
    """A member's flow at one broker."""

    member: MemberId
    broker: BrokerId
    incarnation: str
    age_ms: int
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSeen:
    """A flow that a broker has lost while it owned the partitions."""

    member: MemberId
    broker: BrokerId
    age_ms: int
    is_leaving: bool = False
    """The member had said that it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOwnership:
    """One partition of the group, as the broker that owns it reports it."""

    partition: PartitionId
    broker: BrokerId | None = None
    """None: no living broker has reported it; `member` is then the last one known."""
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    held_ms: int = 0
    """How long the broker has owned the partition."""
    member: MemberId | None = None
    epoch: Epoch = NO_EPOCH
    is_bound: bool = False
    closed_attempt: int = 0
    """Attempts up to this one are over."""
    pause_attempt: int | None = None
    """The attempt whose pause is in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupObservation:
    """All that is known of one group at one time."""

    seats: Mapping[PartitionId, PartitionOwnership]
    flows: Collection[FlowSeen] = ()
    losses: Collection[LossSeen] = ()
    listed: Collection[MemberId] = ()
    """Who may bind."""
    lost_ms: Mapping[MemberId, int] = field(default_factory=dict)
    """How long ago the store was told that a member is lost."""
    facts: Mapping[MemberId, MemberFact] = field(default_factory=dict)
    heirs: Mapping[MemberId, MemberId] = field(default_factory=dict)
    """Who takes over the whole set of a member that goes, as it was written down."""
    is_complete: bool = True
    """Every living broker has answered: who is not here is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAssessment:
    """The judgement: what each member and each partition is, and what to write down."""

    standings: Mapping[MemberId, MemberState]
    seats: Mapping[PartitionId, OwnershipState]
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

    def is_free(self, member: MemberId, broker: BrokerId | None) -> bool:
        """Whether the member can take over a partition of this broker now.

        A member that has lost its flow at a broker is avoided there until it binds again.
        """
        return self.standings.get(member) is MemberState.BOUND and broker in self.bound_at[member]


def assess(observation: GroupObservation, rules: MembershipRules) -> GroupAssessment:
    """Judge every member and partition of a group."""
    return _Assessor(observation, rules).table()


class _Assessor:
    """One judgement; indexes the observation once."""

    def __init__(self, observation: GroupObservation, rules: MembershipRules) -> None:
        self._observation = observation
        self._rules = rules
        self._flows = _by_member(observation.flows)
        self._losses = _youngest(observation.losses, lambda loss: (loss.member, loss.broker))
        self._last_loss = _youngest(observation.losses, lambda loss: loss.member)
        self._bound_at = {
            member: frozenset(flow.broker for flow in flows)
            for member, flows in self._flows.items()
        }
        self._held: dict[MemberId, list[PartitionOwnership]] = defaultdict(list)
        for seat in observation.seats.values():
            if seat.member is not None:
                self._held[seat.member].append(seat)

    def table(self) -> GroupAssessment:
        observation, rules = self._observation, self._rules
        members = {*self._flows, *self._held, *observation.lost_ms}
        departed = frozenset(member for member in members if self._has_departed(member))
        standings = {member: self._standing(member, departed) for member in sorted(members)}
        seats = {
            partition: self._seat_state(seat, standings, departed)
            for partition, seat in observation.seats.items()
        }
        newcomers = frozenset(
            member
            for member, standing in standings.items()
            if standing is MemberState.BOUND and not self._held.get(member)
        )
        # A replacement stands by, maybe for long: what others wait for, it neither begins nor ends.
        joining = newcomers.difference(
            m for m, fact in observation.facts.items() if fact is MemberFact.IS_REPLACEMENT
        )
        ages_ms = [self._age_ms(member) for member in joining or newcomers]
        join_wait_ms = _join_wait_ms(ages_ms, rules)
        waits = [
            self._remaining_ms(observation.seats[partition])
            for partition, state in seats.items()
            if state is OwnershipState.WAITING
        ]
        if join_wait_ms:
            waits.append(join_wait_ms)
        return GroupAssessment(
            standings=standings,
            seats=seats,
            bound_at=self._bound_at,
            departed=departed,
            join_wait_ms=join_wait_ms,
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
        return last_loss is not None and last_loss.is_leaving

    def _standing(self, member: MemberId, departed: Collection[MemberId]) -> MemberState:
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
        seats = self._held.get(member, ())
        if any(seat.broker is None or not self._is_overdue(seat) for seat in seats):
            return MemberState.WAITING
        is_late = self._observation.lost_ms.get(member, 0) >= self._rules.delay_ms
        return MemberState.GONE if seats or is_late else MemberState.WAITING

    def _seat_state(
        self,
        seat: PartitionOwnership,
        standings: Mapping[MemberId, MemberState],
        departed: Collection[MemberId],
    ) -> OwnershipState:
        if seat.broker is None:
            return OwnershipState.UNSEEN
        if seat.member is None:
            return OwnershipState.VACANT
        is_leaving = standings[seat.member] is MemberState.LEAVING
        if seat.is_bound:
            return OwnershipState.LEAVING if is_leaving else OwnershipState.SETTLED
        if seat.member in departed or is_leaving or self._is_overdue(seat):
            return OwnershipState.OVERDUE
        return OwnershipState.WAITING

    def _is_overdue(self, seat: PartitionOwnership) -> bool:
        return self._remaining_ms(seat) <= 0

    def _remaining_ms(self, seat: PartitionOwnership) -> int:
        """Return how long the seat of an unbound member still waits; at most bind time + delay.

        The delay starts when the broker that owns the partition *now* has held it for the bind
        time; a flow that was lost together with its broker is no loss. A broker that lost the flow
        itself knows best when that was; otherwise the store remembers it.
        """
        if binding_ms := self._binding_ms(seat):
            return binding_ms + self._rules.delay_ms
        # Binding is over, so the seat's member was lost at the earliest when it began.
        lost_ms = min(seat.held_ms - self._rules.bind_ms, self._lost_for_ms(seat))
        return self._rules.delay_ms - max(0, lost_ms)

    def _binding_ms(self, seat: PartitionOwnership) -> int:
        """Return for how long the member may still be busy binding at the seat's broker."""
        ages = [flow.age_ms for flow in self._flows_at(seat)]
        return max(0, self._rules.bind_ms - min([seat.held_ms, *ages]))

    def _flows_at(self, seat: PartitionOwnership) -> list[FlowSeen]:
        flows = self._flows.get(seat.member, ()) if seat.member is not None else ()
        return [flow for flow in flows if flow.broker == seat.broker]

    def _lost_for_ms(self, seat: PartitionOwnership) -> int:
        if seat.member is None or seat.broker is None:
            return 0
        loss = self._losses.get((seat.member, seat.broker))
        if loss is not None and not self._flows_at(seat):
            return loss.age_ms
        return self._observation.lost_ms.get(seat.member, 0)

    def _is_absent(self, seat: PartitionOwnership) -> bool:
        """Whether the seat's member should have bound at the seat's broker and has not."""
        if seat.broker is None or seat.is_bound:
            return False
        was_lost = (seat.member, seat.broker) in self._losses
        return was_lost or not self._binding_ms(seat)

    def _to_mark(self) -> Iterator[MemberId]:
        for member in {*self._held, *self._observation.listed} - self._observation.lost_ms.keys():
            is_nowhere = self._observation.is_complete and member not in self._flows
            seats = self._held.get(member, ())
            if any(self._is_absent(seat) for seat in seats) or (is_nowhere and not seats):
                yield member

    def _to_clear(self) -> Iterator[MemberId]:
        if not self._observation.is_complete:
            return
        for member in self._observation.lost_ms:
            seats = self._held.get(member, ())
            if member in self._flows and all(
                seat.broker is not None and not self._is_absent(seat) for seat in seats
            ):
                yield member

    def _to_unlist(self) -> Iterator[MemberId]:
        if not self._observation.is_complete:
            return
        for member in self._observation.listed:
            lost_ms = self._observation.lost_ms.get(member, 0)
            if (
                member not in self._flows
                and not self._held.get(member)
                and lost_ms >= max(UNLIST_MS, self._rules.delay_ms)
            ):
                yield member

    def _age_ms(self, member: MemberId) -> int:
        return max(flow.age_ms for flow in self._flows[member])


def _join_wait_ms(ages_ms: Collection[int], rules: MembershipRules) -> int:
    """Return how long the joins of members of these ages wait for more: burst in, one plan out."""
    if not ages_ms:
        return 0
    until_quiet = rules.join_quiet_ms - min(ages_ms)
    until_limit = rules.join_limit_ms - max(ages_ms)
    return max(0, min(until_quiet, until_limit))


def _by_member(flows: Iterable[FlowSeen]) -> dict[MemberId, list[FlowSeen]]:
    members: dict[MemberId, list[FlowSeen]] = defaultdict(list)
    for flow in flows:
        members[flow.member].append(flow)
    return dict(members)


def _youngest(losses: Iterable[LossSeen], key: Callable[[LossSeen], Key]) -> dict[Key, LossSeen]:
    youngest: dict[Key, LossSeen] = {}
    for loss in losses:
        known = youngest.setdefault(key(loss), loss)
        if loss.age_ms < known.age_ms:
            youngest[key(loss)] = loss
    return youngest
