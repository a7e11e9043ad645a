"""Removes the keys of a queue's life, a bounded number at a time."""

from collections.abc import Iterable

from partq.errors import StoreUnavailableError
from partq.store.connection import Store
from partq.store.keys import Keys

SCAN_COUNT = 1000
MAX_SCANS = 100_000
"""How many steps one scan may take: 100 million keys. Redis gives no other end than its cursor."""
UNLINK_COUNT = 500


async def erase_queue(store: Store, keys: Keys) -> int:
    """Remove every key of the queue's life, and return how many there were.

    Found by their names, not by the records, which may be broken. What is written meanwhile may
    stay: nobody must serve the queue any more. A repeat removes the rest. The keys are spread over
    all of Redis, so the caller bounds the time.

    Raises:
        StoreUnavailableError: some are removed; a repeat does the rest.
    """
    removed = 0
    run_epoch = store.run_epoch
    for node in store.nodes():
        for pattern in keys.patterns():
            cursor = b"0"
            for _ in range(MAX_SCANS):
                cursor, found = await node.read(
                    ["SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT]
                )
                removed += await _unlink(store, (key.decode() for key in found))
                if cursor == b"0":
                    break
    await store.refresh_slots()
    if store.run_epoch != run_epoch:
        raise StoreUnavailableError(
            f"queue {keys.namespace}/{keys.queue}: Redis was restarted, or slots went to other "
            "nodes, while its keys were removed; some may be left: remove them again"
        )
    return removed


async def _unlink(store: Store, names: Iterable[str]) -> int:
    by_tag: dict[str, list[str]] = {}
    for name in names:
        by_tag.setdefault(name[name.index("{") : name.index("}")], []).append(name)
    removed = 0
    for tagged in by_tag.values():
        # The script's first key has to be a hash on old servers: others come last.
        tagged.sort(key=lambda name: name.endswith((":log", ":audit", ":due", ":ids")))
        for start in range(0, len(tagged), UNLINK_COUNT):
            removed += int(await store.run("unlink_keys", tagged[start : start + UNLINK_COUNT]))
    return removed
