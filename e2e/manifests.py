"""What a story puts into its namespace: the objects, as Kubernetes takes them."""

from typing import Any

from partq.resources import group_document, queue_document

QUEUE = "orders"
GROUP = "workers"
PRODUCER = "producer"
JOURNALS = "journals"
PARTITIONS = 16

_URL = f"http://{QUEUE}-partq:7411"
_UID = 65532
_JOURNAL_FOLDER = "/journals"
EVENTS_FILE = f"{_JOURNAL_FOLDER}/events.ndjson.gz"
"""Where the pod `JOURNALS` can put a file that the producer reads."""
_VOLUME = {"name": JOURNALS, "persistentVolumeClaim": {"claimName": JOURNALS}}
_MOUNT = {"name": JOURNALS, "mountPath": _JOURNAL_FOLDER}
READ_JOURNALS = ("sh", "-c", f"cat {_JOURNAL_FOLDER}/*.journal 2>/dev/null || true")
"""What to run in the pod `JOURNALS`: it prints every row that was written so far."""
CLEAR_JOURNALS = ("sh", "-c", f"rm -f {_JOURNAL_FOLDER}/*.journal")

PATIENT = {"delaySeconds": 300, "maxHandoffSeconds": 3}
"""Of a queue whose lost members come back, however long a busy machine needs for it."""

_HOLD_FILE = f"{_JOURNAL_FOLDER}/hold"
CAN_BE_HELD = ("--work-while", _HOLD_FILE)
"""Arguments for consumers: `HOLD` stops them."""
HOLD = ("touch", _HOLD_FILE)
"""What to run in the pod `JOURNALS`: no consumer finishes the message that it is processing."""
LET_GO = ("rm", _HOLD_FILE)
"""What to run there to let them continue."""


def queue(**spec: Any) -> dict[str, Any]:
    """Return a queue; a lost member may come back for 5 seconds, a handoff lasts at most 3."""
    usual = {
        "partitions": PARTITIONS,
        "brokers": {"replicas": 2},
        "rebalance": {"delaySeconds": 5, "maxHandoffSeconds": 3},
    }
    return queue_document(QUEUE, **{**usual, **spec})


def group(name: str = GROUP, **spec: Any) -> dict[str, Any]:
    """Return the consumer group of the pods of `consumers`; `spec`: what else it says."""
    return group_document(name, QUEUE, selector={"matchLabels": {"app": name}}, **spec)


def _worker(module: str) -> tuple[str, ...]:
    """Return the program of a worker; earlier images have it under `cli`."""
    program = (
        "import importlib.util as found, runpy; "
        "home = 'partq.lab' if found.find_spec('partq.lab') else 'partq.cli'; "
        f"runpy.run_module(f'{{home}}.workload.{module}', run_name='__main__', alter_sys=True)"
    )
    return ("python", "-c", program)


def journals(image: str) -> list[dict[str, Any]]:
    """Return the volume that outlives the pods which write to it, and a pod that reads it."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": JOURNALS},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    reader = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": JOURNALS, "labels": {"app": JOURNALS}},
        "spec": _pod_spec(_container("reader", image, ["sleep", "infinity"], []), grace_s=0),
    }
    return [claim, reader]


def consumers(
    image: str, replicas: int, *arguments: str, group: str = GROUP, program: str = "consumer"
) -> dict[str, Any]:
    """Return a Deployment of consumers that write down what they process.

    When it is rolled out, a new pod is there before an old one goes. `arguments`: of the consumer,
    beside where it works. `group`: of which it has the name, as its pods' containers have.
    `program`: which of the workload's.
    """
    command = [
        *(*_worker(program), "--group", group),
        *("--member", "$(PARTQ_MEMBER)", *arguments, *_arguments()),
    ]
    environment = [
        _token("consume"),
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "PARTQ_MEMBER", "value": f"$(POD_UID)/{group}"},
    ]
    labels = {"app": group}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": group},
        "spec": {
            "replicas": replicas,
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod_spec(_container(group, image, command, environment), beside=True),
            },
        },
    }


def producer(image: str, *arguments: str) -> dict[str, Any]:
    """Return a Job that publishes; deleted, it first finishes what it has begun.

    `arguments`: of the publisher, which say what and how fast.
    """
    program = (*_worker("publisher"), "--name", "p-1")
    command = [*program, *arguments, *_arguments()]
    spec = _pod_spec(_container("producer", image, command, [_token("produce")]), beside=True)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": PRODUCER},
        "spec": {
            "backoffLimit": 3,
            "template": {
                "metadata": {"labels": {"app": PRODUCER}},
                "spec": {**spec, "restartPolicy": "OnFailure"},
            },
        },
    }


def connection(namespace: str) -> dict[str, str]:
    """Return the environment of a command that speaks with the queue, all but its token."""
    return {"PARTQ_URL": _URL, "PARTQ_QUEUE": QUEUE, "PARTQ_NAMESPACE": namespace}


def _arguments() -> list[str]:
    return ["--url", _URL, "--queue", QUEUE, "--journal", _JOURNAL_FOLDER]


def _token(entry: str) -> dict[str, Any]:
    reference = {"name": f"{QUEUE}-tokens", "key": entry}
    return {"name": "PARTQ_TOKEN", "valueFrom": {"secretKeyRef": reference}}


def _container(
    name: str, image: str, command: list[str], environment: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": environment,
        "volumeMounts": [_MOUNT],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _pod_spec(
    container: dict[str, Any], *, grace_s: int = 30, beside: bool = False
) -> dict[str, Any]:
    """Return a pod's spec; `beside`: on the node of the pod that reads the journals."""
    neighbour = {
        "labelSelector": {"matchLabels": {"app": JOURNALS}},
        "topologyKey": "kubernetes.io/hostname",
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [neighbour]}}
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UID,
            "runAsGroup": _UID,
            "fsGroup": _UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [_VOLUME],
        **({"affinity": affinity} if beside else {}),
    }
