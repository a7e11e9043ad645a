"""The state of the modelled queue: partitions, a producer, consumer groups, what may still fail.

The model follows one slot through a chain of partitions, 0, 1 and 2. The first change of the layout
takes it from partition 0 to partition 1, the second one to partition 2. Slot *stay* is in partition
0 too, and no change moves it. A message is a text: `move-0` is the first message that the producer
sends with a key of the moving slot, `stay-1` its second one, of the other slot. `single-0` is a
message of the moving slot by a producer that numbers nothing and may know any layout.
"""

from typing import Any, NamedTuple

PARTITION_COUNT = 3

# Lives of a partition, and gates of a group. Texts: their hash is computed once.
ABSENT, LIVE, REMOVED = "absent", "live", "removed"
CLOSED, OPEN, HELD = "closed", "open", "held by a reset"
NOT_SEALED = NO_CURSOR = -1
NOWHERE, CUT_SHORT = -1, -2
"""Where a reset stands that has ended, or whose caller has died."""


def is_moving(message: str) -> bool:
    """Whether a message is of the slot that changes move."""
    return not message.startswith("stay")


def replaced(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the values with another one at an index."""
    return (*values[:index], value, *values[index + 1 :])


class Batch(NamedTuple):
    """One message with its number, as a producer sends it."""

    producer_id: int
    number: int
    message: str


class Append(NamedTuple):
    """A batch that its owner has checked, and that waits to be appended."""

    batch: Batch
    is_probe: bool
    """It is of a slot that has left: Redis may say that it is a repeat, and never stores it."""
    is_answered: bool
    """Whether the connection still lives over which it came."""


class Partition(NamedTuple):
    """A partition's record in Redis, and beside it what its owner has in memory."""

    life: str = ABSENT
    log: tuple[str, ...] = ()
    sealed_at: int = NOT_SEALED
    """The end of the log when the moving slot left the partition."""
    is_open: bool = False
    """Whether it takes messages: it was there from the beginning, or its predecessor is sealed."""
    due: tuple[int, int] = (0, 0)
    """The next number of each producer id."""
    broker_epoch: int = 0
    late_append: tuple[int, Append] | None = None
    """A call of a broker that has crashed, under its epoch; Redis may get it at any time."""

    has_owner: bool = False
    owner_has_sealed: bool = False
    """What the owner remembers; a claim reads it from the record."""
    chain: tuple[Append, ...] = ()


class Sent(NamedTuple):
    """A message in a producer's window: it has no definite answer yet."""

    message: str
    number: int
    is_in_doubt: bool = False
    """Whether an earlier attempt may have stored it."""
    is_in_flight: bool = False


class Pipeline(NamedTuple):
    """A producer's messages for one partition, and the connection that carries them."""

    producer_id: int = 0
    next_number: int = 0
    window: tuple[Sent, ...] = ()
    is_rewinding: bool = False
    """A batch was refused: all answers are awaited before anything is sent again."""
    requests: tuple[Batch, ...] = ()
    answers: tuple[tuple[int, str], ...] = ()
    copies: tuple[Batch, ...] = ()
    """Requests of connections that were lost; the network may still deliver them."""


class GroupPosition(NamedTuple):
    """Where a group stands in one partition."""

    cursor: int = NO_CURSOR
    sent: int = NO_CURSOR
    """The next offset to send."""
    gate: str = CLOSED
    unfinished: int = NO_CURSOR
    """The first offset that the present member has not finished."""
    opening: str = ""
    """The gate as it was when the owner found that it may be opened; its call is under way."""
    late_ack: int = NO_CURSOR
    """The ack of a member that has lost the partition, still on its way: up to this offset."""


class Reset(NamedTuple):
    """An administrator moves the cursors of the first group to the beginning."""

    remaining: int = 0
    """How many more may begin."""
    partition: int = NOWHERE
    """The next partition whose cursor is moved; from the newest to the oldest."""
    layout: int = 0
    """The layout that its caller has read."""


class Faults(NamedTuple):
    """How many faults of each kind may still happen."""

    lost_connections: int = 0
    crashes: int = 0
    forced_moves: int = 0
    aborts: int = 0


class State(NamedTuple):
    """Everything."""

    layout: int
    """Changes that are committed. Partition `layout` takes the moving slot."""
    is_prepared: bool
    """Whether the next partition is made, for a change that is not committed."""
    partitions: tuple[Partition, ...]
    pipelines: tuple[Pipeline, ...]
    route: int
    """The partition to which the producer sends the moving slot."""
    known_layout: int
    """The layout that the producer has read."""
    published: int
    """How many messages the application has published."""
    confirmed: tuple[str, ...]
    singles: tuple[bool, ...]
    """Which of the single messages are stored."""
    groups: tuple[tuple[GroupPosition, ...], ...]
    is_group_arriving: bool
    """Whether the second group is being made, cursor by cursor."""
    reset: Reset
    faults: Faults

    def with_partition(self, index: int, partition: Partition) -> "State":
        """Return the state with one partition changed."""
        return self._replace(partitions=replaced(self.partitions, index, partition))

    def with_pipeline(self, index: int, pipeline: Pipeline) -> "State":
        """Return the state with the producer's pipeline for one partition changed."""
        return self._replace(pipelines=replaced(self.pipelines, index, pipeline))

    def with_position(self, group: int, index: int, position: GroupPosition) -> "State":
        """Return the state with one group's position in one partition changed."""
        positions = replaced(self.groups[group], index, position)
        return self._replace(groups=replaced(self.groups, group, positions))


def has_cursors(positions: tuple[GroupPosition, ...]) -> bool:
    """Whether a group is known: it has a cursor in some partition."""
    return any(position.cursor != NO_CURSOR for position in positions)
