"""What all frames of the WebSockets have in common, and the names of what brokers can do."""

from typing import Final

import msgspec

PROTOCOL_VERSION: Final = 1

SCHEDULED: Final = "scheduled"
"""Messages that are stored at a later time, and their cancellation."""
MESSAGE_IDS: Final = "message-ids"
"""Ids of messages, by which repeats are dropped."""
ATOMIC: Final = "atomic"
"""`POST .../messages?atomic=true`."""
FEATURES: Final[tuple[str, ...]] = (ATOMIC, MESSAGE_IDS, SCHEDULED)
"""What brokers of this version can do of what they would else ignore: a field of a frame or a body
that a broker does not know. A client asks for it by its name before it sends."""

Range = tuple[int, int]
"""Offsets from the first to the second, the second excluded."""


class Frame(msgspec.Struct, array_like=True, gc=False):
    """Base of all frames."""
