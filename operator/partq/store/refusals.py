"""What writes are refused by, and the errors that the negative answers of scripts mean."""

from typing import NamedTuple, TypedDict

from partq.core.model import BrokerEpoch, PartitionId
from partq.errors import (
    ConflictError,
    FencedError,
    KeptStatesError,
    PartitionInUseError,
    StaleGenerationError,
    SupersededError,
    UnknownGroupError,
    UnknownPartitionError,
)
from partq.excerpts import excerpt

# The answers of scripts that most of them share; their headers name them. What -1 means, the
# module of the call says.
FENCED = 0
"""The broker epoch of the call is over, or the log does not hold what the call speaks of."""
UNKNOWN = -2
"""There is no such partition, or it has no such group."""
SUPERSEDED = -3
"""A later write is stored."""

# Of `open_gate` and `carry_states`.
GATE_DIFFERS = -1
"""A reset holds the gate that the caller has not seen."""

# Of `reset_cursor` alone.
EPOCH_DIFFERS = -1
"""Another epoch is recorded."""
SEALED_LATER = -4
"""A change has taken slots away that the caller has not read."""
RESET_OVER = -6
"""The reset of all partitions is over: a later one came, or `end_reset`."""
STATES_MOVED = -7
"""There are states of keys, and the call wants none."""

# Of `flush_cursor` alone.
STATES_LEFT = -8
"""A change has taken a slot away of which there is a state without an ack."""


class LeftSlot(NamedTuple):
    """The answer of a flush that was refused: states of the slot may be in another partition."""

    slot: int


class BookWrite(TypedDict):
    """By what the store tells a write of a group's book from those of others, and from later ones.

    The owner numbers every write of a book under its broker epoch, each try on its own. A call that
    was given up may still be carried out: it writes nothing once one with a higher number has.
    """

    broker_epoch: BrokerEpoch
    number: int
    born: int
    """Of the group's record as the owner read it: a group that was removed and created again is
    another one."""


def fenced(partition: PartitionId, broker_epoch: BrokerEpoch) -> FencedError:
    """Return the error of a write by a broker that owns the partition no more."""
    return FencedError(
        f"partition {partition}: broker epoch {broker_epoch} is not the recorded one; "
        "stop its work and look who owns it"
    )


def unknown_partition(partition: PartitionId) -> UnknownPartitionError:
    """Return the error of a partition that was never created, or is deleted."""
    return UnknownPartitionError(
        f"partition {partition}: the store has no record of it; read the layout again"
    )


def unknown_group(partition: PartitionId, group: str) -> UnknownGroupError:
    """Return the error of a group that has no cursor in a partition."""
    return UnknownGroupError(
        f"partition {partition}: it has no cursor of group {excerpt(group)}: the group was "
        "removed, or is not there yet; `partq groups` shows those of the queue"
    )


def in_use(partition: PartitionId, group: str, holder: str) -> PartitionInUseError:
    """Return the error of a member that registers what another one holds."""
    return PartitionInUseError(
        f"partition {partition} of {group}: member {excerpt(holder)} holds it; wait until that "
        "member unregisters it, or is lost for the rebalance delay"
    )


def superseded(partition: PartitionId, group: str) -> SupersededError:
    """Return the error of a write of a group's book that came after a later one."""
    return SupersededError(
        f"partition {partition}, group {group}: a later write is stored; nothing was written: "
        "write again what holds now",
        is_outcome_known=True,
    )


def check_book_write(answer: object, partition: PartitionId, group: str, write: BookWrite) -> None:
    """Check the answer of a script that writes a group's book.

    Raises:
        FencedError, SupersededError, UnknownGroupError: it refused; nothing is written.
    """
    if answer == FENCED:
        raise fenced(partition, write["broker_epoch"])
    if answer == UNKNOWN:
        raise unknown_group(partition, group)
    if answer == SUPERSEDED:
        raise superseded(partition, group)


def flushed_states(answer: object) -> int | LeftSlot | None:
    """Return how many states there are after a flush, or why it was refused; None: not told."""
    if not isinstance(answer, list):
        return None
    return LeftSlot(int(answer[1])) if answer[0] == STATES_LEFT else int(answer[0])


def kept_states(partition: PartitionId, group: str) -> KeptStatesError:
    """Return the error of a reset that parts states of a partition from older messages."""
    return KeptStatesError(
        f"partition {partition}, group {group}: it has states of keys whose older messages lie in "
        "the partitions before it, where they would be processed again without these states; "
        "nothing was moved: have the reset of all partitions clear the states, too, or wait until "
        "those partitions are gone"
    )


def check_gate(
    answer: object, partition: PartitionId, group: str, *, broker_epoch: BrokerEpoch, gate: str
) -> None:
    """Check the answer of a script that writes behind a closed gate, or opens it.

    `gate`: as the caller has read it.

    Raises:
        FencedError, ConflictError, UnknownGroupError: it refused; nothing is written.
    """
    if answer == FENCED:
        raise fenced(partition, broker_epoch)
    if answer == UNKNOWN:
        raise unknown_group(partition, group)
    if answer == GATE_DIFFERS:
        raise ConflictError(
            f"partition {partition}, group {group}: a reset holds its gate, which was {gate!r} "
            "when it was read; read the records again"
        )


def check_reset(
    answer: object, partition: PartitionId, group: str, *, epoch: int, hold: str
) -> None:
    """Check what only the script `reset_cursor` answers.

    Raises:
        ConflictError, StaleGenerationError: it refused; nothing is written.
    """
    at = f"partition {partition}, group {group}"
    if answer in (SEALED_LATER, RESET_OVER):
        why = (
            "slots have left by a later change"
            if answer == SEALED_LATER
            else "it was ended, as it took too long or another one began"
        )
        raise StaleGenerationError(
            f"{at}: got the reset {hold}, but {why}; nothing was moved: begin again with all "
            "partitions"
        )
    if answer == EPOCH_DIFFERS:
        raise ConflictError(
            f"{at}: epoch {epoch} is not the recorded one; look again, and repeat the reset"
        )
    if answer == STATES_MOVED:
        raise kept_states(partition, group)
