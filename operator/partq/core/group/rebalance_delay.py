"""The rebalance delay: how long partitions wait for a lost member, and joins for others."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from partq.core.group.observation import GroupObservation, PartitionOwnership
from partq.core.model import BrokerId, MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipRules:
    """How patient a group is; all in milliseconds."""

    delay_ms: int = 5_000
    """The rebalance delay: how long a lost member's partitions wait for it."""
    bind_ms: int = 2_000
    """How long members may take to bind at a broker that has just claimed a partition, or at the
    broker of a partition that they have just registered."""
    join_quiet_ms: int = 500
    """A join is planned when nobody else has joined for this long, ..."""
    join_limit_ms: int = 2_000
    """... and at the latest so long after the first."""


class RebalanceDelay:
    """Says how long partitions still wait for their members; indexes the observation once."""

    def __init__(self, observation: GroupObservation, rules: MembershipRules) -> None:
        self._rules = rules
        self._marked_ms = observation.lost_ms
        self._flow_ages: dict[tuple[MemberId, BrokerId], list[int]] = defaultdict(list)
        for flow in observation.flows:
            self._flow_ages[flow.member, flow.broker].append(flow.age_ms)
        self._loss_ages: dict[tuple[MemberId, BrokerId], int] = {}
        for loss in observation.losses:
            key = loss.member, loss.broker
            self._loss_ages[key] = min(loss.age_ms, self._loss_ages.get(key, loss.age_ms))

    def is_over(self, ownership: PartitionOwnership) -> bool:
        """Whether the partition waits for its unbound member no more."""
        return self.remaining_ms(ownership) <= 0

    def remaining_ms(self, ownership: PartitionOwnership) -> int:
        """Return how long a partition waits for its unbound member; at most bind time + delay.

        The delay starts when the broker that owns the partition *now* has held it for the bind
        time; a flow that was lost together with its broker is no loss. A broker that lost the flow
        itself knows best when that was; otherwise the store remembers it. What was lost before the
        member registered the partition does not count; and as it may register before it is bound
        at that broker, the partition waits for the bind time at least.
        """
        if binding_ms := self._binding_ms(ownership):
            return binding_ms + self._rules.delay_ms
        # Binding is over, so the partition's member was lost at the earliest when it began.
        lost_ms = min(ownership.held_ms - self._rules.bind_ms, self._lost_for_ms(ownership))
        if (registered_ms := ownership.registered_ms) is None:
            return self._rules.delay_ms - max(0, lost_ms)
        delay_ms = self._rules.delay_ms - max(0, min(lost_ms, registered_ms))
        return max(delay_ms, self._rules.bind_ms - registered_ms)

    def is_absent(self, ownership: PartitionOwnership) -> bool:
        """Whether the partition's member should have bound at its broker and has not."""
        if ownership.broker is None or ownership.is_bound:
            return False
        was_lost = (ownership.member, ownership.broker) in self._loss_ages
        return was_lost or not self._binding_ms(ownership)

    def _binding_ms(self, ownership: PartitionOwnership) -> int:
        """Return for how long the member may still be busy binding at the partition's broker."""
        ages = self._flow_ages_at(ownership)
        return max(0, self._rules.bind_ms - min([ownership.held_ms, *ages]))

    def _flow_ages_at(self, ownership: PartitionOwnership) -> Collection[int]:
        if ownership.member is None or ownership.broker is None:
            return ()
        return self._flow_ages.get((ownership.member, ownership.broker), ())

    def _lost_for_ms(self, ownership: PartitionOwnership) -> int:
        if ownership.member is None or ownership.broker is None:
            return 0
        age_ms = self._loss_ages.get((ownership.member, ownership.broker))
        if age_ms is not None and not self._flow_ages_at(ownership):
            return age_ms
        return self._marked_ms.get(ownership.member, 0)


def join_wait_ms(ages_ms: Collection[int], rules: MembershipRules) -> int:
    """Return how long the joins of members of these ages wait for more: burst in, one plan out."""
    if not ages_ms:
        return 0
    until_quiet = rules.join_quiet_ms - min(ages_ms)
    until_limit = rules.join_limit_ms - max(ages_ms)
    return max(0, min(until_quiet, until_limit))
