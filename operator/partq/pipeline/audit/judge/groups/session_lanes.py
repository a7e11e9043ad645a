"""Of which session each message is, as far as its deliveries say."""

from array import array
from collections import Counter
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
        """Session → its number, which no other one gets."""
        self._names: dict[int, str] = {}
        self._counts: Counter[int] = Counter()
        """Of each number: how many messages are known to be of it."""
        self._last_number = 0
        self._chunks: dict[int, array[int]] = {}
        """By the offset of the first: of each message the number of its session."""
        self._freed_to = 0

    def learn(self, first: int, stop: int, session: str | None) -> int | None:
        """Note of which session messages are; None: each of them is one by itself.

        Return the first of them that is known to be of another one; None: nothing says so.
        """
        number = _KEYLESS if session is None else self._number_of(session)
        other = None
        for offset in range(max(first, self._freed_to), stop):
            chunk = self._chunks.get(offset // _CHUNK)
            if chunk is None:
                chunk = self._chunks[offset // _CHUNK] = array("I", bytes(4 * _CHUNK))
            known = chunk[offset % _CHUNK]
            if known == _UNKNOWN:
                chunk[offset % _CHUNK] = number
                self._counts[number] += 1
            elif known != number and other is None:
                other = offset
        self._forget_unused(number)
        return other

    def session(self, offset: int) -> str | None:
        """Return the session of a message; None: nobody knows it, or it has no key."""
        number = self._number(offset)
        return None if number in (_UNKNOWN, _KEYLESS) else self._names.get(number)

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

    def free(self, stop: int) -> list[int]:
        """Forget what the log has given up; nothing of it is delivered any more.

        Return the lanes that have no message any more; no later one is like them.
        """
        gone: list[int] = []
        for at in range(self._freed_to // _CHUNK, stop // _CHUNK):
            for number, count in Counter(self._chunks.pop(at, ())).items():
                if number != _UNKNOWN:
                    self._counts[number] -= count
                    gone += [number] if self._forget_unused(number) else []
        self._freed_to = max(self._freed_to, stop // _CHUNK * _CHUNK)
        return gone

    def _number_of(self, session: str) -> int:
        number = self._numbers.get(session)
        if number is None:
            self._last_number = number = self._last_number + 1
            self._numbers[session] = number
            self._names[number] = session
        return number

    def _forget_unused(self, number: int) -> bool:
        """Forget the name of a session of which no message is known; return whether it was one."""
        if self._counts[number] > 0:
            return False
        del self._counts[number]
        session = self._names.pop(number, None)
        if session is not None:
            del self._numbers[session]
        return session is not None

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
