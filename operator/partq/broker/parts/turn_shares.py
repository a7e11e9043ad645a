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
from partq.core.turns.turns import Turns, largest_window
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
        self._turns.end_turn(self)
        return has_taken


class TurnShares(BoundShares[TurnShare]):
    """The shares of one partition that are bound, and whose turn it is.

    A flow that may take something waits in `Turns`, and the first of them is told to look. One
    that has no room, is paused or is just sending is passed over: it looks again by itself. If
    nobody waits, all are told.
    """

    def __init__(self, whole: ConsumedPartition, log_end: Callable[[], int]) -> None:
        """Start without shares; the book of the partition is a `TurnBook`.

        `log_end`: returns the end of the partition's log.
        """
        super().__init__(whole)
        self._log_end = log_end
        self._turns = Turns[TurnShare]()
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
        flow.attach(share)

    def close(self, share: TurnShare, flow: FlowPort, cause: Cause, unsent: Ranges | None) -> None:
        """End a share whose flow was detached; what it had goes to the others, under a new epoch.

        So a store that refuses lower tokens refuses what a member that was cut off still writes.
        """
        del self._shares[flow]
        self._raise_round()
        self._follow_round()
        self._turns.leave(share, flow.priority)
        self._book.close_share(share.number, cause, unsent)
        self._book.pop_news()
        self._watch()

    def _follow_round(self) -> None:
        for each in self._shares.values():
            each.epoch = self.round

    # ---- turns ----------------------------------------------------------------------------------

    @property
    def waiting(self) -> list[FlowPort]:
        """The flows that have room and wait for their turn."""
        return [share.flow for share in self._turns if share.flow is not None and _is_able(share)]

    def is_turn_of(self, share: TurnShare) -> bool:
        """Have a share wait; return whether it is the first that can take something."""
        flow = share.flow
        if flow is None or not _is_able(share):
            self.end_turn(share)
            return False
        self._turns.ask(share, flow.priority)
        return self._wake_first(but=share) is share

    def end_turn(self, share: TurnShare) -> None:
        """Have a share wait no more, and tell the next one."""
        if share.flow is not None and self._turns.leave(share, share.flow.priority):
            self._wake_first()

    def largest_window(self, batch: int) -> int:
        """Return how much one flow is sent at once, so that those that wait get some, too.

        `batch`: how many messages a batch has. What is left of it is cut as its beginning was.
        """
        book = self._book
        share = next(iter(self._shares.values())).book
        assert isinstance(share, TurnShareBook)  # noqa: S101 - of a `TurnBook`
        left = max(0, self._log_end() - book.position) + share.again_count
        return largest_window(max(left, batch), len(self._turns))

    def wake(self) -> None:
        """Have the first flow that waits look at the partition; if none waits, all of them."""
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

    def _wake_first(self, but: TurnShare | None = None) -> TurnShare | None:
        """Have the first that can take something look, and those before it; `but` one looks now."""
        first, passed = self._turns.first(_is_able)
        # They look as soon as they can: until then nobody else may have come.
        for share in (*passed, *([first] if first is not None else ())):
            if share is not but and share.flow is not None:
                share.flow.notice(share)
        return first


def _is_able(share: TurnShare) -> bool:
    return share.is_open and share.flow is not None and share.flow.is_able
