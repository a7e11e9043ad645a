"""A group's book as the documents tell it, message by message."""

from dataclasses import dataclass, field
from typing import NamedTuple

from partq.core.model import Cause

COUNTED = {Cause.FLOW_LOST, Cause.FORCED_COMMIT}


@dataclass
class Message:
    """What is true of one message."""

    is_acked: bool = False
    is_in_hand: bool = False
    """Sent under the current token, and not given back."""
    may_have_begun: bool = False
    """Sent, and not given back since."""
    cause: Cause = Cause.NONE
    redeliveries: int = 0
    sent_at: int = 0
    """Which sending it was, the last one in turn."""
    sent_again_at: int = 0
    """The same of what was sent out of turn since, and is in flight."""


class Wait(NamedTuple):
    due: float
    holds: bool
    cause: Cause


@dataclass
class Model:
    """A book as the documents tell it, message by message."""

    messages: list[Message]
    position: int = 0
    number: int = 0
    released: list[int] = field(default_factory=list)
    """Where the step back began that ended each delivery number."""
    delivered: int = 0
    """Everything below may be in the application's hands."""
    waiting: dict[int, Wait] = field(default_factory=dict)
    again: dict[int, Cause] = field(default_factory=dict)
    """What is to be sent out of turn."""
    now: float = 0
    sendings: int = 0
    given_back: dict[int, int] = field(default_factory=dict)
    """What was given back, and under which delivery number it is sent again at the earliest."""

    @property
    def cursor(self):
        return next(
            (at for at, message in enumerate(self.messages) if not message.is_acked),
            len(self.messages),
        )

    def open_in(self, start, stop):
        """The offsets of [start, stop) that nobody has acknowledged."""
        return [at for at in range(start, stop) if not self.messages[at].is_acked]

    def in_flight(self):
        return [at for at, m in enumerate(self.messages) if m.is_in_hand and not m.is_acked]

    def ack(self, offsets):
        """Acknowledge; return how many were in flight."""
        before = len(self.in_flight())
        for offset in offsets:
            self.messages[offset].is_acked = True
            self.waiting.pop(offset, None)
            self.again.pop(offset, None)
        return before - len(self.in_flight())

    def spoken_of(self, upto):
        """What a consumer may mean that has got the message below `upto`, and acknowledges all."""
        return {
            at
            for at in range(upto)
            if at == upto - 1
            or (
                (at not in self.waiting and at not in self.again)
                and self.messages[at].sent_again_at <= self.messages[upto - 1].sent_at
            )
        }

    def rewind(self, cause):
        if self.in_flight() and cause in COUNTED:
            self.messages[self.in_flight()[0]].redeliveries += 1
        for message in self.messages[self.cursor : self.position]:
            message.cause = cause
        self.go_back(self.cursor)
        self.number, self.released = 0, []
        self.given_back = {}
        self.delivered = self.position

    def go_back(self, start):
        """Send everything from `start` on in turn again."""
        for message in self.messages[start:]:
            message.is_in_hand = False
            message.sent_again_at = 0
        for offset in [offset for offset in self.again if offset >= start]:
            self.messages[offset].cause = self.again.pop(offset)
        self.position = start
        self.released.append(start)
        self.number += 1

    def step_back_since(self, number):
        """The lowest offset that was taken back since a delivery number."""
        return max(min(self.released[max(0, number) :], default=len(self.messages)), self.cursor)

    def move_to(self, position):
        self.sendings += 1
        for message in self.messages[self.position : position]:
            message.sent_at = self.sendings
        self.position = position
        self.delivered = max(self.delivered, position)
