"""What flows of several members have of one partition: what KeyShared and Shared have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar, cast

from partq.broker.partition.audit_buffer import share_step
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.core.lanes.shared_book import SharedBook
from partq.core.model import Cause, Epoch, MemberId
from partq.core.ranges import Ranges
from partq.wire.audit import SHARED

S = TypeVar("S", bound="BoundShare")


@dataclass(eq=False, slots=True)
class BoundShare(ConsumedPartition):
    """What one flow has of a partition: its book is that of the share.

    What concerns the partition as a whole, as its record and its gate, is with `root`.
    """

    shared_flag: ClassVar[str] = SHARED
    whole: ConsumedPartition = field(kw_only=True)
    shares_of: "BoundShares[BoundShare]" = field(kw_only=True)
    """The shares of the partition, as the type of the group has them."""
    number: int = field(kw_only=True)
    """Of the share in the book."""
    first_epoch: Epoch = field(kw_only=True)
    """Under which it was bound; its epoch may grow."""

    @property
    def root(self) -> ConsumedPartition:
        """The partition of which this is a share."""
        return self.whole

    @property
    def bound_from(self) -> Epoch:
        """The lowest epoch of the deliveries whose acks count."""
        return self.first_epoch

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent to the flow."""
        return self.flow is not None and not self.is_withheld and self.whole.may_send

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
            audit_writer.note(share_step("unbind", flow, self, cause, self.shared_flag))
        unsent = flow.unsent(self.partition)
        flow.detach(self, cause)
        if self.book.in_flight:
            self.whole.counts += 1
        self.shares_of.close(self, flow, cause, unsent)


class BoundShares(ABC, Generic[S]):
    """The shares of one partition that are bound, by flow."""

    def __init__(self, whole: ConsumedPartition) -> None:
        """Start without shares; the book of the partition is a `SharedBook`."""
        self._whole = whole
        self._shares: dict[object, S] = {}
        self.round = max(whole.epoch, whole.share_epochs.top)
        """The highest epoch of a share: each bind takes the next. The record knows that of the last
        commit; a broker that claims the partition has a higher broker epoch."""

    @property
    def _book(self) -> SharedBook:
        book = self._whole.book
        assert isinstance(book, SharedBook)  # noqa: S101 - else there are new shares
        return book

    def holders(self) -> list[ConsumedPartition]:
        """Return the shares that are bound."""
        return list(self._shares.values())

    def of_flow(self, flow: object, epoch: Epoch | None = None) -> S | None:
        """Return the share that a flow has: one at most, whatever the epoch."""
        del epoch
        return self._shares.get(flow)

    def bound_members(self) -> set[MemberId]:
        """Return the members that have a share."""
        return {share.flow.member for share in self._shares.values() if share.flow is not None}

    @abstractmethod
    def close(self, share: S, flow: FlowPort, cause: Cause, unsent: Ranges | None) -> None:
        """End a share whose flow was detached."""

    @property
    def is_full(self) -> bool:
        """Whether no further flow gets a share."""
        return False

    def force_due(self, now: float) -> bool:
        """Take by force what has drained for too long; return whether counts have changed."""
        del now
        return False

    def wake(self) -> None:
        """Have flows look at the partition again: they may have something to send."""
        for share in list(self._shares.values()):
            if share.flow is not None:
                share.flow.notice(share)

    def _watch(self) -> None:
        """Have all flows look again, and time what waits: one alone may look too rarely."""
        for share in list(self._shares.values()):
            if share.flow is not None:
                share.flow.watch(share)

    def _raise_round(self) -> Epoch:
        whole = self._whole
        self.round = whole.share_epochs.top = Epoch(max(self.round, whole.epoch) + 1)
        return self.round

    def _open(self, flow: FlowPort, kind: type[S]) -> S:
        """Give a flow a share, under a new epoch; it is not attached yet."""
        whole, epoch = self._whole, self._raise_round()
        number, book = self._book.open_share()
        share = self._shares[flow] = kind(
            partition=whole.partition,
            broker_epoch=whole.broker_epoch,
            group=whole.group,
            member=flow.member,
            incarnation=flow.incarnation,
            epoch=epoch,
            closed_attempt=whole.closed_attempt,
            book=book,
            born=whole.born,
            writes=whole.writes,
            outbox=whole.outbox,
            states=whole.states,
            audit=whole.audit,
            flush_records=whole.flush_records,
            whole=whole,
            shares_of=cast("BoundShares[BoundShare]", self),
            number=number,
            first_epoch=epoch,
            flow=flow,
        )
        if (audit_writer := share.audit_writer) is not None:
            audit_writer.note(share_step("bind", flow, share, Cause.NONE, share.shared_flag))
        return share
