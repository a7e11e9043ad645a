"""The shares of a partition that several members of a KeyShared group have, each some lanes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.parts.bound_shares import BoundShare, BoundShares
from partq.core.lanes.shared_book import AskedLanes
from partq.core.lanes.span import MAX_SHARE
from partq.core.model import Cause, Epoch, MemberId
from partq.core.parts.part_id import slots_of
from partq.core.parts.part_owners import PartMove, PartOwners
from partq.core.parts.part_slots import part_table
from partq.core.ranges import Ranges
from partq.core.slot_table import SlotRanges


@dataclass(eq=False, slots=True)
class PartitionShare(BoundShare):
    """What one flow has of a partition: the lanes of its member's parts."""

    @property
    def lane_ranges(self) -> list[tuple[int, int]]:
        """The slots that its member has, as ranges."""
        shares = cast(PartitionShares, self.shares_of)
        return shares.slots_of_member(self.flow.member) if self.flow is not None else []

    def has_changed(self) -> None:
        """Have those look again that may send something after what its flow has said."""
        if self.flow is not None:
            self.flow.notice(self)
        cast(PartitionShares, self.shares_of).has_changed(self)


class PartitionShares(BoundShares[PartitionShare]):
    """The shares of one partition that are bound, and which member has which parts."""

    def __init__(self, whole: ConsumedPartition, slots: SlotRanges, parts: int) -> None:
        """Start without shares.

        Args:
            whole: the partition; its book is a `SharedBook`.
            slots: those that the partition was made with, which its parts cut.
            parts: how many parts it has, if none was ever moved.
        """
        super().__init__(whole)
        owners = whole.parts or PartOwners.none(parts)
        whole.parts = owners
        self._part_of = part_table(slots, owners.count)
        self._slots = slots
        self._drain_until: dict[tuple[int, MemberId | None], float] = {}
        """Part that has moved, and a former member → when what that still has of it is taken by
        force. Further moves of the part do not put it off."""
        self._has_ended_one = False
        """A share was ended for want of numbers: counts have changed since `force_due`."""

    # ---- looking --------------------------------------------------------------------------------

    @property
    def owners(self) -> PartOwners:
        """Which member has which part, as it is recorded."""
        assert self._whole.parts is not None  # noqa: S101 - from the constructor on
        return self._whole.parts

    def wants(self, flow: FlowPort) -> bool:
        """Whether a flow is to get a share: its member has a part, and the flow has none yet."""
        return flow.member in self.owners.members and flow not in self._shares

    def slots_of_member(self, member: MemberId) -> list[tuple[int, int]]:
        """Return the slots of a member's parts, as ranges."""
        count = self.owners.count
        ranges = [
            (each.start, each.stop)
            for part in self.owners.of_member(member)
            for each in slots_of(self._slots, part, count)
        ]
        return Ranges(ranges).pairs()

    def draining(self) -> list[int]:
        """Return of each part how many slots its member waits for; empty: none."""
        lanes = self._book.draining
        counts = [0] * self.owners.count if lanes else []
        for lane in lanes:
            counts[self._part_of[lane]] += 1
        return counts

    # ---- flows that come and go -----------------------------------------------------------------

    def bind(self, flow: FlowPort) -> None:
        """Give a flow the share of its member, under a new epoch."""
        if len(self._shares) >= MAX_SHARE:
            self._end_one()
        share = self._open(flow, PartitionShare)
        self._assign()
        flow.attach(share)

    def _end_one(self) -> None:
        """End the oldest share without a part, by force, though it still has messages.

        There is one: there are fewer parts than shares may be.
        """
        members = self.owners.members
        oldest = next(each for each in self._shares.values() if each.member not in members)
        oldest.unbind(Cause.FORCED_COMMIT)
        self._has_ended_one = True

    def close(
        self, share: PartitionShare, flow: FlowPort, cause: Cause, unsent: Ranges | None
    ) -> None:
        """End a share whose flow was detached."""
        del self._shares[flow]
        self._book.close_share(share.number, cause, unsent)
        self._assign()

    # ---- moves ----------------------------------------------------------------------------------

    def move(
        self,
        moves: Sequence[PartMove],
        epoch: Epoch,
        drain_until: Iterable[float],
        find_flow: Callable[[MemberId], FlowPort | None],
    ) -> None:
        """Follow the record, in which parts have moved under a new epoch.

        `drain_until`: of each part when what its former member has of it is taken by force.
        """
        whole, before = self._whole, self.owners
        whole.parts, whole.epoch = before.moved(moves), epoch
        self.round = max(self.round, epoch)
        for move, until in zip(moves, drain_until, strict=True):
            self._drain_until.pop((move.part, move.target), None)
            self._drain_until[move.part, before.owner(move.part)] = until
        for member in {move.target for move in moves if move.target is not None}:
            flow = find_flow(member)
            if flow is not None and self.wants(flow):
                self.bind(flow)
        self._assign()
        changed = {member for move in moves for member in (before.owner(move.part), move.target)}
        for share in list(self._shares.values()):
            flow = share.flow
            if flow is None or flow.member not in changed:
                continue
            if share.first_epoch <= epoch:
                share.epoch = max(share.epoch, epoch)
                flow.send_lanes(share)
            self.has_changed(share)

    def force_due(self, now: float) -> bool:
        """Take by force what has drained for too long; return whether counts have changed."""
        has_ended_one, self._has_ended_one = self._has_ended_one, False
        return self._force_due(now) or has_ended_one

    def _force_due(self, now: float) -> bool:
        if not self._drain_until:
            return False
        lanes = self._book.draining
        if not lanes:
            self._drain_until.clear()
            return False
        due = {key for key, until in self._drain_until.items() if now >= until}
        by_number = {share.number: share for share in self._shares.values()}
        late = [
            lane
            for lane, number in lanes.items()
            if (self._part_of[lane], by_number[number].member) in due
        ]
        for key in due:
            del self._drain_until[key]
        if not late:
            return False
        for number, offsets in self._book.force(late).items():
            share = by_number[number]
            if share.flow is not None:
                share.flow.end_in_flight(len(offsets))
            if share.audit_writer is not None:
                taken = Ranges((offset, offset + 1) for offset in sorted(offsets)).pairs()
                share.flush_records.note("nack", share, share.flow, taken, cause="drain_timeout")
            self.has_changed(share)
        self._whole.counts += 1
        self._whole.wake()
        return True

    def has_changed(self, share: PartitionShare) -> None:
        """Have other shares look again, if one has freed something; end one that has nothing."""
        if self._book.pop_news():
            self._watch()
        flow = share.flow
        if flow is not None and not share.book.in_flight and flow.member not in self.owners.members:
            share.unbind(Cause.NONE)

    def _assign(self) -> None:
        """Have the book follow who has which lanes, and ask former owners for what they have."""
        numbers = bytearray(256)
        by_member = {s.flow.member: s.number for s in self._shares.values() if s.flow is not None}
        for part in range(self.owners.count):
            owner = self.owners.owner(part)
            numbers[part] = by_member.get(owner, 0) if owner is not None else 0
        asked = self._book.assign(self._part_of.translate(bytes(numbers)))
        for share in list(self._shares.values()):
            found: AskedLanes | None = asked.get(share.number)
            if found is not None and share.flow is not None:
                share.flow.ask_lanes_back(share, found.lanes, found.notice)
        self._watch()
