"""Numbers of the calls that set and remove pins: one that arrives late changes nothing any more."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from partq.errors import ConflictError
from partq.wire.calls.answers import UNSET
from partq.wire.calls.browse import PinResult

TRIES = 4
"""How often a call is made: to ask for a number, and when it is too low for a partition."""

K = TypeVar("K")


class PinCalls:
    """The calls of one reader, in the order in which it makes them."""

    def __init__(self) -> None:
        self._last = 0

    async def make(
        self, pin: str, call: Callable[[int], Awaitable[Mapping[K, PinResult]]]
    ) -> Mapping[K, PinResult]:
        """Return what `call` answers under a number above those of all calls before.

        Until a broker has answered one, the number is 0, which changes nothing: brokers answer with
        one by Redis's time, above all calls of earlier readers. The reader's own clock is not
        asked, so it may be slow.

        Raises:
            ConflictError: others set the same pin at the same time.
        """
        for _ in range(TRIES):
            if self._last:
                self._last += 1
            number = self._last
            results = await call(number)
            later = [each.number for each in results.values() if each.number is not UNSET]
            self._last = max([self._last, *later])
            if max([number, *later]) == number:
                return results
        raise ConflictError(
            f"pin {pin}: set by others at the same time, under higher numbers; give each reader a "
            "separate pin"
        )
