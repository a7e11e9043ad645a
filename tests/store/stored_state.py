"""All that a test of the store finds there after its calls."""

import re
from itertools import chain


async def read_state(store):
    """Return all that is stored; times of day, and how often an event is there, left out."""
    found = {}
    pattern = store.prefix + ":*"
    names = [await node.read(["KEYS", pattern]) for node in store.nodes()]
    for key in sorted(chain.from_iterable(names)):
        name = key.decode().removeprefix(store.prefix)
        if name == ":events":
            entries = await store.read("XRANGE", key, "-", "+")
            found[name] = {tuple(fields) for _, fields in entries}
        elif name.endswith((":log", ":audit")):
            entries = await store.read("XRANGE", key, "-", "+")
            found[name] = [(entry_id, _timeless(fields)) for entry_id, fields in entries]
        elif name.endswith((":due", ":ids")):
            found[name] = await store.read("ZRANGE", key, 0, -1, "WITHSCORES")
        elif ":ended:" in name:
            found[name] = await store.read("GET", key)
        else:
            flat = _timeless(await store.read("HGETALL", key))
            found[name] = dict(zip(flat[::2], flat[1::2], strict=True))
            # Of a write, which has its own number; and of what a process knows of the server.
            for each in (b"flushed", b"locks_written", b"locks_run"):
                found[name].pop(each, None)
            if name.endswith(":config"):
                found[name].pop(b"born", None)  # a time in µs
    return found


def _timeless(values):
    """Leave out times of day, and the chains that come of them."""
    return [re.sub(rb"\b(\d{13}|[0-9a-f]{40})\b", b"(time)", value) for value in values]
