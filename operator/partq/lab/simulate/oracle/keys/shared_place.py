"""What each flow has of a partition that several members share, as a watcher knows it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.network import Pipe
from partq.lab.simulate.oracle.facts import GroupPartitionFacts

CLOCK_S: Final = 0.01
"""How much earlier than its time a key may go on: clocks of brokers and Redis are read in ms."""


class Receiver(Protocol):
    """What a share is sent to: a connection, or the right to a session on one."""

    @property
    def is_open(self) -> bool: ...  # noqa: D102
    @property
    def process(self) -> Process: ...  # noqa: D102
    @property
    def pipe(self) -> Pipe: ...  # noqa: D102


@dataclass(eq=False, slots=True)
class FlowShare:
    """What one flow has of a partition, as its broker knows it from frames."""

    end: Receiver
    epochs: set[int]
    """Those under which its broker has named its slots."""
    lanes: list[tuple[int, int]] = field(default_factory=list)
    back: set[int] = field(default_factory=set)
    """What was given back, and not sent to it since."""
    held: dict[int, int] = field(default_factory=dict)
    """What was sent, and neither acknowledged nor given back since, with the number of its copy."""
    due: dict[int, float] = field(default_factory=dict)
    """Since when nothing held up what was sent."""
    begun: dict[int, float] = field(default_factory=dict)
    """When its application has begun what it has."""
    owed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The slots that each notice without an answer has asked for."""
    beside: set[int] = field(default_factory=set)
    """Epochs of what else its connection has of the partition."""

    @property
    def oldest(self) -> int:
        """The lowest epoch under which an ack of its connection may count."""
        return min(self.epochs | self.beside)

    @property
    def name(self) -> str:
        """That of its member."""
        return self.end.pipe.target

    def has_slot(self, slot: int) -> bool:
        """Whether its member has a slot."""
        return is_in(self.lanes, slot)

    def has_copy(self, offset: int, number: int) -> bool:
        """Whether an answer of that number may be about what it has of a message."""
        return offset in self.held and number >= self.held[offset]

    def may_be_timed_out(self, offset: int, begun_by: float) -> bool:
        """Whether its application has begun a message by then."""
        return offset in self.begun and self.begun[offset] <= begun_by

    def is_owed(self, slot: int) -> bool:
        """Whether its member was asked for a slot, and has not answered."""
        return any(is_in(lanes, slot) for lanes in self.owed.values())


class KeyWaits:
    """The confirmed nacks of each place of a group: their keys wait until a time."""

    def __init__(self) -> None:
        self._due: dict[str, dict[int, float]] = {}

    def add(self, name: str, offsets: Iterable[int], due: float) -> None:
        """Note that messages were given back, and when their keys may go on."""
        self._due.setdefault(name, {}).update(dict.fromkeys(offsets, due))

    def forget(self, name: str) -> None:
        """Learn that the group begins again."""
        self._due.pop(name, None)

    def release(self, facts: GroupPartitionFacts, slot: int) -> None:
        """Learn that a key does not wait for its time any more."""
        due, slots = self._due.get(facts.name, {}), facts.log.slots
        for offset in [each for each in due if each < len(slots) and slots[each] == slot]:
            del due[offset]

    def of_slot(
        self, facts: GroupPartitionFacts, slot: int, now: float, is_over: Callable[[int], bool]
    ) -> Iterator[tuple[int, float]]:
        """Return what a key waits for, and how long; `is_over`: whether a message is done with."""
        due, slots = self._due.get(facts.name, {}), facts.log.slots
        for offset, until in [*due.items()]:
            if now >= until - CLOCK_S or offset in facts.letters or is_over(offset):
                del due[offset]
            elif offset < len(slots) and slots[offset] == slot:
                yield offset, until - now


@dataclass(slots=True)
class SharedPlace:
    """A partition under one broker epoch, since the group began there or was reset."""

    shares: dict[Receiver, FlowShare] = field(default_factory=dict)
    acked: dict[int, bool] = field(default_factory=dict)
    """What was acknowledged at this broker: whether that is sure. Of an ack that is refused for a
    part, and of what is taken by force as it comes, nobody knows until it is sent again."""
    binds: set[int] = field(default_factory=set)
    """The epochs under which flows were bound."""


def message_place(facts: GroupPartitionFacts, offset: int) -> str:
    """Return the name of the place of a message that stands alone."""
    return f"{facts.name}#{offset}"


def is_in(lanes: Iterable[tuple[int, int]], slot: int) -> bool:
    """Say whether a slot is in ranges."""
    return any(low <= slot < high for low, high in lanes)


def offsets_in(ranges: Iterable[tuple[int, int]]) -> Iterable[int]:
    """Return what is in ranges, one by one."""
    return (offset for start, stop in ranges for offset in range(start, stop))
