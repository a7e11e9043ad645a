"""A run while it continues: what the journals say so far, in counts and in owners."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from partq.core.model import SLOT_COUNT
from partq.lab.verdict.journal_rows import (
    ASSIGNED,
    JOINED,
    LANES,
    DeliveredRow,
    HeldRow,
    LockRow,
    PublishedRow,
    Row,
    StateRow,
)


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a partition, as far as the consumers know."""

    member: str
    is_ready: bool
    """Whether the member has it now; else it has lost it, and nobody else has it yet."""


class RunProgress:
    """Everything that the journals of one run have said so far.

    Rows come in pieces, each journal's in its order; pieces of different journals may overlap in
    time.
    """

    def __init__(self) -> None:
        self.published: list[PublishedRow] = []
        self.deliveries: list[DeliveredRow] = []
        self.held: list[HeldRow] = []
        self.of_sessions: list[LockRow | StateRow] = []
        self.owners: dict[str, Owner] = {}
        """By partition, in the order in which they were first assigned."""
        self.processed_by_partition: Counter[str] = Counter()
        self.stored_by_partition: Counter[str] = Counter()
        self._holders: dict[str, dict[str, int]] = {}
        """By partition: the members that were assigned it and have not lost it, and since when."""
        self._slots: dict[tuple[str, str], int] = {}
        """Of a group of type KeyShared: how many slots of a partition a member has."""
        self._joined: set[str] = set()
        """Members of a group of type Session."""
        self.handoff_count = 0
        """Assignments to another member than before."""
        self._stored: set[tuple[str, int]] = set()
        self._processed: set[tuple[str, int]] = set()
        self._waiting: set[tuple[str, int]] = set()

    def add(self, rows: Iterable[Row]) -> None:
        """Take up more rows."""
        for row in rows:
            match row:
                case PublishedRow():
                    self._add_published(row)
                case DeliveredRow():
                    self._add_delivery(row)
                case HeldRow():
                    self._add_held(row)
                case LockRow() | StateRow():
                    self.of_sessions.append(row)

    @property
    def members(self) -> set[str]:
        """The members that have a partition or ask for sessions, as far as they know."""
        return {member for holders in self._holders.values() for member in holders} | self._joined

    @property
    def published_count(self) -> int:
        """Different messages known to be stored."""
        return len(self._stored)

    @property
    def processed_count(self) -> int:
        """Different messages that a consumer has processed."""
        return len(self._processed)

    @property
    def has_all(self) -> bool:
        """Whether every published message was processed by somebody."""
        return not self._waiting

    def forget(self, prefix: str) -> list[DeliveredRow]:
        """Drop the rows of messages whose keys begin with `prefix`; return their deliveries.

        The counts of messages go down by them; those by partition, and the owners, stay.
        """
        dropped = [row for row in self.deliveries if row.key.startswith(prefix)]
        self.deliveries = [row for row in self.deliveries if not row.key.startswith(prefix)]
        self.published = [row for row in self.published if not row.key.startswith(prefix)]
        self.of_sessions = [row for row in self.of_sessions if not row.session.startswith(prefix)]
        for messages in (self._stored, self._processed, self._waiting):
            messages -= {message for message in messages if message[0].startswith(prefix)}
        return dropped

    def lag(self) -> dict[str, int]:
        """Return for each partition how many messages are published, not processed; at least 0."""
        return {
            partition: max(0, count - self.processed_by_partition[partition])
            for partition, count in self.stored_by_partition.items()
        }

    def drop_member(self, member: str) -> None:
        """Note that a member's process died without a word: it cannot write it down itself."""
        self._joined.discard(member)
        for place in [each for each in self._slots if each[1] == member]:
            del self._slots[place]
        for partition, holders in self._holders.items():
            if holders.pop(member, None) is not None:
                self._name_owner(partition)

    def is_balanced(
        self,
        members: Collection[str],
        partition_count: int,
        partitions: Collection[str] | None = None,
    ) -> bool:
        """Say whether every partition is at one of `members`, evenly (sizes differ by 1).

        `partitions`: those that take messages; None: all that were ever assigned.
        """
        owners = [
            owner
            for partition, owner in self.owners.items()
            if partitions is None or partition in partitions
        ]
        if len(owners) < partition_count:
            return False
        if not all(owner.is_ready for owner in owners):
            return False
        sizes = dict.fromkeys(members, 0)
        for owner in owners:
            if owner.member not in sizes:
                return False
            sizes[owner.member] += 1
        return max(sizes.values()) - min(sizes.values()) <= 1

    def is_shared_out(self, members: Collection[str], part_slots: int) -> bool:
        """Say whether all slots are at `members`, evenly (sizes differ by about a part).

        `part_slots`: how many slots a part has.
        """
        sizes = dict.fromkeys(members, 0)
        for (_, member), slots in self._slots.items():
            if member not in sizes:
                return False
            sizes[member] += slots
        odd = max(sizes.values()) - min(sizes.values())
        return sum(sizes.values()) == SLOT_COUNT and odd <= 2 * part_slots

    def imbalance(self, members: Collection[str]) -> str:
        """Return what `is_balanced` or `is_shared_out` misses, in words."""
        if self._slots:
            return ", ".join(
                f"{member} has {slots} slots of {partition}"
                for (partition, member), slots in sorted(self._slots.items())
            )
        missing = [
            f"{partition} {'is at' if owner.is_ready else 'was at'} {owner.member}"
            for partition, owner in self.owners.items()
            if not owner.is_ready or owner.member not in members
        ]
        sizes = counts_by_member(self.owners)
        shares = ", ".join(f"{member} has {sizes[member]}" for member in members)
        return "; ".join([*missing, shares])

    def _add_published(self, row: PublishedRow) -> None:
        self.published.append(row)
        message = (row.key, row.number)
        if message not in self._stored:
            self._stored.add(message)
            if message not in self._processed:
                self._waiting.add(message)
            self.stored_by_partition[row.partition] += 1

    def _add_delivery(self, row: DeliveredRow) -> None:
        self.deliveries.append(row)
        message = (row.key, row.number)
        if message not in self._processed:
            self._processed.add(message)
            self._waiting.discard(message)
            self.processed_by_partition[row.partition] += 1

    def _add_held(self, row: HeldRow) -> None:
        if row.change == LANES:
            self._slots[row.partition, row.member] = row.slots
            return
        if row.change == JOINED:
            self._joined.add(row.member)
            return
        self.held.append(row)
        self._slots.pop((row.partition, row.member), None)
        before = self.owners.get(row.partition)
        holders = self._holders.setdefault(row.partition, {})
        if row.change == ASSIGNED:
            holders[row.member] = row.at_ns
        else:
            holders.pop(row.member, None)
        self._name_owner(row.partition)
        owner = self.owners.get(row.partition)
        self.handoff_count += (
            before is not None
            and owner is not None
            and row.change == ASSIGNED
            and owner.member != before.member
        )

    def _name_owner(self, partition: str) -> None:
        """Take the holder that was assigned last, by the instants and not by the order of reading.

        A member that was frozen and wakes up may be assigned for a moment what it has lost
        meanwhile. When it finds out, the member before it that has lost nothing is owner.
        """
        holders = self._holders[partition]
        if holders:
            member = max(holders, key=holders.__getitem__)
            self.owners[partition] = Owner(member, is_ready=True)
        elif (owner := self.owners.get(partition)) is not None:
            self.owners[partition] = replace(owner, is_ready=False)


def counts_by_member(owners: Mapping[str, Owner]) -> Counter[str]:
    """Return how many partitions each member has."""
    return Counter(owner.member for owner in owners.values() if owner.is_ready)
