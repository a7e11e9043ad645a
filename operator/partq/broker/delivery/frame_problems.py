"""What is wrong with a frame of a member, as far as the frame alone tells; None: it is right."""

from collections.abc import Callable
from functools import partial

from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.cursor.redelivery_rules import MAX_NACK_DELAY_MS, NackOrder, RedeliveryRules
from partq.core.dead_letters import check_note
from partq.core.key_states import check_key, check_state
from partq.core.model import MAX_PRIORITY
from partq.core.sessions.interned_sessions import partition_of_keyless
from partq.errors import BadRequestError, UpgradeRequiredError
from partq.excerpts import excerpt
from partq.wire import frames
from partq.wire.batch import MAX_BATCH_COUNT

MAX_EXTENDED = MAX_BATCH_COUNT
"""The most offsets that one `InProgress` names: those of the largest batch."""
RANKED_TYPES = ("Failover", "Exclusive")
"""Types of groups whose members are told whether they are active."""
TYPES_WITH_PRIORITIES = (*RANKED_TYPES, "Shared")
"""Types of groups whose members have priorities."""


def ack_problem(frame: frames.Ack) -> BadRequestError | None:
    """Return what is wrong with an ack."""
    if frame.upto < -1:
        return BadRequestError(f"ack: got upto {frame.upto}, expected 0 or more, or -1 for none")
    if frame.upto < 0 and not frame.ranges:
        return BadRequestError(
            "ack: got neither upto nor ranges, expected one of them, or both: nothing is "
            "acknowledged"
        )
    return state_problem(frame) if frame.state_key is not None else None


def nack_problem(frame: frames.Nack) -> BadRequestError | None:
    """Return what is wrong with a nack."""
    if not frame.ranges:
        return BadRequestError("nack: got no ranges, expected 1 or more: nothing is given back")
    if not -1 <= frame.delay_ms <= MAX_NACK_DELAY_MS:
        return BadRequestError(
            f"nack: delay of {frame.delay_ms} ms; expected 0 to {MAX_NACK_DELAY_MS}, or -1 for the "
            "group's own"
        )
    if frame.makes_dead_letters and frame.reason == frames.UNDECODABLE:
        return BadRequestError(
            f"dead letter: reason {frames.UNDECODABLE!r}, expected one of the application: what "
            "cannot be decoded is given back by a nack with it, and the broker looks at it"
        )
    try:
        check_note("nack", frame.reason, frame.description)
    except BadRequestError as error:
        return error
    return None


def progress_problem(frame: frames.InProgress) -> BadRequestError | None:
    """Return what is wrong with the word that messages are in progress."""
    count = sum(stop - start for start, stop in frame.ranges)
    if not frame.ranges or count > MAX_EXTENDED:
        return BadRequestError(
            f"in progress: got ranges with {count} offsets, expected 1 to {MAX_EXTENDED}: no time "
            "is extended"
        )
    return None


def state_problem(frame: frames.Ack) -> BadRequestError | None:
    """Return what is wrong with an ack that has a state."""
    ranges = frame.ranges
    if frame.upto >= 0 or len(ranges) != 1 or ranges[0][1] - ranges[0][0] != 1:
        return BadRequestError(
            "ack: got a state for more than one message, expected one offset in ranges and no "
            "upto; nothing was changed"
        )
    return _problem_of(partial(check_state, "ack", frame.state_key, frame.state))


def read_problem(frame: frames.ReadState) -> BadRequestError | None:
    """Return what is wrong with the question for a state."""
    return _problem_of(partial(check_key, "state", frame.key))


def session_problem(
    frame: frames.Ack | frames.Nack | frames.InProgress | frames.ReadState,
    consumed: ConsumedPartition,
    rules: RedeliveryRules,
) -> BadRequestError | None:
    """Return what is wrong with a state that comes or is asked for under the lock of a session."""
    if consumed.session is None or not isinstance(frame, frames.Ack | frames.ReadState):
        return None
    key, state = (
        (frame.state_key, frame.state) if isinstance(frame, frames.Ack) else (frame.key, None)
    )
    if key is None:
        return None
    if key != consumed.session or partition_of_keyless(key) is not None:
        return BadRequestError(
            f"state: got the key {excerpt(key)!r} under the lock of session "
            f"{excerpt(consumed.session)!r}; expected the session itself, of messages with a key; "
            "nothing was changed"
        )
    if state is not None and len(state) > rules.max_state_bytes:
        return BadRequestError(
            f"ack: got a state of {len(state):,} bytes, expected at most "
            f"{rules.max_state_bytes:,}, as `session.maxStateBytes` of the group says; nothing was "
            "changed: keep what is large elsewhere, and its name in the state"
        )
    return None


def _problem_of(check: Callable[[], None]) -> BadRequestError | None:
    try:
        check()
    except BadRequestError as error:
        return error
    return None


def check_priority(priority: int, group: str, group_type: str) -> None:
    """See that a group's type goes by priorities, if a member has one.

    Raises:
        BadRequestError: it does not, or it is out of range.
    """
    if not 0 <= priority <= MAX_PRIORITY:
        raise BadRequestError(
            f"bind: priority {excerpt(priority)}; expected 0 (the highest) to {MAX_PRIORITY}"
        )
    # A type that is not known yet is judged by nobody: the coordinator reads what it needs.
    if priority and group_type and group_type not in TYPES_WITH_PRIORITIES:
        raise BadRequestError(
            f"bind: priority {priority} in group {group}, whose type is {group_type}; members "
            f"have priorities in the types {', '.join(TYPES_WITH_PRIORITIES)}: leave it out, or "
            "change the type"
        )


def check_lanes(order: NackOrder, group: str, member: str, *, takes_lanes: bool) -> None:
    """See that the client of a group of order Key knows what it is sent there.

    Raises:
        UpgradeRequiredError: it does not.
    """
    if not takes_lanes and order is NackOrder.KEY:
        raise UpgradeRequiredError(
            f"bind: member {excerpt(member)} of group {group}, whose nack.order is Key; got a "
            "client that knows only the orders Ordered and Free: update its partq library, or "
            "change the order"
        )


def check_sessions(lock_s: float, group: str, member: str, *, takes_sessions: bool) -> None:
    """See that the client of a group of type Session knows that it asks for sessions there.

    Raises:
        UpgradeRequiredError: it does not.
    """
    if not takes_sessions and lock_s:
        raise UpgradeRequiredError(
            f"bind: member {excerpt(member)} of group {group}, whose type is Session; got a client "
            "that is assigned partitions, and there members accept sessions: use SessionConsumer, "
            "and update its partq library if it has none"
        )


def check_turns(
    group_type: str, group: str, member: str, *, takes_turns: bool, takes_sessions: bool
) -> None:
    """See that the client of a group of type Shared knows that others have messages, too.

    Raises:
        BadRequestError: it asks for sessions.
        UpgradeRequiredError: it does not know the type.
    """
    if not takes_turns and takes_sessions and group_type == "Shared":
        raise BadRequestError(
            f"bind: member {excerpt(member)} of group {group}, whose type is Shared; got a client "
            "that accepts sessions, which only groups of the type Session have: use a Consumer, "
            "or a group of that type"
        )
    if not takes_turns and group_type == "Shared":
        raise UpgradeRequiredError(
            f"bind: member {excerpt(member)} of group {group}, whose type is Shared; got a client "
            "that does not know it: update its partq library, or use a group of another type"
        )
