"""Where the records of a queue are, and that it does not begin empty elsewhere without a word.

A queue does not move with its `spec.redis`. The place is in its status, without user and password;
another one holds only when an annotation names it, once.
"""

from urllib.parse import parse_qs, urlsplit

from partq.core.redis_url import redis_urls
from partq.errors import UnknownQueueError
from partq.excerpts import counted
from partq.kube import names
from partq.kube.api import KubeApi, secret_path
from partq.kube.bodies import Body
from partq.kube.errors import RedisImmutableError, StoreEmptyError
from partq.kube.names import QueueKey
from partq.kube.objects import broker_pods
from partq.kube.objects.broker_policies import REDIS_PORT
from partq.kube.ports import QueueStore
from partq.kube.watch import parse


def place_of(redis_url: str) -> str:
    """Return hosts, ports and a database other than 0 of a URL, as people may read them."""
    return ",".join(map(_place, redis_urls(redis_url)))


def refuse_move(key: QueueKey, body: Body, redis_url: str) -> None:
    """See that a queue's URL leads to where its records are, or that its annotation names it.

    Raises:
        RedisImmutableError: it leads elsewhere.
    """
    recorded, place = recorded_place(body), place_of(redis_url)
    if recorded is None or _are_same(recorded, place) or _names(body, place):
        return
    raise RedisImmutableError(
        f"queue {key}: spec.redis: got {place}, expected {recorded}, where its messages are; they "
        f"do not move. To begin empty at the other one, set the annotation {names.REDIS}={place}"
    )


async def refuse_loss(store: QueueStore, key: QueueKey, body: Body, redis_url: str) -> None:
    """See that the store holds a queue which had records, unless it is to begin empty there.

    Raises:
        StoreEmptyError: it does not.
        StoreUnavailableError: no answer.
    """
    status = body.get("status") or {}
    count = (status.get("partitions") or {}).get("configured")
    if count is None:
        return
    try:
        await store.ports.layouts.read()
    except UnknownQueueError:
        recorded, place = recorded_place(body), place_of(redis_url)
        is_new = recorded is None or not _are_same(recorded, place)
        if is_new and _names(body, place):
            return
        raise StoreEmptyError(
            f"queue {key}: got a Redis at {place} without records of it, expected its "
            f"{counted(count, 'partition')}: bring its data back, or the URL of the Redis that has "
            "them. If the messages are given up, delete the queue and create it again"
        ) from None


async def usable_url(
    api: KubeApi, key: QueueKey, body: Body, redis_url: str
) -> tuple[str, RedisImmutableError | None]:
    """Return the URL of where a queue's records are, and why it is not the one of its spec.

    Raises:
        RedisImmutableError: the spec has another one, and the former is unknown.
        KubernetesError: no answer, or a refusal.
    """
    try:
        refuse_move(key, body, redis_url)
    except RedisImmutableError as error:
        url = await recorded_url(api, key, body)
        if url is None:
            raise
        return url, error
    return redis_url, None


async def recorded_url(api: KubeApi, key: QueueKey, body: Body) -> str | None:
    """Return the URL of the place in the status, as the brokers have it; None: they do not.

    Raises:
        KubernetesError: no answer, or a refusal.
    """
    secret = await api.get(secret_path(key.namespace, names.config_secret(key.name)))
    url = broker_pods.secret_entries(secret).get(names.REDIS_ENTRY)
    recorded = recorded_place(body)
    if url is None or recorded is None or not _are_same(recorded, place_of(url)):
        return None
    return url


def recorded_place(body: Body) -> str | None:
    """Return where the records of a queue are, as its status says."""
    found = (body.get("status") or {}).get("store")
    return str(found) if found else None


def _place(redis_url: str) -> str:
    parts = urlsplit(redis_url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    # As connections read it: the parameter counts before the path.
    named = parse_qs(parts.query).get("db", [parts.path.strip("/")])[0]
    database = int(named or 0)
    where = f"{host}:{parts.port or REDIS_PORT}"
    return where if database == 0 else f"{where}/{database}"


def _are_same(one: str, other: str) -> bool:
    """Say whether two places have a host in common: of a cluster, other nodes may be named."""
    return not set(one.split(",")).isdisjoint(other.split(","))


def _names(body: Body, place: str) -> bool:
    named = parse.annotation(body, names.REDIS)
    return named is not None and named.replace(" ", "") == place
