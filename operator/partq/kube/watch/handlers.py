"""What kopf calls: each handler passes an event to the cache, and decides nothing."""

from collections.abc import Mapping
from typing import Any, cast

import kopf

from partq.kube import names
from partq.kube.bodies import Body
from partq.kube.watch import nodes, parse
from partq.kube.watch.object_cache import GroupKey, ObjectCache
from partq.resources import API_GROUP


def register(registry: kopf.OperatorRegistry, cache: ObjectCache) -> frozenset[str]:
    """Pass events of queues, groups and pods to `cache`; return the kinds, by plural name."""

    @kopf.on.event(API_GROUP, names.VERSION, names.QUEUES, registry=registry)
    async def notice_queue(*, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's
        if type == "DELETED":
            cache.drop_queue(parse.queue_key(cast(Body, body)))
        else:
            cache.put_queue(cast(Body, plain(body)))

    @kopf.on.event(API_GROUP, names.VERSION, names.GROUPS, registry=registry)
    async def notice_group(*, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's
        if type == "DELETED":
            cache.drop_group(GroupKey(*parse.queue_key(cast(Body, body))))
        else:
            cache.put_group(cast(Body, plain(body)))

    @kopf.on.event("", "v1", "pods", registry=registry)
    async def notice_pod(*, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's
        if type == "DELETED":
            cache.drop_pod(parse.pod(cast(Body, body)))
        else:
            cache.put_pod(parse.pod(cast(Body, body)))

    return frozenset({names.QUEUES, names.GROUPS, "pods"})


def register_nodes(registry: kopf.OperatorRegistry, cache: ObjectCache) -> frozenset[str]:
    """Pass events of nodes to `cache`; return the kind, by plural name."""

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def notice_node(*, body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's
        found = None if type == "DELETED" else nodes.node(cast(Body, body))
        cache.put_node(body["metadata"]["name"], found)

    return frozenset({"nodes"})


def plain(value: object) -> object:
    """Return kopf's views of a body as the dicts and lists that they stand for."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value
