"""Lists everything that is watched: at the start, and regularly, as a watch may miss events."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import cast

from partq.excerpts import excerpt
from partq.kube import names
from partq.kube.api import KubeApi
from partq.kube.bodies import Body, BodyList
from partq.kube.errors import KubernetesError
from partq.kube.watch import parse
from partq.kube.watch.object_cache import GroupKey, ObjectCache

PAGE = 500
MAX_PAGES = 1000
PODS_S = 300.0
"""How often pods are listed; workers look again at those that matter most by themselves."""

_log = logging.getLogger(__name__)


class Relister:
    """Lists into the cache, each namespace by itself: trouble with one is not the others'."""

    def __init__(
        self,
        api: KubeApi,
        cache: ObjectCache,
        namespaces: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cache = cache
        self._clock = clock
        self._scopes = list(namespaces) or [""]
        self._pods_at: dict[str, float] = {}
        self._troubles: dict[str, str] = {}

    async def refresh(self) -> None:
        """List what is due; of a namespace that cannot be listed, everything stays as it is.

        Raises:
            KubernetesError: no namespace could be listed.
        """
        troubles: dict[str, KubernetesError] = {}
        for scope in self._scopes:
            try:
                await self._list(scope)
            except KubernetesError as error:
                troubles[scope] = error
                if self._troubles.get(scope) != str(error) and len(self._scopes) > 1:
                    _log.warning("namespace %s is not listed: %s", scope, error)
        self._troubles = {scope: str(error) for scope, error in troubles.items()}
        if len(troubles) == len(self._scopes):
            raise next(iter(troubles.values()))

    async def _list(self, scope: str) -> None:
        before = self._cache.known(scope)
        root = f"/apis/partq.dev/{names.VERSION}"
        queues = [body async for body in self._all(root, scope, names.QUEUES)]
        groups = [body async for body in self._all(root, scope, names.GROUPS)]
        if self._clock() - self._pods_at.get(scope, float("-inf")) >= PODS_S:
            await self._list_pods(scope)
            self._pods_at[scope] = self._clock()
        for body in queues:
            self._cache.put_queue(body)
        for body in groups:
            self._cache.put_group(body)
        for queue in before.queues - {parse.queue_key(body) for body in queues}:
            self._cache.drop_queue(queue)
        for group in before.groups - {GroupKey(*parse.queue_key(body)) for body in groups}:
            self._cache.drop_group(group)
        self._cache.complete(scope)

    async def _list_pods(self, scope: str) -> None:
        before = self._cache.known(scope)
        pods = [parse.pod(body) async for body in self._all("/api/v1", scope, "pods")]
        for pod in pods:
            # A pod may have gone while later pages were read; its uid never comes back.
            if self._cache.gone_pod(pod.uid) is None:
                self._cache.put_pod(pod)
        for uid in before.pods - {pod.uid for pod in pods}:
            gone = self._cache.pod(uid)
            if gone is not None:
                self._cache.drop_pod(gone)

    async def _all(self, root: str, scope: str, plural: str) -> AsyncIterator[Body]:
        path, token = f"{root}/{f'namespaces/{scope}/' if scope else ''}{plural}", ""
        for _ in range(MAX_PAGES):
            query = {"limit": str(PAGE), **({"continue": token} if token else {})}
            page = cast(BodyList | None, await self._api.get(path, **query))
            if page is None:
                raise KubernetesError(
                    f"{path}: the API server does not know {plural}; apply the "
                    "CustomResourceDefinitions: helm upgrade, or kubectl apply -f crds/",
                    status=404,
                )
            items = page.get("items")
            if not isinstance(items, list):
                # Not an answer of the API server: taken as an empty list, it would end every group.
                raise KubernetesError(f"{path}: the answer is not a list: {excerpt(page)}")
            for item in items:
                yield item
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                break
