"""Reads the Secrets that a queue rests on, and makes the one with its tokens."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from partq.errors import SettingsError
from partq.kube import broker_pods, broker_tls, names, tokens
from partq.kube.api import KubeApi, secret_path
from partq.kube.broker_policies import REDIS_PORT
from partq.kube.errors import KubernetesError, NameTakenError, SecretMissingError
from partq.kube.names import QueueKey
from partq.resources import PartitionedQueue
from partq.settings import redis_urls
from partq.wire.tls import trust


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach a queue's store and its brokers. It is never logged."""

    redis_url: str
    admin_token: str
    tokens_secret: str
    ca_pem: str = ""
    """Who may sign the brokers' certificates; empty: the system's CAs, or plain HTTP."""


async def read_access(
    api: KubeApi,
    queue: PartitionedQueue,
    owner_uid: str,
    default_url: str | None,
    groups: Collection[str] = (),
) -> Access:
    """Read the queue's Secrets; without one for its tokens, make it.

    In one of the operator's own, each of the `groups` gets a token.

    Raises:
        SecretMissingError: a Secret or an entry is not there, or holds something else.
        NameTakenError: the Secret for the tokens belongs to somebody else.
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
            f"Secret {key.namespace}/{name}: it belongs to somebody else; rename it, or name it "
            "in spec.auth.secretName"
        )
    text = _entry(secret, key.namespace, name, names.TOKENS_ENTRY)
    try:
        token = tokens.admin_token(text, key.name)
        if secret is not None and is_ours:
            await _add_groups(api, secret_path(key.namespace, name), secret, key.name, groups)
    except SettingsError as error:
        raise SecretMissingError(error.message) from None
    url = await read_redis_url(api, queue, default_url)
    ca_pem = await _read_ca(api, queue)
    return Access(redis_url=url, admin_token=token, tokens_secret=name, ca_pem=ca_pem)


async def read_redis_url(api: KubeApi, queue: PartitionedQueue, default_url: str | None) -> str:
    """Return where a queue is stored; it needs none of the queue's tokens.

    Raises:
        SecretMissingError: nothing says where, or it is no URL of Redis.
        KubernetesError: no answer, or a refusal.
    """
    try:
        return broker_pods.checked_redis_url(await _redis_url(api, queue, default_url))
    except SecretMissingError:
        raise
    except SettingsError as error:
        raise SecretMissingError(error.message) from None


def whereabouts(redis_url: str) -> str:
    """Return hosts and ports of a URL of Redis, as people may read them: no user, no password."""
    parts = map(urlsplit, redis_urls(redis_url))
    return ", ".join(f"{each.hostname}:{each.port or REDIS_PORT}" for each in parts)


async def _add_groups(
    api: KubeApi, path: str, secret: Mapping[str, Any], queue: str, groups: Collection[str]
) -> None:
    """Add the tokens that groups lack; a Secret that has changed meanwhile is read again later."""
    added = tokens.with_groups(broker_pods.secret_entries(secret), queue, groups)
    if added:
        version = secret["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "data": broker_pods.encoded(added)}
        if await api.merge(path, body) is None:
            raise KubernetesError(f"{path}: it has changed since it was read; it is read again")


def is_owned(body: Mapping[str, Any], owner_uid: str) -> bool:
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
    ca_pem = broker_pods.secret_entries(secret or {}).get(broker_tls.CA_ENTRY, "").strip()
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
            "spec.redis: got nothing, expected it to be set: the operator has no Redis of its own"
        )
    return default_url


def _entry(secret: Mapping[str, Any] | None, namespace: str, name: str, entry: str) -> str:
    if secret is None:
        raise SecretMissingError(f"Secret {namespace}/{name}: it is not there")
    text = broker_pods.secret_entries(secret).get(entry)
    if not text:
        raise SecretMissingError(f"Secret {namespace}/{name}: it has no entry {entry}")
    return text
