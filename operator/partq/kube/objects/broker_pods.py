"""What a queue owns in Kubernetes, as JSON: brokers, Services, Secrets, and their policies.

Pure, and the same for the same input. A change here that touches the pod template restarts the
brokers of every queue at the next upgrade of the operator: the golden test says so.
"""

import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from partq.errors import SettingsError
from partq.kube import names
from partq.kube.bodies import Body, Manifest
from partq.kube.names import QueueKey
from partq.kube.objects import broker_policies, broker_tls, tokens
from partq.resources import API_VERSION, PartitionedQueue
from partq.settings import PREFIX, RedisUrl

GRACE_S = 30
"""How long a broker may take to shut down: it flushes acks and yields its partitions."""
_TOKENS_DIR = "/etc/partq/tokens"
_FIXED_USER = {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}
_ROUNDS = 10_000
"""A few milliseconds for each queue, once."""


class KubeObject(NamedTuple):
    """An object to apply."""

    path: str
    body: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """What the objects of a queue are made from."""

    queue: PartitionedQueue
    operator: str
    """Which installation makes them, as `names.operator_label`."""
    owner_uid: str
    """The whole uid of the resource."""
    store_uid: str
    """What the queue's keys are named by."""
    redis_url: str
    tokens_secret: str
    image: str
    image_pull_policy: str
    key_prefix: str
    log_level: str
    has_fixed_user: bool
    """Whether pods run as the image's user; else as one that the cluster assigns."""
    network_policy: str
    """As `OperatorSettings.broker_network_policy`."""
    server_version: tuple[int, int]

    @property
    def key(self) -> QueueKey:
        """Namespace and name."""
        return QueueKey(*self.queue.key)


def objects(plan: BrokerPlan) -> list[KubeObject]:
    """Return every object of a queue, in the order in which they are to be applied."""
    queue, namespace = plan.key.name, plan.key.namespace
    budget_version, budget = broker_policies.pod_disruption_budget(queue, plan.server_version)
    return [
        _object(plan, "v1", "secrets", "Secret", names.config_secret(queue), _config(plan)),
        _object(
            plan,
            "v1",
            "services",
            "Service",
            names.headless_service(queue),
            {
                "spec": {
                    "clusterIP": "None",
                    # Brokers find each other before they are ready.
                    "publishNotReadyAddresses": True,
                    "selector": names.selector(queue),
                    "ports": [broker_tls.service_port(plan.queue)],
                }
            },
        ),
        _object(
            plan,
            "v1",
            "services",
            "Service",
            names.client_service(queue),
            {
                "spec": {
                    "selector": names.selector(queue),
                    "ports": [broker_tls.service_port(plan.queue)],
                }
            },
        ),
        _object(
            plan,
            budget_version,
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            names.stateful_set(queue),
            {"spec": budget},
        ),
        *([_network_policy(plan)] if plan.network_policy != "none" else ()),
        KubeObject(
            f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{names.stateful_set(queue)}",
            stateful_set(plan),
        ),
    ]


def unwanted(plan: BrokerPlan) -> list[str]:
    """Return the paths of what a queue may have had from another plan, and is not to have."""
    return [_network_policy(plan).path] if plan.network_policy == "none" else []


def tokens_secret(plan_key: QueueKey, owner_uid: str) -> KubeObject:
    """Return a Secret with new tokens, one per role; those of groups are added as these come.

    Producers and consumers take the entries `produce` and `consume`, consumers of one group
    `consume-GROUP`; brokers read `tokens.json`, where a person can add tokens and rotate them with
    an overlap.
    """
    name = names.tokens_secret(plan_key.name)
    body: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(plan_key, owner_uid, name),
        "type": "Opaque",
        "data": encoded(tokens.first_entries(plan_key.name)),
    }
    return KubeObject(f"/api/v1/namespaces/{plan_key.namespace}/secrets", body)


def checked_redis_url(text: str) -> str:
    """Return a URL of Redis as it is used.

    Raises:
        SettingsError: it is not one; the message does not repeat it, it may hold a password.
    """
    try:
        return RedisUrl().read(text.strip())
    except ValueError as error:
        raise SettingsError(
            f"the URL of Redis: invalid (not shown, it may hold a password); expected {error}"
        ) from (None)


def stateful_set(plan: BrokerPlan) -> Manifest:
    """Return the StatefulSet of the brokers."""
    queue, brokers = plan.key.name, plan.queue.spec.brokers
    spec = {
        "replicas": brokers.replicas,
        "serviceName": names.headless_service(queue),
        # Brokers need not wait for each other; one at a time is for updates, not for starts.
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": names.selector(queue)},
        "template": {
            "metadata": {
                "labels": {**names.labels(queue), names.OPERATOR_LABEL: plan.operator},
                "annotations": {names.CONFIG_HASH: config_hash(plan)},
            },
            "spec": _pod_spec(plan),
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": _metadata(plan.key, plan.owner_uid, names.stateful_set(queue)),
        "spec": spec,
    }


def config_hash(plan: BrokerPlan) -> str:
    """Return what changes when brokers must read their Secret again.

    Tokens are not in it: brokers read their file again while they run.
    """
    return _digest(plan.redis_url, plan.owner_uid)


@lru_cache(maxsize=4096)
def _digest(secret: str, salt: str) -> str:
    """Return a digest to be seen by those who may not read the secret: guessing it is slow."""
    digest = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt.encode(), _ROUNDS)
    return digest.hex()[:16]


def _pod_spec(plan: BrokerPlan) -> Manifest:
    brokers = plan.queue.spec.brokers
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "securityContext": {
            "runAsNonRoot": True,
            **(_FIXED_USER if plan.has_fixed_user else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {"podAntiAffinity": _spread(plan.key.name)},
        "containers": [_container(plan)],
        "volumes": [
            {
                "name": "tokens",
                "secret": {
                    "secretName": plan.tokens_secret,
                    "items": [{"key": names.TOKENS_ENTRY, "path": names.TOKENS_ENTRY}],
                },
            },
            *broker_tls.volumes(plan.queue),
        ],
    }
    if brokers.node_selector:
        spec["nodeSelector"] = dict(brokers.node_selector)
    if brokers.tolerations:
        spec["tolerations"] = [
            each.model_dump(by_alias=True, exclude_none=True) for each in brokers.tolerations
        ]
    if brokers.priority_class_name:
        spec["priorityClassName"] = brokers.priority_class_name
    if brokers.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in brokers.image_pull_secrets]
    return spec


def _container(plan: BrokerPlan) -> Manifest:
    queue = plan.queue
    return {
        "name": names.BROKER_CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.image_pull_policy,
        "args": ["broker"],
        "env": _environment(plan),
        "ports": [broker_tls.container_port(queue)],
        "readinessProbe": broker_tls.probe(
            queue, "/readyz", timeoutSeconds=3, periodSeconds=2, failureThreshold=2
        ),
        "livenessProbe": broker_tls.probe(
            queue,
            "/healthz",
            timeoutSeconds=5,
            periodSeconds=10,
            initialDelaySeconds=10,
            failureThreshold=3,
        ),
        "resources": {
            kind: {name: str(quantity) for name, quantity in found.items()}
            for kind, found in (
                ("requests", queue.spec.brokers.resources.requests),
                ("limits", queue.spec.brokers.resources.limits),
            )
            if found
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tokens", "mountPath": _TOKENS_DIR, "readOnly": True},
            *broker_tls.mounts(queue),
        ],
    }


def _environment(plan: BrokerPlan) -> list[Manifest]:
    key = plan.key
    host = f"$(PARTQ_BROKER_ID).{names.headless_service(key.name)}.{key.namespace}.svc"
    values = {
        "PARTQ_NAMESPACE": key.namespace,
        "PARTQ_QUEUE": key.name,
        "PARTQ_QUEUE_UID": plan.store_uid,
        "PARTQ_KEY_PREFIX": plan.key_prefix,
        "PARTQ_LISTEN_HOST": "0.0.0.0",  # noqa: S104 - a pod's own network
        "PARTQ_LISTEN_PORT": str(names.BROKER_PORT),
        "PARTQ_ADVERTISED_URL": f"{broker_tls.scheme(plan.queue)}://{host}:{names.BROKER_PORT}",
        "PARTQ_TOKENS_FILE": f"{_TOKENS_DIR}/{names.TOKENS_ENTRY}",
        "PARTQ_LOG_LEVEL": plan.log_level,
        **broker_tls.environment(plan.queue),
        **plan.queue.spec.brokers.limits.environment(PREFIX),
    }
    secret = {"name": names.config_secret(key.name), "key": names.REDIS_ENTRY}
    plain: list[Manifest] = [{"name": name, "value": value} for name, value in values.items()]
    return [
        # First: Kubernetes expands $(...) only of what stands before.
        {"name": "PARTQ_BROKER_ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "PARTQ_REDIS_URL", "valueFrom": {"secretKeyRef": secret}},
        *plain,
    ]


def _spread(queue: str) -> Manifest:
    return {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": names.selector(queue)},
                },
            }
        ]
    }


def _network_policy(plan: BrokerPlan) -> KubeObject:
    spec = broker_policies.network_policy(
        plan.key.name, plan.redis_url, limits_egress=plan.network_policy == "full"
    )
    name = names.stateful_set(plan.key.name)
    version = "networking.k8s.io/v1"
    return _object(plan, version, "networkpolicies", "NetworkPolicy", name, {"spec": spec})


def _config(plan: BrokerPlan) -> Manifest:
    return {"type": "Opaque", "data": encoded({names.REDIS_ENTRY: plan.redis_url})}


def encoded(entries: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a Secret as its `data` has them."""
    return {name: b64encode(text.encode()).decode() for name, text in entries.items()}


def secret_entries(body: Body | None) -> dict[str, str]:
    """Return the entries of a Secret, none of None; those that are not text are left out."""
    found = {}
    data = body.get("data") if body is not None else None
    for name, text in (data or {}).items():
        with suppress(ValueError):
            found[name] = b64decode(text, validate=True).decode()
    return found


def _object(
    plan: BrokerPlan, version: str, plural: str, kind: str, name: str, rest: Mapping[str, object]
) -> KubeObject:
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    body = {
        "apiVersion": version,
        "kind": kind,
        "metadata": _metadata(plan.key, plan.owner_uid, name),
        **rest,
    }
    return KubeObject(f"{root}/namespaces/{plan.key.namespace}/{plural}/{name}", body)


def _metadata(key: QueueKey, owner_uid: str, name: str) -> Manifest:
    return {
        "name": name,
        "namespace": key.namespace,
        "labels": names.labels(key.name),
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "PartitionedQueue",
                "name": key.name,
                "uid": owner_uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
