"""Reads the Secrets that a queue rests on, and makes the one with its tokens."""

from collections.abc import Collection
from dataclasses import dataclass

from partq.errors import SettingsError
from partq.kube import names
from partq.kube.api import KubeApi, secret_path
from partq.kube.bodies import Body
from partq.kube.errors import KubernetesError, NameTakenError, SecretMissingError
from partq.kube.names import QueueKey
from partq.kube.objects import broker_pods, broker_tls, redis_hosts, tokens
from partq.resources import PartitionedQueue
from partq.wire.tls import trust


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCredentials:
    """How to reach a queue's store and its brokers. It is never logged."""

    redis_url: str
    admin_token: str
    tokens_secret: str
    is_own_redis: bool = False
    """The queue names it, not the operator."""
    ca_pem: str = ""
    """CAs that may sign the brokers' certificates; empty: the system's CAs, or plain HTTP."""


async def read_access(
    api: KubeApi,
    queue: PartitionedQueue,
    owner_uid: str,
    default_url: str | None,
    groups: Collection[str] = (),
    *,
    hosts: Collection[str] = (),
) -> QueueCredentials:
    """Read the queue's Secrets; without one for its tokens, make it.

    In one of the operator's own, each of the `groups` gets a token. `hosts`: which the queue may
    name as its Redis, as in `redis_hosts.check`.

    Raises:
        SecretMissingError: a Secret or an entry is not there, or holds something else.
        NameTakenError: the Secret for the tokens belongs to another owner.
        AddressRefusedError: the queue names a host that it may not name.
        KubernetesError: no answer, or a refusal.
    """
    key = QueueKey(*queue.key)
    name = queue.spec.auth.secret_name or names.tokens_secret(key.name)
    is_ours = queue.spec.auth.secret_name is None
    secret = await api.get(secret_path(key.namespace, name))
    if secret is None and is_ours:
        made = broker_pods.tokens_secret(key, owner_uid)
        await api.create(made.path, made.body)
        secret = await api.get(secret_path(key.namespace, name))
    if secret is not None and is_ours and not is_owned(secret, owner_uid):
        raise NameTakenError(
            f"Secret {key.namespace}/{name}: it belongs to another owner; rename it, or name it "
            "in spec.auth.secretName"
        )
    text = _entry(secret, key.namespace, name, names.TOKENS_ENTRY)
    try:
        token = tokens.admin_token(text, key.name)
        if secret is not None and is_ours:
            await _add_groups(api, secret_path(key.namespace, name), secret, key.name, groups)
    except SettingsError as error:
        raise SecretMissingError(error.message) from None
    url = await read_redis_url(api, queue, default_url, hosts)
    ca_pem = await _read_ca(api, queue)
    return QueueCredentials(
        redis_url=url,
        admin_token=token,
        tokens_secret=name,
        is_own_redis=queue.spec.redis is not None,
        ca_pem=ca_pem,
    )


async def read_redis_url(
    api: KubeApi, queue: PartitionedQueue, default_url: str | None, hosts: Collection[str] = ()
) -> str:
    """Return where a queue is stored; it needs none of the queue's tokens.

    Raises:
        SecretMissingError: nothing says where, or it is not a URL of Redis.
        AddressRefusedError: the queue names a host that it may not name.
        KubernetesError: no answer, or a refusal.
    """
    text = await _redis_url(api, queue, default_url)
    try:
        url = broker_pods.checked_redis_url(text)
    except SettingsError as error:
        raise SecretMissingError(error.message) from None
    if queue.spec.redis is not None:
        await redis_hosts.check(url, hosts)
    return url


async def _add_groups(
    api: KubeApi, path: str, secret: Body, queue: str, groups: Collection[str]
) -> None:
    """Add the tokens that groups lack; a Secret that has changed meanwhile is read again later."""
    added = tokens.with_groups(broker_pods.secret_entries(secret), queue, groups)
    if added:
        version = secret["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "data": broker_pods.encoded(added)}
        if await api.merge(path, body) is None:
            raise KubernetesError(f"{path}: it has changed since it was read; it is read again")


def is_owned(body: Body, owner_uid: str) -> bool:
    """Say whether an object belongs to the resource with this uid."""
    owners = body["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == owner_uid for owner in owners)


async def _read_ca(api: KubeApi, queue: PartitionedQueue) -> str:
    """Return who may sign the brokers' certificates, once all is there that the brokers need."""
    if queue.spec.tls is None:
        return ""
    namespace, name = queue.metadata.namespace, queue.spec.tls.secret_name
    secret = await api.get(secret_path(namespace, name))
    for entry in broker_tls.NEEDED_ENTRIES:
        _entry(secret, namespace, name, entry)
    # Some who write such Secrets leave an empty entry where there is no CA to name.
    ca_pem = broker_pods.secret_entries(secret).get(broker_tls.CA_ENTRY, "").strip()
    if ca_pem:
        try:
            trust(ca_pem=ca_pem)
        except SettingsError as error:
            where = f"Secret {namespace}/{name}, entry {broker_tls.CA_ENTRY}"
            raise SecretMissingError(f"{where}: {error.message}") from None
    return ca_pem


async def _redis_url(api: KubeApi, queue: PartitionedQueue, default_url: str | None) -> str:
    redis = queue.spec.redis
    if redis is not None and redis.url is not None:
        return redis.url
    if redis is not None and redis.secret_ref is not None:
        reference, namespace = redis.secret_ref, queue.metadata.namespace
        secret = await api.get(secret_path(namespace, reference.name))
        return _entry(secret, namespace, reference.name, reference.key)
    if default_url is None:
        raise SecretMissingError(
            "spec.redis: got nothing, expected a Redis, as the operator has no default one; set "
            "spec.redis.url or spec.redis.secretRef, or redis.url of the chart"
        )
    return default_url


def _entry(secret: Body | None, namespace: str, name: str, entry: str) -> str:
    if secret is None:
        raise SecretMissingError(
            f"Secret {namespace}/{name}: it is not there; create it with the entry {entry}"
        )
    text = broker_pods.secret_entries(secret).get(entry)
    if not text:
        raise SecretMissingError(f"Secret {namespace}/{name}: it has no entry {entry}; add it")
    return text
