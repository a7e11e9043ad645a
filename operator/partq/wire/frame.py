"""What all frames of the WebSockets have in common."""

from typing import Final

import msgspec

PROTOCOL_VERSION: Final = 1

Range = tuple[int, int]
"""Offsets from the first to the second, the second excluded."""


class Frame(msgspec.Struct, array_like=True, gc=False):
    """Base of all frames."""
