"""The end of a queue: brokers refuse, pods go, keys go, the finalizer goes. Bounded in time.

A step that does not succeed is tried again with every look, until its time is over: then it is
left out with an Event that says what remains. So no namespace waits for a Redis that is away.
"""

import logging
from collections.abc import Awaitable, Callable

from partq.errors import PartqError
from partq.excerpts import counted
from partq.kube import names
from partq.kube.api import KubeApi, queue_path
from partq.kube.bodies import Body
from partq.kube.errors import KubernetesError, sentence
from partq.kube.names import EventReason, QueueKey
from partq.kube.objects.credentials import is_owned
from partq.kube.ports import QueueStore
from partq.kube.status.event_diff import PendingEvent
from partq.kube.watch.object_cache import ObjectCache

STORE_LIMIT_S = 60.0
"""How long the store may keep the resource from going."""
PODS_LIMIT_S = 45.0
"""How long broker pods, and the removal of their StatefulSet, may; above their grace period."""
HOLD_TRIES = 3
"""How often the finalizer is written to a queue that changes meanwhile."""

_log = logging.getLogger(__name__)


class Deletion:
    """Ends one queue; `step` is called until it is over."""

    def __init__(
        self, api: KubeApi, cache: ObjectCache, key: QueueKey, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._cache = cache
        self._key = key
        self._clock = clock
        self._began_at = clock()
        self._is_buried = False
        self._is_erased = False
        self._is_told = False
        self._is_set_left = False

    async def step(
        self,
        body: Body,
        store: QueueStore | None,
        *,
        keeps_data: bool,
        tell: Callable[[PendingEvent], None],
    ) -> bool:
        """Do what can be done now, and return whether it is over.

        Args:
            body: the queue's.
            store: its store; None: it cannot be reached.
            keeps_data: whether the messages stay.
            tell: is called once with what became of the data, before the finalizer is taken off:
                from then on the queue may be gone, and its worker may be told to end.

        Raises:
            KubernetesError: no answer from the API server, or a refusal; call again.
        """
        age_s = self._clock() - self._began_at
        if store is not None and not self._is_buried:
            self._is_buried = await self._try(store.bury(), "tombstone")
        try:
            await self._remove_brokers(body)
        except KubernetesError as error:
            if age_s < PODS_LIMIT_S:
                raise
            text = (
                f"the StatefulSet {names.stateful_set(self._key.name)} is left to the garbage "
                f"collector, which removes it once the queue is gone: {sentence(error)}"
            )
            if not self._is_set_left:
                tell(PendingEvent(EventReason.FINALIZER_RELEASED, text, is_warning=True))
                self._is_set_left = True
        if self._cache.brokers(self._key) and age_s < PODS_LIMIT_S:
            # They still write: what is removed now could come back.
            return False
        if store is not None and not self._is_erased:
            self._is_erased = await self._try(self._erase(store, keeps_data, tell), "erase")
        if not self._is_erased and age_s < STORE_LIMIT_S:
            return False
        if not self._is_erased and not self._is_told:
            text = (
                f"the store did not answer for {STORE_LIMIT_S:g} s; keys of the queue may remain "
                f"there, under {self._key}"
            )
            tell(PendingEvent(EventReason.FINALIZER_RELEASED, text, is_warning=True))
            self._is_told = True
        await release(self._api, body)
        return True

    async def _erase(
        self, store: QueueStore, keeps_data: bool, tell: Callable[[PendingEvent], None]
    ) -> None:
        if keeps_data:
            await store.release(keeps_data=True)
            tell(PendingEvent(EventReason.DATA_RETAINED, "the messages stay in Redis"))
            return
        count = await store.erase()
        await store.release(keeps_data=False)
        tell(PendingEvent(EventReason.DATA_REMOVED, f"{counted(count, 'key')} removed"))

    async def _try(self, work: Awaitable[object], what: str) -> bool:
        try:
            await work
        except (PartqError, TimeoutError) as error:
            _log.warning("deletion of %s: %s: %s", self._key, what, sentence(error))
            return False
        return True

    async def _remove_brokers(self, body: Body) -> None:
        path = (
            f"/apis/apps/v1/namespaces/{self._key.namespace}/statefulsets/"
            f"{names.stateful_set(self._key.name)}"
        )
        found = await self._api.get(path)
        owner = body["metadata"]["uid"]
        if found is not None and is_owned(found, owner):
            await self._api.delete(path, found["metadata"]["uid"])


async def hold(api: KubeApi, body: Body) -> bool:
    """Put the finalizer at a queue; False: the queue is going or gone, or changes all the time.

    Raises:
        KubernetesError: no answer, or a refusal.
    """
    metadata = body["metadata"]
    for _ in range(HOLD_TRIES):
        finalizers = list(metadata.get("finalizers") or ())
        if names.FINALIZER in finalizers:
            return True
        if await _write(api, body, [*finalizers, names.FINALIZER]):
            return True
        # It has changed since it was read, if only by its status.
        latest = await api.get(queue_path(metadata["namespace"], metadata["name"]))
        if latest is None or latest["metadata"]["uid"] != metadata["uid"]:
            return False
        if latest["metadata"].get("deletionTimestamp"):
            return False
        body, metadata = latest, latest["metadata"]
    return False


async def release(api: KubeApi, body: Body) -> None:
    """Take the finalizer off a queue.

    Raises:
        KubernetesError: no answer, or a refusal.
    """
    path = queue_path(*QueueKey(body["metadata"]["namespace"], body["metadata"]["name"]))
    latest = await api.get(path)
    if latest is None or latest["metadata"]["uid"] != body["metadata"]["uid"]:
        return
    finalizers = list(latest["metadata"].get("finalizers") or ())
    if names.FINALIZER not in finalizers:
        return
    written = await _write(api, latest, [each for each in finalizers if each != names.FINALIZER])
    if not written:
        raise KubernetesError(f"{path}: changed meanwhile; the finalizer is taken off next time")


async def _write(api: KubeApi, body: Body, finalizers: list[str]) -> bool:
    """Write the finalizers, unless the object has changed since it was read."""
    metadata = body["metadata"]
    path = queue_path(metadata["namespace"], metadata["name"])
    change = {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}
    return await api.merge(path, {"metadata": change}) is not None
