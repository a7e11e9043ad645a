"""Which hosts a queue may name as its Redis: the operator calls them from where it is.

A user who may create queues chooses the host. So what only the operator's node or pod reaches is
refused: loopback, link-local (the metadata of a cloud), and addresses that stand for no host. A
name is judged by what it leads to now; one that leads elsewhere at the next moment is left to the
egress policy of the chart.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit

from partq.core.redis_url import redis_urls
from partq.errors import UnavailableError
from partq.kube.errors import AddressRefusedError

RESOLVE_S = 5.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str], Awaitable[Collection[str]]]


async def resolve(host: str) -> list[str]:
    """Return the addresses of a host, as a connection would find them; none: it is unknown.

    Raises:
        UnavailableError: no answer in time.
    """
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError as error:
        if isinstance(error, TimeoutError):
            raise UnavailableError(
                f"spec.redis: host {host}: got no answer of the DNS within {RESOLVE_S:g} s, "
                "expected its addresses; check the cluster's DNS; it is asked again"
            ) from None
        return []
    return [str(address[0]) for *_, address in found]


async def check(url: str, allowed: Collection[str], resolve: Resolve = resolve) -> None:
    """See that a queue may name a URL of Redis.

    Args:
        url: one or several hosts.
        allowed: names and addresses that alone may be named, `*.example.org` for all names of a
            domain; empty: every host but those that are refused. A host that stands there by its
            whole name is not looked up.
        resolve: finds the addresses of a host.

    Raises:
        AddressRefusedError: it may not.
        UnavailableError: it is not known yet where a name leads.
    """
    for each in redis_urls(url):
        host = urlsplit(each).hostname or ""
        if host in allowed:
            continue
        if allowed and not any(_is_under(host, name) for name in allowed):
            raise AddressRefusedError(
                f"spec.redis: got the host {host}, expected one that the operator allows: "
                f"{', '.join(sorted(allowed))}; name one of them, or add the host to "
                "redis.allowedHosts of the chart"
            )
        if any(map(is_local, await resolve(host))):
            raise AddressRefusedError(
                f"spec.redis: got the host {host}, which leads to a loopback or link-local "
                "address; expected one that is the same for all pods: name the Redis by its "
                "Service, or add the host to redis.allowedHosts of the chart"
            )


def is_local(address: str) -> bool:
    """Whether an address is the operator's own or its link's, however it is written as IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64 or found.packed[:12] == bytes(12):
            inner = ipaddress.IPv4Address(found.packed[12:])
        if inner is not None and is_local(str(inner)):
            return True
    return found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast


def _is_under(host: str, name: str) -> bool:
    return name.startswith("*.") and host.endswith(name[1:]) and len(host) > len(name) - 1
