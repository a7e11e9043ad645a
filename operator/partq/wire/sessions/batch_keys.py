"""The keys of the messages of a batch, without the messages."""

import msgspec

from partq.errors import UndecodableError
from partq.wire.batch import open_body


class _KeyOnly(msgspec.Struct, array_like=True, gc=False):
    """The first element of a message; what follows is passed over."""

    key: str | None


_decode = msgspec.msgpack.Decoder(list[_KeyOnly]).decode


def keys_of(batch: bytes) -> list[str | None] | None:
    """Return the key of each message of a batch; None: it cannot be decoded."""
    try:
        ends, body = open_body(batch)
        found = _decode(b"\xdd" + len(ends).to_bytes(4, "big") + body)
    except (UndecodableError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return [each.key for each in found]
