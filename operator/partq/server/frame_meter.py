"""Counts what the frames of one WebSocket hold of the memory of all requests."""

from collections.abc import Callable
from typing import Any

from partq.server.memory import Hold

FREE_BYTES = 64 * 1024
"""Memory of a connection beside the budget: acks and credit pass when others have used it."""
_OPCODE, _FIN, _MASKED, _LENGTH = 0x0F, 0x80, 0x80, 0x7F
_SHORT = 125
"""The longest payload whose length stands in the first two bytes."""
_CONTROL = 8
"""Opcodes from here on are of control frames, of at most 125 bytes."""


class FrameMeter:
    """Stands before the parser of a WebSocket, and counts payload until somebody takes it.

    A message that is larger than `FREE_BYTES` and finds too little memory ends its connection.

    Args:
        parser: aiohttp's.
        hold: what the connection holds of the budget.
        on_full: called once when that is too little; cuts the connection.
    """

    def __init__(self, parser: Any, hold: Hold, on_full: Callable[[], None]) -> None:
        self.held_bytes = 0
        """Payload that came and was not taken."""
        self.open_bytes = 0
        """What there is of a message that is not complete."""
        self._parser = parser
        self._hold = hold
        self._on_full = on_full
        self._head = b""
        """Of the head of a frame, as far as it came."""
        self._left = 0
        """Bytes that are missing of the payload of a frame."""
        self._is_data = self._is_last = False
        self._is_closed = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Count what came, and give it to the parser."""
        if self._is_closed:
            return True, b""
        self._count(data)
        missing = self.held_bytes - FREE_BYTES - self._hold.size_bytes
        if missing > 0 and not self._hold.try_take(missing):
            if self.open_bytes > FREE_BYTES:
                self.close()
                self._on_full()
                return True, b""
            self._hold.force(missing)
        end, tail = self._parser.feed_data(data)
        return bool(end), bytes(tail)

    def feed_eof(self) -> None:
        """Tell the parser that nothing more comes."""
        self._parser.feed_eof()

    def take(self, size_bytes: int) -> None:
        """Note that a message of so many bytes of payload was taken."""
        if not self._is_closed:
            self.held_bytes -= size_bytes
            due_bytes = max(0, self.held_bytes - FREE_BYTES)
            if self._hold.size_bytes > due_bytes:
                self._hold.give_back(self._hold.size_bytes - due_bytes)

    def close(self) -> None:
        """Give everything back: the connection has ended. A repeat does nothing."""
        self._is_closed = True
        self._hold.release()

    def _count(self, data: bytes) -> None:
        data = self._head + data if self._head else data
        end = len(data)
        at = min(self._left, end)  # the rest of the payload that was begun
        self._left -= at
        if self._is_data:
            self._add(at)
        # A read may have thousands of small frames: no call for each of them.
        while not self._left and end - at >= 2:
            first, length = data[at], data[at + 1] & _LENGTH
            size = 6 if data[at + 1] & _MASKED else 2
            if length > _SHORT:
                more = 2 if length == _SHORT + 1 else 8
                length = int.from_bytes(data[at + 2 : at + 2 + more], "big")
                size += more
            if end - at < size:
                break
            at += size
            came = length if length <= end - at else end - at
            at += came
            self._left = length - came
            self._is_data = first & _OPCODE < _CONTROL
            if self._is_data:
                self._is_last = first >= _FIN
                self.held_bytes += came
                if self._is_last and not self._left:
                    self.open_bytes = 0
                else:
                    self.open_bytes += came
        self._head = data[at:]

    def _add(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.open_bytes += size_bytes
        if self._is_last and not self._left:
            self.open_bytes = 0
