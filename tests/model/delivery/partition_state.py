"""The state of the modelled deliveries: records, books, connections, and what may still happen.

A group has two members, 1 and 2, and each partition has a fixed log. The *lane* of a message is the
unit of order: a slot of keys. One member owns a lane at a time, and a partition has a table of the
owners. A state is a value: each step makes another one.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

MEMBERS = (1, 2)
OPEN, DONE = 0, -1
"""Who holds a message: nobody yet, or nobody any more. Otherwise its number says which member."""
NO_FLOW = 0


class Record(NamedTuple):
    """What Redis has of one partition for the group."""

    owners: tuple[int, ...]
    """The member that owns each lane."""
    acked: tuple[bool, ...]
    counts: tuple[int, ...]
    """How often each message has to be counted as redelivered."""
    parked: tuple[bool, ...]
    """Lanes that wait for the delay of a retry."""
    states: tuple[int, ...]
    """The state of each key, as the application stored it: how many messages it includes."""
    is_gate_open: bool
    broker_epoch: int = 0
    epoch: int = 0


class Book(NamedTuple):
    """What the broker that owns the partition has in memory."""

    holders: tuple[int, ...]
    """Of each message: the member that holds it, OPEN or DONE."""
    counts: tuple[int, ...]
    parked: tuple[bool, ...]
    states: tuple[int, ...]
    copies: tuple[int, ...]
    """How often a message was taken from a member that may still process it."""
    flows: tuple[int, ...] = (NO_FLOW,) * len(MEMBERS)
    draining: tuple[int, ...] = ()
    """Of each lane: the former owner that still holds messages of it, or 0."""
    owed: frozenset[tuple[int, int]] = frozenset()
    """Members and lanes: the member has not said yet what it gives back of the lane."""
    lent: frozenset[tuple[int, int]] = frozenset()
    """Members and messages: the ack timed out, and still counts while the message is open."""
    uncounted: tuple[bool, ...] = ()
    """Lanes with a redelivery count that is not stored."""
    unanswered: frozenset[int] = frozenset()
    """Members whose nack is answered after the next flush."""
    is_dirty: bool = False
    round: int = 0
    """The second number of tokens: it grows with each bind and each change of the table."""
    bind_rounds: tuple[int, ...] = (0,) * len(MEMBERS)
    pointers: tuple[int, ...] = ()
    """Of each member and lane: nothing below this offset is open."""


class Delivery(NamedTuple):
    """One message that was sent to a member."""

    offset: int
    flow: int
    copy: int
    state: int = 0
    """The state of its key, as the application read it before it began."""


class Frame(NamedTuple):
    """What a connection carries."""

    kind: str
    delivery: Delivery | None = None
    lane: int = 0
    returned: tuple[Delivery, ...] = ()


# Kinds of frames to a member, and to a broker.
DELIVER, ASK_BACK, NACK_STORED = "deliver", "ask back", "nack stored"
ACK, NACK, RETURNED = "ack", "nack", "returned"


class Link(NamedTuple):
    """A member's client for one partition, and both directions of its connection."""

    flow: int = NO_FLOW
    """The flow that the client believes to have."""
    buffer: tuple[Delivery, ...] = ()
    processed: Delivery | None = None
    """What the application is processing."""
    waits_for_nack: bool = False
    """Nothing is handed to the application before the nack is answered."""
    down: tuple[Frame, ...] = ()
    up: tuple[Frame, ...] = ()


class Partition(NamedTuple):
    """A partition, the members' connections to it, and what only an observer knows."""

    record: Record
    book: Book
    links: tuple[Link, ...]
    last_flows: tuple[int, ...]
    finished: tuple[bool, ...]
    """Messages that some application has processed since the last claim, or before it with an ack
    that is stored."""
    is_due: tuple[bool, ...]
    """Lanes whose delay is over."""
    must_wait: tuple[bool, ...]
    """Lanes with a retry that is stored and not due."""
    highest: tuple[tuple[int, int], ...]
    """The highest token that was delivered of each lane."""
    replica: Record | None = None
    """What a replica had when it stopped following."""
    claims: int = 0

    def with_record(self, **changes: Any) -> "Partition":
        """Return the partition with a changed record."""
        return self._replace(record=self.record._replace(**changes))

    def with_book(self, **changes: Any) -> "Partition":
        """Return the partition with a changed book."""
        return self._replace(book=self.book._replace(**changes))

    def with_link(self, member: int, **changes: Any) -> "Partition":
        """Return the partition with a changed connection of a member."""
        link = self.links[member - 1]._replace(**changes)
        return self._replace(links=replaced(self.links, member - 1, link))

    def is_connected(self, member: int) -> bool:
        """Return whether a member has a flow, and the broker knows the same one."""
        flow = self.book.flows[member - 1]
        return flow != NO_FLOW and self.links[member - 1].flow == flow


class Faults(NamedTuple):
    """How many events of each kind may still strike, and how many of them all."""

    moves: int = 0
    """A lane is given to the other member."""
    nacks: int = 0
    timeouts: int = 0
    """An ack timeout of a message that is being processed."""
    lost_flows: int = 0
    crashes: int = 0
    """The broker dies, and another one claims the partition."""
    forced: int = 0
    """A lane that drains for too long is taken from its former owner."""
    rollbacks: int = 0
    """Redis loses its last writes."""
    at_most: int = 0

    def without(self, kind: str) -> "Faults":
        """Return what is left after one event of a kind."""
        if self.at_most == 1:
            return Faults()
        return self._replace(**{kind: getattr(self, kind) - 1, "at_most": self.at_most - 1})


class State(NamedTuple):
    """Everything."""

    partitions: tuple[Partition, ...]
    faults: Faults

    def with_partition(self, index: int, partition: Partition) -> "State":
        """Return the state with one partition changed."""
        return self._replace(partitions=replaced(self.partitions, index, partition))


def replaced(values: tuple[Any, ...], index: int, value: Hashable) -> tuple[Any, ...]:
    """Return the values with another one at an index."""
    return (*values[:index], value, *values[index + 1 :])
