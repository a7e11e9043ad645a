"""The shares of a partition of a Shared group: any flow may get any message, in turns."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, cast

from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.parts.bound_shares import BoundShare, BoundShares
from partq.core.lanes.span import MAX_SHARE
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.core.turns.turn_book import TurnShareBook
from partq.core.turns.turns import TurnOrder, Turns, largest_window
from partq.wire.audit import TURNS


@dataclass(eq=False, slots=True)
class TurnShare(BoundShare):
    """What one flow has of a partition, and its place among those that wait for more."""

    shared_flag: ClassVar[str] = TURNS

    @property
    def _turns(self) -> "TurnShares":
        return cast(TurnShares, self.shares_of)

    @property
    def reader(self) -> ConsumedPartition:
        """For whom batches are read: once for all, as they are looked at once."""
        return self.whole

    def has_changed(self) -> None:
        """Have those look again that may send something after what its flow has said."""
        if self.flow is not None:
            self.flow.notice(self)
        self._turns.has_changed(self)

    @property
    def is_open(self) -> bool:
        """Whether messages may be sent to the flow: not when its member leaves."""
        is_leaving = self.flow is not None and self.flow.is_leaving
        return not is_leaving and not self.is_withheld and self.whole.may_send

    def leave(self) -> None:
        """Have the member give back what it has not begun; its share ends with the last message."""
        if self.flow is not None:
            self.flow.ask_all_back(self)
            self.end_turn()
            self.has_changed()

    def is_its_turn(self) -> bool:
        """Wait for the next window; return whether this share may take it."""
        return self._turns.is_turn_of(self)

    def most_at_once(self, room: int, batch: int) -> int:
        """Return how many messages of a batch that has so many it may be sent at once."""
        return min(room, self._turns.largest_window(batch))

    def end_turn(self, *, has_taken: bool = False) -> bool:
        """Let others take the next window; return whether this share is to wait for another one."""
        self._turns.end_turn(self, has_taken=has_taken)
        return has_taken


class TurnShares(BoundShares[TurnShare]):
    """The shares of one partition that are bound, and whose turn it is.

    A flow that may take something waits in `Turns`, and the first of them is told to look. One
    that has no room, is paused or is just sending is passed over: it looks again by itself. If
    nobody waits, all are told.
    """

    def __init__(
        self,
        whole: ConsumedPartition,
        log_end: Callable[[], int],
        order: TurnOrder[FlowPort],
    ) -> None:
        """Start without shares; the book of the partition is a `TurnBook`.

        Args:
            whole: the partition.
            log_end: returns the end of the partition's log.
            order: of the group's flows, common to all its partitions here.
        """
        super().__init__(whole)
        self._log_end = log_end
        self._order = order
        self._turns = Turns(order)
        self._open_messages = 0
        """As they are part of those of `order`."""
        self._watched_due = inf

    # ---- flows that come and go -----------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether no further flow gets a share."""
        return len(self._shares) >= MAX_SHARE

    def wants(self, flow: FlowPort) -> bool:
        """Whether a flow is to get a share: any flow of the group that has none."""
        may_take = flow.takes_turns and not flow.is_leaving
        return may_take and flow not in self._shares and not self.is_full

    def bind(self, flow: FlowPort) -> None:
        """Give a flow a share, under a new epoch, which holds for all deliveries from now on.

        So the token of a message never goes down, whichever member is sent it next.
        """
        share = self._open(flow, TurnShare)
        self._follow_round()
        self._order.join(flow, flow.priority)
        flow.attach(share)

    def close(self, share: TurnShare, flow: FlowPort, cause: Cause, unsent: Ranges | None) -> None:
        """End a share whose flow was detached; what it had goes to the others, under a new epoch.

        So a store that refuses lower tokens refuses what a member that was cut off still writes.
        """
        del self._shares[flow]
        self._raise_round()
        self._follow_round()
        self._turns.leave(flow)
        self._order.leave(flow, flow.priority)
        self._book.close_share(share.number, cause, unsent)
        self._book.pop_news()
        self._count_open()
        self._watch()

    def _follow_round(self) -> None:
        for each in self._shares.values():
            each.epoch = self.round

    # ---- turns ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[FlowPort]:
        """The flows that have room and wait for their turn."""
        return list(filter(self._is_able, self._turns))

    def is_turn_of(self, share: TurnShare) -> bool:
        """Have a share wait; return whether it is the first that can take something."""
        flow = share.flow
        if flow is None or not self._is_able(flow):
            self.end_turn(share)
            return False
        self._turns.ask(flow)
        return self._wake_first(but=flow) is flow

    def end_turn(self, share: TurnShare, *, has_taken: bool = False) -> None:
        """Have a share wait no more, and tell the next one.

        `has_taken`: its flow was sent something, and comes last in all partitions.
        """
        flow = share.flow
        if flow is None:
            return
        if has_taken:
            self._order.put_last(flow, flow.priority)
            self._count_open()
        if self._turns.leave(flow):
            self._wake_first()

    def largest_window(self, batch: int) -> int:
        """Return how much one flow is sent at once, so that those that wait get some, too.

        `batch`: how many messages a batch has. What is left of it is cut as its beginning was.
        """
        self._count_open()
        return largest_window(batch, self._order.open_messages, len(self._turns))

    def _count_open(self) -> None:
        """Count what may be sent now in this partition, for all that wait in any partition."""
        messages = 0
        share = next(iter(self._shares.values()), None)
        if share is not None and self._whole.may_send:
            book = share.book
            assert isinstance(book, TurnShareBook)  # noqa: S101 - of a `TurnBook`
            stop = min(self._log_end(), book.cursor + book.max_span)
            messages = max(0, stop - book.position) + book.again_count
        self._order.open_messages += messages - self._open_messages
        self._open_messages = messages

    def force_due(self, now: float) -> bool:
        """Count again: nobody looks at a partition that may send nothing for now."""
        self._count_open()
        return super().force_due(now)

    def wake(self) -> None:
        """Have the first flow that waits look at the partition; if none waits, all of them."""
        self._count_open()
        if self._wake_first() is None:
            super().wake()

    def has_changed(self, share: TurnShare) -> None:
        """Have others look again, if a share has freed something or waits for a nearer time.

        End it if its member leaves and has nothing any more.
        """
        flow = share.flow
        if flow is not None and flow.is_leaving and not share.book.in_flight:
            share.unbind(Cause.NONE)
            return
        has_news, due = self._book.pop_news(), self._book.next_due
        if due < self._watched_due:
            self._watch()
        elif has_news:
            self.wake()
        self._watched_due = due

    def _wake_first(self, but: FlowPort | None = None) -> FlowPort | None:
        """Have the first that can take something look, and those before it; `but` one looks now."""
        first, passed = self._turns.first(self._is_able)
        # They look as soon as they can: until then nobody else may have come.
        for flow in (*passed, *([first] if first is not None else ())):
            if flow is not but:
                flow.notice(self._shares[flow])
        return first

    def _is_able(self, flow: FlowPort) -> bool:
        return self._shares[flow].is_open and flow.is_able
