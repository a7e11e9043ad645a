"""Where brokers are called: by the names of a queue's own pods, at the addresses of these pods.

Both come from the API server. A store says it, too, but a process that can write to a store could
have the operator call any address, with its token.
"""

import re
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from partq.core.model import BrokerId
from partq.core.records import LeaseRecord
from partq.kube import names
from partq.kube.names import QueueKey
from partq.kube.watch.object_cache import ObjectCache

NOWHERE = "http://no-such-pod.invalid"
"""A URL without a server, for a broker whose pod is not known yet."""
_HOST = re.compile(r"(?P<pod>[a-z0-9-]+)\.(?P<queue>[a-z0-9-]+)-brokers\.(?P<ns>[a-z0-9-]+)\.svc")


class BrokerAddresses:
    """The address book of one queue."""

    def __init__(self, cache: ObjectCache, key: QueueKey) -> None:
        self._cache = cache
        self._key = key

    def __call__(self, broker: BrokerId, lease: LeaseRecord) -> str:
        """Return the URL of a broker: the name and the port of its pod."""
        key = self._key
        number = broker.removeprefix(f"{names.stateful_set(key.name)}-")
        pod = self._cache.pod_named(key.namespace, broker)
        if (
            number == broker
            or not number.isdecimal()
            or pod is None
            or pod.broker_port is None
            or pod.labels.get(names.QUEUE_LABEL) != key.name
            or not pod.keeps_name
        ):
            return NOWHERE
        host = f"{pod.name}.{names.headless_service(key.name)}.{key.namespace}.svc"
        return f"{pod.broker_port.scheme}://{host}:{pod.broker_port.number}"


class PodResolver(AbstractResolver):
    """Knows the addresses of broker pods, and of nothing else."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a pod.

        Raises:
            OSError: there is no such pod, or it has no address yet.
        """
        named = _HOST.fullmatch(host)
        pod = self._cache.pod_named(named["ns"], named["pod"]) if named else None
        if named is None or pod is None or pod.labels.get(names.QUEUE_LABEL) != named["queue"]:
            raise OSError(f"{host}: there is no pod of a broker with this name")
        if not pod.addresses:
            raise OSError(f"{host}: the pod has no address yet")
        return [_result(host, address, port) for address in pod.addresses]

    async def close(self) -> None:
        """Do nothing: the cache of objects has another owner, which closes it."""


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=0,
        flags=socket.AI_NUMERICHOST,
    )
