"""A book of lanes as the documents tell it: one object per message, and no bulk operations."""

from dataclasses import dataclass, field
from math import inf

from partq.core.model import Cause


@dataclass
class Message:
    """What is true of one message."""

    lane: int
    state: str = "open"
    """`open`, `held`, `acked` or `aside`."""
    cause: Cause = Cause.NONE
    count: int = 0
    stored_count: int = 0
    is_lent: bool = False
    is_tried: bool = False
    """It has failed, and was sent again: until it is done it is alone of its lane."""


@dataclass
class Model:
    """The rule of delivery, and what blocks a lane."""

    messages: list[Message]
    due: dict[int, float] = field(default_factory=dict)
    """Lane → when its delay is over."""
    owed: dict[int, int] = field(default_factory=dict)
    owes_all: int = 0
    unstored: set[int] = field(default_factory=set)
    """Lanes with a count that is not stored."""
    doomed: set[int] = field(default_factory=set)
    """Offsets that are to become dead letters."""

    @property
    def cursor(self) -> int:
        return next(
            (o for o, each in enumerate(self.messages) if each.state != "acked"),
            len(self.messages),
        )

    def having(self, state: str) -> list[int]:
        return [o for o, each in enumerate(self.messages) if each.state == state]

    def is_blocked(self, lane: int) -> bool:
        is_tried = any(m.is_tried and m.state == "held" for m in self.messages if m.lane == lane)
        is_owed = lane in self.owed or self.owes_all > 0
        is_waiting = lane in self.due or lane in self.unstored or lane in self.doomed_lanes
        return is_waiting or is_owed or is_tried

    def sent_again(self, offsets: list[int]) -> list[int]:
        """Return what is sent of offsets that may go again: nothing behind one that has failed."""
        found, tried = [], set()
        for offset in offsets:
            message = self.messages[offset]
            if message.lane in tried:
                continue
            found.append(offset)
            if message.count:
                tried.add(message.lane)
        return found

    @property
    def doomed_lanes(self) -> set[int]:
        return {self.messages[offset].lane for offset in self.doomed}

    def may_go(self) -> list[int]:
        """Return what may be sent, and may be the lowest of its lane once those below are sent."""
        open_ones = self.having("open")
        return [o for o in open_ones if not self.is_blocked(self.messages[o].lane)]

    def take_back(self, offsets: list[int], cause: Cause, due: float) -> frozenset[int]:
        """Give offsets back that could not be processed; return the lanes that are asked for."""
        for offset in offsets:
            message = self.messages[offset]
            message.state, message.cause = "open", cause
            message.count += 1
            self.unstored.add(message.lane)
            self.due[message.lane] = max(due, self.due.get(message.lane, -inf))
        lanes = {self.messages[offset].lane for offset in offsets}
        held = {self.messages[offset].lane for offset in self.having("held")}
        return frozenset() if self.owes_all else frozenset((lanes & held) - self.owed.keys())

    def finish(self, offset: int) -> None:
        """Have done with a message; a lane that waited for it alone goes on."""
        message = self.messages[offset]
        was_open = message.state == "open"
        has_failed, message.count = message.count > 0, 0
        message.state, message.is_lent = "acked", False
        others = {m.lane for m in self.messages if m.count and m.state != "acked"}
        if was_open and has_failed and message.lane not in others:
            self.due.pop(message.lane, None)
