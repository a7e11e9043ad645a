"""Lists everything that is watched: at the start, and now and then against watches gone deaf."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from partq.kube import names, parse
from partq.kube.api import KubeApi
from partq.kube.cluster import Cluster, GroupKey
from partq.kube.errors import KubernetesError

PAGE = 500
MAX_PAGES = 1000


class Lister:
    """Lists into a Cluster. Every call raises KubernetesError, and then nothing is dropped."""

    def __init__(self, api: KubeApi, cluster: Cluster, namespaces: Sequence[str]) -> None:
        self._api = api
        self._cluster = cluster
        self._scopes = [f"namespaces/{name}/" for name in namespaces] or [""]

    async def resources(self) -> None:
        """List queues and groups; those known before and not found are gone."""
        before = self._cluster.known()
        root = f"/apis/partq.dev/{names.VERSION}"
        queues = [body async for body in self._all(root, names.QUEUES)]
        groups = [body async for body in self._all(root, names.GROUPS)]
        for body in queues:
            self._cluster.put_queue(body)
        for body in groups:
            self._cluster.put_group(body)
        found = {parse.queue_key(body) for body in queues}
        for queue in before.queues - found:
            self._cluster.drop_queue(queue)
        for group in before.groups - {GroupKey(*parse.queue_key(body)) for body in groups}:
            self._cluster.drop_group(group)

    async def pods(self) -> None:
        """List pods."""
        async for body in self._all("/api/v1", "pods"):
            self._cluster.put_pod(parse.pod(body))

    async def _all(self, root: str, plural: str) -> AsyncIterator[dict[str, Any]]:
        for scope in self._scopes:
            path, token = f"{root}/{scope}{plural}", ""
            for _ in range(MAX_PAGES):
                query = {"limit": str(PAGE), **({"continue": token} if token else {})}
                page = await self._api.get(path, **query)
                if page is None:
                    raise KubernetesError(
                        f"{path}: the API server does not know {plural}; apply the "
                        "CustomResourceDefinitions: helm upgrade, or kubectl apply -f crds/",
                        status=404,
                    )
                for item in page.get("items") or ():
                    yield item
                token = (page.get("metadata") or {}).get("continue") or ""
                if not token:
                    break
