"""What the shares of a partition have in common: one object for all books of a group there."""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from partq.core.lanes.blocked_lanes import BlockedLanes
from partq.core.lanes.span import HELD, MAX_SHARE, LaneSpan
from partq.core.ranges import Ranges


class LaneShare(Protocol):
    """The right to some lanes of a partition, which one flow has."""

    def go_on(self, lanes: list[int]) -> None:
        """Have sent what is open of lanes that nothing blocks any more, where they are its own."""

    def reopen(self, offsets: list[int]) -> None:
        """Have sent what was given back of lanes that nothing blocks, where they are its own."""

    def lose(self, start: int, stop: int) -> int:
        """Have nothing of [start, stop) in flight any more; return how many messages were."""


class LaneRecord:
    """How far the group has come, what has failed, and which lanes are blocked for everybody."""

    __slots__ = (
        "blocked",
        "cursor",
        "delivered",
        "doomed_unread",
        "exhausted",
        "has_news",
        "is_shared",
        "lent",
        "max_span",
        "number",
        "recalled",
        "redeliveries",
        "released",
        "shares",
        "span",
        "to_letter",
        "unreadable",
        "waits_for_span",
    )

    def __init__(
        self,
        cursor: int,
        redeliveries: Mapping[int, int] | None,
        *,
        parked: Mapping[int, float] | None,
        quarantined: Collection[int],
        max_span: int,
        max_parked: int,
    ) -> None:
        self.cursor = cursor
        """Everything below is acknowledged."""
        self.max_span = max_span
        """Nothing is sent that lies so many offsets above the cursor, or more."""
        self.delivered = cursor
        """All below may have been delivered, under any token."""
        self.span = LaneSpan(cursor)
        self.redeliveries = dict(redeliveries or {})
        self.blocked = BlockedLanes(max_parked, parked, quarantined)
        self.unreadable = Ranges()
        self.shares: dict[int, LaneShare] = {}
        """By number, from 1."""
        self.is_shared = False
        """Whether there may be several."""
        self.number = 0
        """Where there may be several shares: grows when a message is taken back, as another copy of
        it may be sent while the first one is processed."""
        self.recalled: dict[int, int] = {}
        """Offset that was taken back → the lowest number of a copy that counts."""
        self.lent: dict[int, int] = {}
        """Open offset whose time was over → the share that had it: the ack of that copy still
        counts."""
        self.exhausted: dict[int, bool] = {}
        """Messages of lanes that are to be held, once they are read; True: in quarantine."""
        self.released: set[int] = set()
        """Lanes that were released while some of those were not read."""
        self.doomed_unread: set[int] = set()
        """Offsets that are to become dead letters, and whose lane is not known yet."""
        self.to_letter: set[int] = set()
        """Messages of quarantined lanes that were passed in turn."""
        self.has_news = False
        """What one share did may have another one send something."""
        self.waits_for_span = False
        """A share has stopped at the end of the span."""

    def go_on(self, lanes: list[int]) -> None:
        """Have sent what is open of lanes that nothing blocks any more."""
        if lanes:
            self.has_news = True
            for share in self.shares.values():
                share.go_on(lanes)

    def reopen(self, offsets: list[int]) -> None:
        """Have sent again what was given back, where its lane is not blocked."""
        if offsets:
            self.has_news = True
            for share in self.shares.values():
                share.reopen(offsets)

    def move_cursor(self, cursor: int) -> None:
        """Note that all below `cursor` is done."""
        self.cursor = cursor
        self.span.drop_below(cursor)
        if self.unreadable:
            self.unreadable.drop_below(cursor)
        if self.waits_for_span:
            self.waits_for_span, self.has_news = False, True
        for offset in [each for each in self.recalled if each < cursor] if self.recalled else ():
            del self.recalled[offset]

    def end_trials(self, start: int, stop: int) -> None:
        """Let lanes go on whose failed message, in [start, stop), no member has any more."""
        if tried := self.blocked.trials(start, stop):
            state = self.span.state
            gone = [offset for offset in tried if not HELD <= state(offset) <= MAX_SHARE]
            self.go_on(self.blocked.end_trials(gone))

    def recall(self, offsets: Iterable[int]) -> None:
        """Let the copies of messages that were sent so far count no more."""
        if self.is_shared:
            self.number += 1
            self.recalled.update(dict.fromkeys(offsets, self.number))

    def end_drains(self, lanes: Iterable[int]) -> None:
        """Let those of some lanes go on that were draining, and of which nothing is held now."""
        draining = self.blocked.draining
        found = [lane for lane in lanes if lane in draining] if draining else ()
        if not found:
            return
        held = {
            self.span.lane(offset)
            for holder in {draining[lane] for lane in found}
            for offset in self.span.of_lanes(found, holder, self.cursor, self.span.read_end)
        }
        self.go_on(self.blocked.drained(lane for lane in found if lane not in held))
