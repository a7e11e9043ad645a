"""What a group has done with offsets of one history."""

from typing import Final, NamedTuple

from partq.pipeline.audit.judge.lines import RecordLine

NO_CAUSE: Final = ("", "none")
IN_PLACE: Final = ("nack", "ack_timeout")
"""Causes of what may be sent out of its turn, where the group asks for no order."""
LOST: Final = "lost"
"""Flag of a dead letter whose message the log did not hold."""
LATER: Final = ("sent", LOST)
"""Flags of a dead letter's second record: what became of it."""

OPEN, ACKED, DONE, BEFORE = range(4)
"""Of a piece: not done with; acknowledged; dead-lettered, expired or passed over; done when the
record began."""

FlowName = tuple[str, str, int]
"""Member, incarnation and number of a flow."""


class OffsetHistory(NamedTuple):
    """Offsets of one history. Equal neighbours become one, so this has no more than is needed."""

    at: int
    """Line of the last delivery; -1: none. Once done with: of the owner's last change before it."""
    at_ms: int
    """Of the last delivery, of what is not done with."""
    epoch: int
    """That it was delivered under."""
    is_held: bool
    """A member has it: delivered, and since then neither acknowledged nor taken back."""
    is_released: bool
    """Its member gave it back without having begun it."""
    is_taken_back: bool
    """It was taken back from its member since it was delivered."""
    done: int
    era: int
    """Of an ack: how often the cursor had been moved; -1 of what is not acknowledged."""
    flow: FlowName | None = None
    """To which it was delivered, where several members share the partition."""


UNTOUCHED: Final = OffsetHistory(-1, 0, -1, False, False, False, OPEN, -1)
PASSED: Final = UNTOUCHED._replace(done=DONE)
KNOWN_BEFORE: Final = UNTOUCHED._replace(done=BEFORE)
FREED: Final = UNTOUCHED._replace(at=0, done=DONE)
"""Done with, and freed in the log: it is not redelivered."""


class RecordedEvent(NamedTuple):
    """A line that redeliveries may go back to."""

    at: int
    kind: str
    sequence: int
    at_ms: int
    attempt: int
    broker: str
    member: str
    target: str


def flow_of(line: RecordLine) -> FlowName:
    """Return the flow that a line is of."""
    return line.member, line.incarnation, line.flow
