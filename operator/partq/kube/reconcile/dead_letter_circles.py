"""Finds dead letters that come back to the queue that they left, by way of other queues.

Each resource is valid alone; only their authors can say which of them is wrong.
"""

from collections import deque
from collections.abc import Iterator

from partq.errors import SettingsError
from partq.kube.names import QueueKey
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache, group_models
from partq.resources.reading import dead_letter_queue

MAX_QUEUES = 100
"""How many queues one search goes through."""


def find_circle(cache: ObjectCache, key: QueueKey, group: str) -> tuple[str, ...]:
    """Return the queues that a dead letter of a group passes on its way back to the group's queue.

    The queue itself is the first and the last one; empty: it does not come back.
    """
    left: deque[tuple[str, ...]] = deque(
        (key.name, target) for name, target in _targets(cache, key) if name == group
    )
    seen = {path[-1] for path in left}
    while left and len(seen) <= MAX_QUEUES:
        path = left.popleft()
        if path[-1] == key.name:
            return path
        for _, target in _targets(cache, QueueKey(key.namespace, path[-1])):
            if target not in seen:
                seen.add(target)
                left.append((*path, target))
    return ()


def _targets(cache: ObjectCache, key: QueueKey) -> Iterator[tuple[str, str]]:
    """Return each group of a queue with its dead-letter queue, as far as the specs can be read."""
    body = cache.queue(key)
    if body is None:
        return
    try:
        queue = parse.queue(body)
    except SettingsError:
        return
    models, _ = group_models(cache.groups(key))
    for name, model in models.items():
        yield name, dead_letter_queue(model, queue)
