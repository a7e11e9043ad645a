"""One partition of one group passes from a member to another: Vacant, Owned, Draining, Committing.

A part of a partition is not drained, as its broker does that for each key by itself: it is Owned,
Committing, and Owned again.

Only the broker's answer, or its record, moves ownership; a timer merely asks for a forced commit.
`pending(state)` lists the calls that a state asks for: the shell makes them, and makes them again
after a crash or a lost answer, so each is safe to repeat. An attempt is used once: whatever does
not fit it any more ends it, and the next plan starts another. Instants are those of the shell's own
steady clock: a jump of the store's clock during a drain changes nothing.
"""

from dataclasses import dataclass, replace

from partq.core.group.moves import Forced
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one handoff. All that a call names is fixed when the attempt is drawn."""

    number: int
    """Drawn from the store, never used twice."""
    broker: BrokerId
    broker_epoch: BrokerEpoch
    source: MemberId | None
    epoch: Epoch
    """The source's."""
    target: MemberId | None
    """None: the partition becomes vacant."""
    keys_ms: int | None = None
    """Of a part: how long the source may keep the keys of which it has messages. None: it is a
    whole partition."""


# ---- states -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vacant:
    """No member is recorded."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Owned:
    """The member is recorded and consumes whenever it is bound."""

    member: MemberId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Draining:
    """Nothing new goes to the source; it finishes what it is processing."""

    attempt: Attempt
    drain_ms: int
    drain_by_ms: int
    """When waiting ends; it only comes nearer."""
    is_paused: bool = False
    """The broker has confirmed the pause."""


@dataclass(frozen=True, slots=True)
class Committing:
    """The broker was asked to record the target."""

    attempt: Attempt
    forced: Forced | None


Handoff = Vacant | Owned | Draining | Committing


# ---- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Targeted:
    """The plan gives the partition to another member."""

    attempt: Attempt
    drain_ms: int
    drain_by_ms: int
    """By when even an unanswered pause has been waited for."""
    forced: Forced | None = None


@dataclass(frozen=True, slots=True)
class SourcePaused:
    """The broker pauses the partition under this attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Nothing is in flight at the source, and its acks are stored."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source has lost its flow: there is nobody to wait for."""

    forced: Forced


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The target cannot take over any more."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The broker has recorded the target."""

    attempt: int
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Refused:
    """The attempt does not fit the record any more, or its pause has lapsed."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What the broker that owns the partition has recorded."""

    broker_epoch: BrokerEpoch
    member: MemberId | None
    epoch: Epoch
    closed_attempt: int


Event = (
    Targeted | SourcePaused | Drained | SourceLost | TargetLost | Tick | Committed | Refused | Seen
)


# ---- effects ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop delivering, or renew that."""

    attempt: Attempt
    drain_ms: int


@dataclass(frozen=True, slots=True)
class AwaitDrain:
    """Say when the source has nothing in flight."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Commit:
    """Record the target, in one step with the acks accepted so far."""

    attempt: Attempt
    forced: Forced | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Let the source continue."""

    attempt: Attempt


Effect = Pause | AwaitDrain | Commit | Cancel


def step(state: Handoff, event: Event, now_ms: int) -> tuple[Handoff, tuple[Effect, ...]]:
    """Return the state after `event` and the effects it calls for.

    `now_ms`: the shell's steady clock in milliseconds.
    """
    after = _transition(state, event, now_ms)
    if after == state:
        return after, ()
    if isinstance(state, Draining) and isinstance(event, TargetLost):
        return after, (Cancel(state.attempt),)
    return after, pending(after)


def pending(state: Handoff) -> tuple[Effect, ...]:
    """Return what a state asks of the broker until something changes it."""
    match state:
        case Draining(attempt, drain_ms, is_paused=False):
            return (Pause(attempt, drain_ms),)
        case Draining(attempt, drain_ms):
            return Pause(attempt, drain_ms), AwaitDrain(attempt)
        case Committing(attempt, forced):
            return (Commit(attempt, forced),)
        case _:
            return ()


def resumed(attempt: Attempt, *, drain_ms: int, left_ms: int, now_ms: int) -> Draining:
    """Return the state of a recorded attempt whose pause the broker still holds.

    Args:
        attempt: as it was recorded.
        drain_ms: the configured length; what remains is never above it.
        left_ms: what remains by the recorded deadline and the store's clock; below 0: it is over.
        now_ms: the shell's steady clock, on which it is counted from here on.
    """
    return Draining(attempt, drain_ms, now_ms + min(left_ms, drain_ms))


def is_over(state: Handoff) -> bool:
    """Whether no attempt is under way."""
    return isinstance(state, Vacant | Owned)


def _transition(state: Handoff, event: Event, now_ms: int) -> Handoff:
    match state, event:
        case ((Vacant() | Owned()), Targeted(attempt, forced=None)) if attempt.source is not None:
            if attempt.keys_ms is not None:
                return Committing(attempt, None)
            return Draining(attempt, event.drain_ms, event.drain_by_ms)
        case ((Vacant() | Owned()), Targeted(attempt, forced=forced)):
            return Committing(attempt, forced or Forced.UNASSIGNED)

        case Draining(attempt, drain_ms, drain_by_ms), SourcePaused(number) if (
            number == attempt.number
        ):
            # The broker counts the drain from its first pause, which was before this answer.
            nearer_ms = drain_by_ms if state.is_paused else min(drain_by_ms, now_ms + drain_ms)
            return replace(state, is_paused=True, drain_by_ms=nearer_ms)
        case Draining(attempt), Drained(number) if number == attempt.number:
            return Committing(attempt, None)
        case Draining(attempt, drain_by_ms=drain_by_ms), Tick() if now_ms >= drain_by_ms:
            return Committing(attempt, Forced.DRAIN_TIMEOUT)
        case Draining(attempt), SourceLost(forced):
            return Committing(attempt, forced)
        case Draining(attempt), TargetLost():
            return _owner(attempt.source, attempt.epoch)

        case Committing(attempt), Committed(number, epoch) if number == attempt.number:
            return _owner(attempt.target, epoch)
        case ((Draining(attempt) | Committing(attempt)), Refused(number)) if (
            number == attempt.number
        ):
            return _owner(attempt.source, attempt.epoch)  # plan again, under a new attempt
        case ((Draining(attempt) | Committing(attempt)), Seen()):
            return _seen(state, attempt, event)
    return state  # early, late or repeated: normal, and changes nothing


def _seen(state: Handoff, attempt: Attempt, record: Seen) -> Handoff:
    """Follow the record, which wins over any answer that was lost."""
    if record.broker_epoch < attempt.broker_epoch or record.epoch < attempt.epoch:
        return state  # older than the attempt
    if record.closed_attempt >= attempt.number and record.member == attempt.target:
        return _owner(attempt.target, record.epoch)
    is_part = attempt.keys_ms is not None  # whose epoch the other parts raise, too
    is_void = (
        record.broker_epoch > attempt.broker_epoch
        or (record.epoch > attempt.epoch and not is_part)
        or record.member != attempt.source
        or record.closed_attempt >= attempt.number
    )
    if not is_void:
        return state
    return _owner(record.member, record.epoch)


def _owner(member: MemberId | None, epoch: Epoch) -> Handoff:
    return Vacant(epoch) if member is None else Owned(member, epoch)
