"""Policies that protect a queue's brokers: callers that may reach them, pods to evict at once."""

from urllib.parse import urlsplit

from partq.core.redis_url import redis_urls
from partq.kube import names
from partq.kube.bodies import Manifest

REDIS_PORT = 6379
DNS_PORTS = (53, 5353)
"""Where DNS pods listen; OpenShift's do at the second."""


def network_policy(queue: str, redis_url: str, *, limits_egress: bool) -> Manifest:
    """Return a spec that allows calls from pods of the cluster; out: to brokers, Redis, the DNS.

    `limits_egress`: False lets everything out. A policy counts the port that a pod behind a Service
    has, and of a Redis in the cluster that may be another one than its URL says. Of a Redis Cluster
    all nodes have to listen on ports that the URL names.
    """
    spec: Manifest = {
        "podSelector": {"matchLabels": names.selector(queue)},
        "policyTypes": ["Ingress"],
        # Tokens say which caller may do what: producers live in any namespace.
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [_port(names.BROKER_PORT)]}],
    }
    if limits_egress:
        # Brokers of every queue of the namespace: this one's, and those of dead-letter queues.
        peers = [{"podSelector": {"matchLabels": names.ANY_BROKER}}]
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [
            {"to": peers, "ports": [_port(names.BROKER_PORT)]},
            # Redis may be outside of the cluster, at an address that is not known here.
            {"ports": [_port(port) for port in _redis_ports(redis_url)]},
            {"ports": [_port(port, protocol) for port in DNS_PORTS for protocol in ("TCP", "UDP")]},
        ]
    return spec


def pod_disruption_budget(queue: str, server_version: tuple[int, int]) -> tuple[str, Manifest]:
    """Return the version of the API that a server knows, and a spec: one broker away at a time."""
    spec: Manifest = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": names.selector(queue)},
    }
    if server_version >= (1, 27):
        # Brokers that serve nothing anyway, as without Redis, keep no node from being drained.
        spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow"
    return "policy/v1" if server_version >= (1, 21) else "policy/v1beta1", spec


def _redis_ports(url: str) -> list[int]:
    return sorted({urlsplit(each).port or REDIS_PORT for each in redis_urls(url)})


def _port(port: int, protocol: str = "TCP") -> Manifest:
    return {"protocol": protocol, "port": port}
