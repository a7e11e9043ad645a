"""WebSocket frames: a length, a MessagePack header, and for batches their bytes.

A frame is a little-endian u32 with the header's length, the header, and the payload to the
frame's end. A header is an array whose first element names the kind; elements that a later version
adds at the end are ignored. Partitions are named by generation and index.
"""

import struct
from typing import Final

import msgspec

from partq.errors import BadFrameError
from partq.wire.calls import shape_errors
from partq.wire.frame import PROTOCOL_VERSION as PROTOCOL_VERSION
from partq.wire.frame import Frame as Frame
from partq.wire.frame import Range as Range
from partq.wire.key_frames import AskBack as AskBack
from partq.wire.key_frames import Lanes as Lanes
from partq.wire.key_frames import ReadState as ReadState
from partq.wire.key_frames import Returned as Returned
from partq.wire.key_frames import State as State
from partq.wire.key_frames import StateRefused as StateRefused
from partq.wire.publish_frames import ProducerHello as ProducerHello
from partq.wire.publish_frames import ProducerWelcome as ProducerWelcome
from partq.wire.publish_frames import Publish as Publish
from partq.wire.publish_frames import Published as Published
from partq.wire.publish_frames import PublishRefused as PublishRefused
from partq.wire.sessions.session_frames import AcceptSession as AcceptSession
from partq.wire.sessions.session_frames import CancelAccept as CancelAccept
from partq.wire.sessions.session_frames import CloseSession as CloseSession
from partq.wire.sessions.session_frames import RenewSession as RenewSession
from partq.wire.sessions.session_frames import SessionAccepted as SessionAccepted
from partq.wire.sessions.session_frames import SessionClosed as SessionClosed
from partq.wire.sessions.session_frames import SessionLost as SessionLost
from partq.wire.sessions.session_frames import SessionRefused as SessionRefused
from partq.wire.sessions.session_frames import SessionRenewed as SessionRenewed

MAX_HEADER_BYTES: Final = 1024 * 1024
"""The most bytes of a frame's header."""

_LENGTH = struct.Struct("<I")

MAX_CREDIT: Final = 1_000_000
"""Messages that a client may have room for, as a flow begins."""
MAX_CREDIT_BYTES: Final = 2**40
"""Bytes of batches that a client may have room for."""
EXCLUSIVE: Final = 0
"""A partition is in order: what is given back is redelivered before all behind it, or alone."""
SHARED: Final = 1
"""Nothing is in order, and other members have messages, too: what is given back waits alone."""
KEYED: Final = 2
"""Each key is in order: what is given back blocks its slot, and the others continue."""
UNDECODABLE: Final = "undecodable"
"""The reason of a nack for messages that the client could not decode."""


# ---- on every connection ------------------------------------------------------------------------


class Ping(Frame, tag=1):
    """Ask for a sign of life; sent by clients each second on every connection."""

    nonce: int


class Pong(Frame, tag=2):
    """The broker's lease was renewed by a renewal that began after the ping came."""

    nonce: int


class Moved(Frame, tag=3):
    """Another broker owns the partition, or none yet (then `broker` and `url` are empty)."""

    generation: int
    partition: int
    broker: str
    url: str


class Failed(Frame, tag=4):
    """The connection ends with this error."""

    code: str
    message: str
    retry_after_ms: int = 0


# ---- consuming ----------------------------------------------------------------------------------


class Bind(Frame, tag=20):
    """First frame of a flow: which member, in which life of its process."""

    member: str
    incarnation: str
    credit: int
    """Messages that the client has room for at first."""
    held: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The (generation, partition) pairs that the member held before. Brokers do not read it: the
    recorded member decides what a flow gets."""
    version: int = PROTOCOL_VERSION
    credit_bytes: int = 0
    """Bytes of batches that it has room for; one batch always comes. 0: no bound in bytes."""
    priority: int = 0
    """In groups of the types Failover, Exclusive and Shared 0 (the highest) to 9; in others 0."""
    wants_standing: bool = False
    """The client knows `Standing`, and wants it."""
    takes_lanes: bool = False
    """The client knows `Assigned.mode`, `Deliver.mask` and `AskBack`."""
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The slots that it wants where `hashRange` is `Sticky`, the second of each pair excluded."""
    takes_sessions: bool = False
    """The client knows groups of type Session: it accepts sessions, and is assigned nothing."""
    takes_turns: bool = False
    """The client knows assignments that are `SHARED`."""


class Bound(Frame, tag=21):
    """The member has a flow at this broker; what it holds here follows as `Assigned`."""

    broker: str
    flow: int
    lease_ms: int
    takes_begun: bool = False
    """The broker wants to know what the application has begun: `Begun`."""
    counts_bytes: bool = False
    """The broker follows the credit in bytes."""
    takes_seeks: bool = False
    """The broker knows `Seek`."""
    takes_dead_letters: bool = False
    """The broker takes reasons of the application, and `Nack.makes_dead_letters`."""
    takes_withholds: bool = False
    """The broker knows `Withhold`."""
    takes_in_progress: bool = False
    """The broker knows `InProgress`."""
    takes_lanes: bool = False
    """The broker knows groups of order Key."""
    takes_states: bool = False
    """The broker knows `ReadState`, and states that come with acks."""
    takes_sessions: bool = False
    """The group has the type Session: the broker knows `AcceptSession`."""
    features: list[str] = msgspec.field(default_factory=list)
    """What the broker can do that others may not (`wire/frame.py`)."""


UNBOUND: Final = Bound("", 0, 0)
"""What a client takes for its broker's words before they came."""


class Assigned(Frame, tag=22):
    """The partition's messages from `cursor` on go to this flow under a new token."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    cursor: int
    mode: int = EXCLUSIVE
    """What is blocked by a message that is given back: `EXCLUSIVE`, `SHARED` or `KEYED`."""


class Paused(Frame, tag=23):
    """Nothing new comes; finish what has begun and `Release` the rest."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int


class Resumed(Frame, tag=24):
    """A pause was cancelled or lapsed; what was released is redelivered."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int


class Revoked(Frame, tag=25):
    """The flow's token for the partition has ended; acks under it are refused."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    cause: int


class Deliver(Frame, tag=26):
    """Messages of one stored batch (the payload).

    The batch's first message has the offset `first_offset`; the window is `start` to `stop`
    (offsets, stop excluded), without the offsets in `skip`, which are acknowledged.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    """Delivery number: grows when a token's messages are sent again."""
    append_broker_epoch: int
    at_ms: int
    """When the batch was stored, in Redis's time."""
    first_offset: int
    start: int
    stop: int
    cause: int = 0
    """Why this is not a first delivery, as in `Cause`; 0: it is one."""
    skip: list[Range] = msgspec.field(default_factory=list)
    redeliveries: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(offset, count) where the count is not 0."""
    kept_bytes: int = 0
    """Above 0: there is no payload, as the client has kept it (`Nack.keeps`); its size."""
    producer: str = ""
    """Id of the producer; empty: the batch has no numbers, or they were not kept."""
    number: int = -1
    """The producer's number of the batch's first message; -1: as above."""
    mask: bytes = b""
    """Bit i % 8 of byte i // 8, the lowest first: the message `start + i` is delivered. Only under
    an assignment that is `KEYED`; empty: all of the window are."""
    causes: bytes = b""
    """A `Cause` for each message of the mask, where they differ; empty: all have `cause`."""


class Credit(Frame, tag=27):
    """The client has room for this many messages more, and for this many bytes of batches."""

    messages: int
    size_bytes: int = 0


class Ack(Frame, tag=28):
    """Messages are done with: all below `upto` (unless -1), and those in `ranges`."""

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    upto: int = -1
    ranges: list[Range] = msgspec.field(default_factory=list)
    state_key: str | None = None
    """The key of the message, whose state changes with the ack: then it is of one message alone.
    None: no state changes."""
    state: bytes | None = None
    """The new state of that key; None: it has none any more."""


class AckConfirmed(Frame, tag=29):
    """The ack is stored."""

    request: int


class AckRefused(Frame, tag=30):
    """The ack counts for nothing; `code` names the error."""

    request: int
    code: str
    message: str


class Release(Frame, tag=31):
    """The client gives back all messages from offset `start` on: none of them was begun."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    start: int


class Leave(Frame, tag=32):
    """The member's process is ending: hand its partitions over, it continues until then."""


class Nack(Frame, tag=33):
    """The application could not process the messages in `ranges`: they are redelivered.

    Answered as an ack is. All from the lowest of them on is redelivered unless the group has free
    order; then a `Rewound` comes before the answer.
    """

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    ranges: list[Range]
    delay_ms: int = -1
    """How long they wait; -1: as the group's rules say."""
    reason: str = ""
    """`undecodable`: the client could not read them; any other: a code of the application, only to
    a broker that takes dead letters."""
    begun: int = -1
    """Nothing from this offset on has begun, but for those in `ranges`; -1: that is not known."""
    keeps: bool = False
    """The client keeps the batches of what came and has not begun: it needs no payload of them."""
    makes_dead_letters: bool = False
    """They become dead letters at once, and nothing is redelivered."""
    description: str = ""
    """A text of the application, which the dead letters tell."""


class Rewound(Frame, tag=34):
    """All from offset `start` on is redelivered, under the delivery number `delivery`.

    The client drops what the application has not begun of it, and acknowledges one by one what the
    application is processing.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    start: int
    cause: int


class Begun(Frame, tag=35):
    """The application has begun the messages in `ranges`: the time for their acks runs."""

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    ranges: list[Range]


class Standing(Frame, tag=36):
    """Whether the flow's member has the partition, or stands by for it.

    Sent in groups of the types Failover and Exclusive, of each partition of the broker when the
    flow binds or the group gets such a type, and at each change, until the flow ends.
    """

    generation: int
    partition: int
    is_active: bool


class Seek(Frame, tag=37):
    """Move the group's cursor in a partition that the flow has: one of `to`, `at_ms`, `offset`.

    What was delivered under the token is void: `Revoked` and `Assigned` come before the answer.
    """

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    to: str = ""
    """`earliest` or `latest`; empty: elsewhere."""
    at_ms: int = -1
    """To the first message that was stored then or later; -1: elsewhere."""
    offset: int = -1
    """-1: elsewhere."""
    append_broker_epoch: int = 0
    """Of the message below `offset`, as the client knows it; 0: it knows none."""


class Sought(Frame, tag=38):
    """The cursor was moved to `cursor`: where it was asked to be, or the nearest in the log."""

    request: int
    cursor: int


class SeekRefused(Frame, tag=39):
    """The answer to a seek that failed; `code` names the error."""

    request: int
    code: str
    message: str
    retry_after_ms: int = 0


class Withhold(Frame, tag=40):
    """Deliver nothing of a partition, as its application has paused it; or again, as it resumes.

    It holds for the token. The client releases what came and has not begun.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    is_on: bool


class InProgress(Frame, tag=41):
    """The application still works on the messages in `ranges`: their ack timeout starts again.

    Answered as an ack is.
    """

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    delivery: int
    ranges: list[Range]


AnyFrame = (
    Ping
    | Pong
    | Moved
    | Failed
    | ProducerHello
    | ProducerWelcome
    | Publish
    | Published
    | PublishRefused
    | Bind
    | Bound
    | Assigned
    | Paused
    | Resumed
    | Revoked
    | Deliver
    | Credit
    | Ack
    | AckConfirmed
    | AckRefused
    | Release
    | Leave
    | Nack
    | Rewound
    | Begun
    | Standing
    | Seek
    | Sought
    | SeekRefused
    | Withhold
    | InProgress
    | AskBack
    | Returned
    | Lanes
    | ReadState
    | State
    | StateRefused
    | AcceptSession
    | SessionAccepted
    | SessionRefused
    | RenewSession
    | SessionRenewed
    | CloseSession
    | SessionClosed
    | SessionLost
    | CancelAccept
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyFrame).decode


def encode(frame: Frame, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    header = _encode(frame)
    return b"".join((_LENGTH.pack(len(header)), header, payload))


def decode(data: bytes) -> tuple[AnyFrame, bytes]:
    """Return a frame and its payload.

    Raises:
        BadFrameError: cut off, not MessagePack, an unknown kind, or wrong elements.
    """
    if len(data) < _LENGTH.size:
        raise BadFrameError(f"frame: got {len(data)} bytes, expected at least {_LENGTH.size}")
    (size,) = _LENGTH.unpack_from(data)
    end = _LENGTH.size + size
    if size > MAX_HEADER_BYTES or end > len(data):
        raise BadFrameError(f"frame: a header of {size} bytes does not fit {len(data)} bytes")
    try:
        frame: AnyFrame = _decode(data[_LENGTH.size : end])
    except msgspec.ValidationError as error:
        raise BadFrameError(f"frame: {shape_errors.describe(error)}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrameError(f"frame: {error}") from error
    return frame, data[end:]
