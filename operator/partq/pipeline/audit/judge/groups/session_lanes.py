"""Of which session each message is, as far as its deliveries say."""

from array import array
from collections.abc import Iterator
from typing import Final

_CHUNK: Final = 1024
_KEYLESS: Final = 2**32 - 1
"""In the place of a session's number: the message has no key, and is a session by itself."""
_UNKNOWN: Final = 0


class SessionLanes:
    """Follows which messages are of which session: the lane of a message is its session.

    A record of deliveries names sessions by their locks. Of a message that was never delivered
    nobody knows it: slots do not tell it, as two sessions may have one.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._chunks: dict[int, array[int]] = {}
        """By the offset of the first: of each message the number of its session."""
        self._freed_to = 0

    def learn(self, first: int, stop: int, session: str | None) -> int | None:
        """Note of which session messages are; None: each of them is one by itself.

        Return the first of them that is known to be of another one; None: nothing says so.
        """
        number = _KEYLESS
        if session is not None:
            number = self._numbers.setdefault(session, len(self._names) + 1)
            if number > len(self._names):
                self._names.append(session)
        other = None
        for offset in range(max(first, self._freed_to), stop):
            chunk = self._chunks.get(offset // _CHUNK)
            if chunk is None:
                chunk = self._chunks[offset // _CHUNK] = array("I", bytes(4 * _CHUNK))
            known = chunk[offset % _CHUNK]
            if known == _UNKNOWN:
                chunk[offset % _CHUNK] = number
            elif known != number and other is None:
                other = offset
        return other

    def session(self, offset: int) -> str | None:
        """Return the session of a message; None: nobody knows it, or it has no key."""
        number = self._number(offset)
        return None if number in (_UNKNOWN, _KEYLESS) else self._names[number - 1]

    def within(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return (offset, lane) of what is known of [first, stop)."""
        for chunk_at in range(first // _CHUNK, -(-stop // _CHUNK)):
            chunk, begin = self._chunks.get(chunk_at), chunk_at * _CHUNK
            if chunk is None:
                continue
            for offset in range(max(first, begin), min(stop, begin + _CHUNK)):
                number = chunk[offset - begin]
                if number != _UNKNOWN:
                    yield offset, -1 - offset if number == _KEYLESS else number

    def free(self, stop: int) -> None:
        """Forget what the log has given up; nothing of it is delivered any more."""
        for at in range(self._freed_to // _CHUNK, stop // _CHUNK):
            self._chunks.pop(at, None)
        self._freed_to = max(self._freed_to, stop // _CHUNK * _CHUNK)

    def _number(self, offset: int) -> int:
        chunk = self._chunks.get(offset // _CHUNK)
        return _UNKNOWN if chunk is None else chunk[offset % _CHUNK]


class KeyedLanes:
    """The same of messages that have a key: the others have no order."""

    def __init__(self, lanes: SessionLanes) -> None:
        self._lanes = lanes

    def within(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Return (offset, lane) of what is known of [first, stop) and has a key."""
        return (each for each in self._lanes.within(first, stop) if each[1] >= 0)
