"""The shares of a partition that several members of a KeyShared group have, each some lanes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from partq.broker.partition.audit_buffer import share_step
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.core.lanes.shared_book import AskedLanes, SharedBook
from partq.core.lanes.span import MAX_SHARE
from partq.core.model import Cause, Epoch, MemberId
from partq.core.parts.part_id import slots_of
from partq.core.parts.part_owners import PartMove, PartOwners
from partq.core.parts.part_slots import part_table
from partq.core.ranges import Ranges
from partq.core.slot_table import SlotRanges


@dataclass(eq=False, slots=True)
class PartitionShare(ConsumedPartition):
    """What one flow has of a partition: its book is that of the share.

    What concerns the partition as a whole, as its record and its gate, is with `root`.
    """

    whole: ConsumedPartition = field(kw_only=True)
    shares_of: "PartitionShares" = field(kw_only=True)
    number: int = field(kw_only=True)
    """Of the share in the book."""
    first_epoch: Epoch = field(kw_only=True)
    """Under which it was bound; its epoch grows when it gets lanes."""

    @property
    def root(self) -> ConsumedPartition:
        """The partition of which this is a share."""
        return self.whole

    @property
    def bound_from(self) -> Epoch:
        """The lowest epoch of the deliveries whose acks count."""
        return self.first_epoch

    @property
    def lane_ranges(self) -> list[tuple[int, int]]:
        """The slots that its member has, as ranges."""
        return self.shares_of.slots_of_member(self.flow.member) if self.flow is not None else []

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent to the flow."""
        return self.flow is not None and not self.is_withheld and self.whole.may_send

    def has_changed(self) -> None:
        """Have those look again that may send something after what its flow has said."""
        if self.flow is not None:
            self.flow.notice(self)
        self.shares_of.has_changed(self)

    def make_letters(self) -> bool:
        """Have what is due of quarantined keys moved; return whether nothing may be sent now."""
        self.whole.make_letters()
        return not self.is_open

    def unbind(self, cause: Cause) -> None:
        """Take the share from its flow; what is in flight goes out again, for `cause`."""
        flow, self.flow = self.flow, None
        if flow is None:
            return
        self.whole.to_hurry.set()
        if (audit_writer := self.audit_writer) is not None:
            audit_writer.note(share_step("unbind", flow, self, cause))
        unsent = flow.unsent(self.partition)
        flow.detach(self, cause)
        if self.book.in_flight:
            self.whole.counts += 1
        self.shares_of.close(self, flow, cause, unsent)


class PartitionShares:
    """The shares of one partition that are bound, and which member has which parts."""

    def __init__(self, whole: ConsumedPartition, slots: SlotRanges, parts: int) -> None:
        """Start without shares.

        Args:
            whole: the partition; its book is a `SharedBook`.
            slots: those that the partition was made with, which its parts cut.
            parts: how many parts it has, if none was ever moved.
        """
        self._whole = whole
        owners = whole.parts or PartOwners.none(parts)
        whole.parts = owners
        self._part_of = part_table(slots, owners.count)
        self._slots = slots
        self._shares: dict[object, PartitionShare] = {}
        """By flow."""
        self.round = max(whole.epoch, whole.share_epochs.top)
        """The highest epoch of a share: each bind takes the next. The record knows that of the last
        commit; a broker that claims the partition has a higher broker epoch."""
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

    @property
    def _book(self) -> SharedBook:
        book = self._whole.book
        assert isinstance(book, SharedBook)  # noqa: S101 - else there are new shares
        return book

    def holders(self) -> list[ConsumedPartition]:
        """Return the shares that are bound."""
        return list(self._shares.values())

    def wake(self) -> None:
        """Do nothing: each flow looks for itself."""

    def of_flow(self, flow: object, epoch: Epoch | None = None) -> PartitionShare | None:
        """Return the share that a flow has: one at most, whatever the epoch."""
        del epoch
        return self._shares.get(flow)

    def wants(self, flow: FlowPort) -> bool:
        """Whether a flow is to get a share: its member has a part, and the flow has none yet."""
        return flow.member in self.owners.members and flow not in self._shares

    def bound_members(self) -> set[MemberId]:
        """Return the members that have a share."""
        return {share.flow.member for share in self._shares.values() if share.flow is not None}

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
        whole = self._whole
        if len(self._shares) >= MAX_SHARE:
            self._end_one()
        self.round = whole.share_epochs.top = Epoch(max(self.round, whole.epoch) + 1)
        number, book = self._book.open_share()
        share = PartitionShare(
            partition=whole.partition,
            broker_epoch=whole.broker_epoch,
            group=whole.group,
            member=flow.member,
            incarnation=flow.incarnation,
            epoch=self.round,
            closed_attempt=whole.closed_attempt,
            book=book,
            born=whole.born,
            writes=whole.writes,
            outbox=whole.outbox,
            states=whole.states,
            audit=whole.audit,
            flush_records=whole.flush_records,
            whole=whole,
            shares_of=self,
            number=number,
            first_epoch=self.round,
            flow=flow,
        )
        self._shares[flow] = share
        if (audit_writer := share.audit_writer) is not None:
            audit_writer.note(share_step("bind", flow, share, Cause.NONE))
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

    def _watch(self) -> None:
        """Have all flows look again, and time the keys that wait: one alone may look too rarely."""
        for share in list(self._shares.values()):
            if share.flow is not None:
                share.flow.watch(share)
