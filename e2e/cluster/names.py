"""The cluster's names, from its Services and their endpoints. Pure."""

from collections.abc import Iterator

from e2e.cluster.api_watch import Objects

_NO_IP = ("", "None")  # a headless Service has no address


def hosts(services: Objects, endpoints: Objects) -> str:
    """Return a hosts file with every name that pods may ask for, sorted.

    A Service with an address stands for that; a headless one for its ready pods, which are also
    there one by one if they have a host name, as those of a StatefulSet do.
    """
    return "".join(f"{ip} {name}\n" for name, ip in sorted(set(_names(services, endpoints))))


def _names(services: Objects, endpoints: Objects) -> Iterator[tuple[str, str]]:
    for (namespace, name), service in services.items():
        full = f"{name}.{namespace}.svc.cluster.local"
        ip = service["spec"].get("clusterIP", "")
        if ip not in _NO_IP:
            yield full, ip
            continue
        for subset in endpoints.get((namespace, name), {}).get("subsets") or []:
            for address in subset.get("addresses") or []:
                yield full, address["ip"]
                if hostname := address.get("hostname"):
                    yield f"{hostname}.{full}", address["ip"]
