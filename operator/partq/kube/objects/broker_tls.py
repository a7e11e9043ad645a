"""What a certificate's Secret makes of a queue's brokers, as JSON: HTTPS instead of HTTP. Pure.

The Secret is mounted as a whole: Kubernetes brings a renewed certificate into the running pods,
and the brokers read it again.
"""

from typing import Literal

from partq.kube import names
from partq.kube.bodies import Manifest
from partq.resources import PartitionedQueue

NEEDED_ENTRIES = ("tls.crt", "tls.key")
CA_ENTRY = "ca.crt"
_DIR = "/etc/partq/tls"
_VOLUME = "tls"


def scheme(queue: PartitionedQueue) -> Literal["http", "https"]:
    """Return how brokers are called; their ports are named so, too."""
    return "http" if queue.spec.tls is None else "https"


def container_port(queue: PartitionedQueue) -> Manifest:
    """Return the port of the container."""
    return {"name": scheme(queue), "containerPort": names.BROKER_PORT, "protocol": "TCP"}


def service_port(queue: PartitionedQueue) -> Manifest:
    """Return the port of a Service."""
    port = names.BROKER_PORT
    # By number: while brokers change to TLS, their ports have two names.
    return {"name": scheme(queue), "port": port, "targetPort": port, "protocol": "TCP"}


def environment(queue: PartitionedQueue) -> dict[str, str]:
    """Return variables of the container."""
    return {} if queue.spec.tls is None else {"PARTQ_TLS_DIR": _DIR}


def volumes(queue: PartitionedQueue) -> list[Manifest]:
    """Return volumes of the pod."""
    if queue.spec.tls is None:
        return []
    return [{"name": _VOLUME, "secret": {"secretName": queue.spec.tls.secret_name}}]


def mounts(queue: PartitionedQueue) -> list[Manifest]:
    """Return volume mounts of the container."""
    if queue.spec.tls is None:
        return []
    return [{"name": _VOLUME, "mountPath": _DIR, "readOnly": True}]


def probe(queue: PartitionedQueue, path: str, **settings: int) -> Manifest:
    """Return a probe of the container; the kubelet does not check certificates."""
    call = {"path": path, "port": scheme(queue)}
    if queue.spec.tls is not None:
        call["scheme"] = "HTTPS"
    return {"httpGet": call, **settings}
