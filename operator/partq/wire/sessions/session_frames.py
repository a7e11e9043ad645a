"""Frames about sessions, in a group of type Session: a lock is asked for, renewed, and ends."""

import msgspec

from partq.wire.frame import Frame, Range


class AcceptSession(Frame, tag=50):
    """Lock a session for this flow: one by its name, or the next one that nobody has.

    Answered by `SessionAccepted` or `SessionRefused`. Its messages follow as `Deliver`, under the
    epoch of the answer, and only those.
    """

    request: int
    session: str | None = None
    """None: the one whose first open message is the oldest."""
    wait_ms: int = 0
    """How long to wait for one, or for this one; 0: not at all."""
    lock: int = 0
    """With a name: the number of the lock that the member had and continues; 0: it had none."""


class SessionAccepted(Frame, tag=51):
    """The flow has the session: its messages, acks and states are under this token."""

    request: int
    session: str
    lock: int
    """Its number: a later lock of the session has a higher one."""
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    """No other session of the partition has it, under this broker epoch."""
    locked_ms: int
    """The lock ends so long after the request was sent, unless it is renewed."""


class SessionRefused(Frame, tag=52):
    """The answer to an accept, a renewal or a close that failed; `code` names the error."""

    request: int
    code: str
    message: str
    retry_after_ms: int = 0


class RenewSession(Frame, tag=53):
    """Have the lock last as long as a new one, from now on."""

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int


class SessionRenewed(Frame, tag=54):
    """The lock is renewed."""

    request: int
    locked_ms: int
    """It ends so long after the renewal was sent, unless it is renewed."""


class CloseSession(Frame, tag=55):
    """The client is done with the session, and drops what comes of it from now on.

    What it has not acknowledged is open again, without a count, but for `begun`.
    """

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    begun: list[Range] = msgspec.field(default_factory=list)
    """What the application still works on: the lock ends once it is acknowledged or given back."""


class SessionClosed(Frame, tag=56):
    """The session is unlocked: others may have it."""

    request: int


class SessionLost(Frame, tag=57):
    """The lock has ended otherwise than by a close: acks under its epoch are refused."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    session: str
    cause: int
    """Why what was delivered is redelivered, as in `Cause`."""


class CancelAccept(Frame, tag=58):
    """An accept that waits need not be answered with a session any more.

    It is answered all the same, mostly by `SessionRefused`. The client closes a session that comes
    nevertheless, with nothing begun.
    """

    request: int
