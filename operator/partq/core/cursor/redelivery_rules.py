"""When a message that was not done with is redelivered: the rules of one group."""

from dataclasses import dataclass
from enum import StrEnum

MAX_NACK_DELAY_MS = 86_400_000
"""A day."""


class NackOrder(StrEnum):
    """What a message waits for that lies behind one that was given back."""

    ORDERED = "Ordered"
    """For every earlier message of its partition."""
    KEY = "Key"
    """For the earlier messages of its slot, so of its key."""
    FREE = "Free"
    """For none."""


@dataclass(frozen=True, slots=True)
class RedeliveryBackoff:
    """Waiting times that grow with each redelivery of a message; times in seconds."""

    min_s: float
    max_s: float
    multiplier: float

    def delay_s(self, attempt: int) -> float:
        """Return how long the given redelivery waits; the first one is number 1."""
        try:
            return min(self.max_s, self.min_s * self.multiplier ** (attempt - 1))
        except OverflowError:
            return self.max_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryRules:
    """The rules; the defaults are those of the resource."""

    order: NackOrder = NackOrder.ORDERED
    max_parked_keys: int = 1024
    """Of `NackOrder.KEY`: keys of a partition that may wait; beyond, the partition stops."""
    max_span: int = 20_000
    """Of `NackOrder.KEY`: offsets above the cursor that may be delivered."""
    parts: int = 0
    """Of groups of type KeyShared: how many parts each partition has; 0: it is not shared."""
    takes_ranges: bool = False
    """Members of such a group declare the slots that they want."""
    takes_turns: bool = False
    """Groups of type Shared: any member may get any message."""
    lock_s: float = 0.0
    """Of groups of type Session: how long a lock lasts; 0: members lock no sessions."""
    max_state_bytes: int = 65_536
    """Of one state, with the bound that every state has."""
    max_states: int = 10_000
    """Keys of a partition that may have a state."""
    nack_delay_s: float = 60.0
    nack_backoff: RedeliveryBackoff | None = None
    """In the place of `nack_delay_s`."""
    ack_timeout_s: float = 0.0
    """How long the application may process a message, in seconds; 0: without limit."""
    ack_tick_s: float = 1.0
    """How often that is looked at."""
    ack_backoff: RedeliveryBackoff | None = None
    """Waits of a message that was processed for too long; None: it is redelivered at once."""

    def after_nack_s(self, attempt: int) -> float:
        """Return how long a nacked message waits for its given redelivery."""
        return self.nack_backoff.delay_s(attempt) if self.nack_backoff else self.nack_delay_s

    def after_timeout_s(self, attempt: int) -> float:
        """Return how long a message waits for its given redelivery once its time is over."""
        return self.ack_backoff.delay_s(attempt) if self.ack_backoff else 0.0
