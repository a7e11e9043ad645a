"""A stream of hints that wakes coordinators. A lost one costs time and nothing else."""

from contextlib import suppress

from partq.core.records import EventRecord
from partq.errors import QuotaExceededError, StoreUnavailableError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.server import Channel

_MAX_STORED = 10_000
"""About how many hints are kept; what was not read by then is not missed: hints only wake."""
_MAX_READ = 1000


class Events:
    """Writes hints of one queue, and reads those of all."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def add(self, kind: str, **fields: str | int) -> None:
        """Write a hint; when the store does not take it, it is dropped."""
        pairs = {"namespace": self._keys.namespace, "queue": self._keys.queue, **fields}
        flat = [text for pair in pairs.items() for text in pair]
        args = [_MAX_STORED, "kind", kind, *flat]
        with suppress(StoreUnavailableError, QuotaExceededError):
            await self._store.run("add_event", [self._keys.events()], args)

    async def wait(self, last_id: str, timeout_s: float) -> tuple[str, list[EventRecord]]:
        """Return the hints after `last_id`, and the id to continue with.

        Waits for at most `timeout_s` seconds until there is one. With an empty `last_id` it
        answers at once, with the place where the stream ends now.

        Raises:
            StoreUnavailableError: no answer.
        """
        key = self._keys.events()
        if not last_id:
            newest = await self._store.read("XREVRANGE", key, "+", "-", "COUNT", 1)
            return (newest[0][0].decode() if newest else "0-0"), []
        wait_ms = max(1, int(timeout_s * 1000))  # 0 would wait without end
        found = await self._store.read(
            *("XREAD", "COUNT", _MAX_READ, "BLOCK", wait_ms, "STREAMS", key, last_id),
            channel=Channel.EVENTS,
            wait_s=timeout_s,
        )
        events = [_event(entry_id, flat) for entry_id, flat in (found[0][1] if found else [])]
        return (events[-1].id if events else last_id), events


def _event(entry_id: bytes, flat: list[bytes]) -> EventRecord:
    texts = [value.decode() for value in flat]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    return EventRecord(entry_id.decode(), fields.pop("kind"), fields)
