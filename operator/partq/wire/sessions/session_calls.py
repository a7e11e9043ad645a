"""Sessions over HTTP: what is asked, and what is answered."""

from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

MAX_ACCEPT_WAIT_MS = 60_000
"""The longest that an accept waits at a broker; a longer wait is several calls."""
MAX_SESSION_BYTES = 1024
"""Of the name of a session in a call: a key has no more."""
SESSIONS_OF_A_PAGE = 500

SessionName = Annotated[str, msgspec.Meta(max_length=MAX_SESSION_BYTES)]
"""May be empty, as a key may."""
LockNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Member = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class AcceptSessionBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which session a member is to lock: one by its name, or the next one that nobody has."""

    member: _Member
    incarnation: _Member
    session: SessionName | None = None
    """null: the one whose first open message is the oldest."""
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_ACCEPT_WAIT_MS)] = 0
    lock: LockNumber = 0
    """The number of the lock that the member had and continues; 0: it had none."""


class AcceptedSession(msgspec.Struct):
    """The session that a member has from now on; or none."""

    session: str | None
    """null: there was none that nobody has, within `wait_ms`."""
    partition: str | UnsetType = UNSET
    """As `1.3`: where its messages are, and where its acks go."""
    lock: int | UnsetType = UNSET
    """What every call about it names."""
    locked_ms: int | UnsetType = UNSET
    """The lock ends so long after the call was made, unless it is renewed."""


class SessionLockBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Whose lock of which session is to be renewed, or to end."""

    member: _Member
    incarnation: _Member
    session: SessionName
    lock: LockNumber


class RenewedSession(msgspec.Struct):
    """The lock of a session, as it is renewed."""

    locked_ms: int
    """It ends so long after the call was made, unless it is renewed."""


class ClosedSession(msgspec.Struct):
    """Whether the lock of a session has ended by the call."""

    was_locked: bool


class ReleaseSessionBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which session is to be taken from the member that has it."""

    session: SessionName


class SessionsQuery(msgspec.Struct):
    """Which sessions of a group are asked for."""

    partition: Annotated[str, msgspec.Meta(max_length=40)]
    """As `1.3`."""
    after: Annotated[str, msgspec.Meta(max_length=MAX_SESSION_BYTES)] = ""
    """What the last answer calls `next`; empty: from the beginning."""
    is_locked: bool = False
    """Only those that a member has."""


class SessionRow(msgspec.Struct, omit_defaults=True):
    """A session that has open messages, a lock, or both."""

    session: str
    open_messages: int = 0
    """As far as they were read: those within `ack.maxSpan` above the cursor."""
    offset: int = -1
    """The lowest of them; -1: none is known."""
    holder: str | None = None
    """The member that has the lock; null: nobody has."""
    lock: int = 0
    locked_ms: int = 0
    """How long the lock still lasts, unless it is renewed."""
    is_connected: bool = False
    """Whether the holder has a flow at the broker."""
    state_bytes: int = -1
    """Of its state; -1: it has none."""
    parked_ms: int = 0
    """How long its messages still wait after a nack or an ack timeout."""


class SessionsPage(msgspec.Struct):
    """Some of the sessions of a group in a partition, by rising names."""

    sessions: list[SessionRow]
    next: str | UnsetType = UNSET
    """What to ask for `after`; left out: these were the last."""


class SessionStateQuery(msgspec.Struct):
    """Of which session the state is asked for, or left."""

    session: SessionName


class SessionState(msgspec.Struct):
    """The state of a session."""

    state: str | None
    """In base64; null: it has none."""


class SessionStateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The new state of a session, and the lock under which it is left."""

    member: _Member
    incarnation: _Member
    session: SessionName
    lock: LockNumber
    state: str | None
    """In base64; null: it has none any more."""
