"""Pods without a kubelet: objects in the API, and processes of this machine that play them.

What the controllers of StatefulSets and Deployments and the kubelet would do is done here: pods
with their owner, Ready with an address, deletionTimestamp, the end of their containers, removal.
"""

import json
import ssl
import sys
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from partq.testing.tcp_ports import HOST, free_port
from partq.wire.tls import trust
from tests.authority import mount
from tests.kube.api_server.client import Body, Kube
from tests.kube.api_server.processes import Process, eventually

PARTQ = Path(sys.executable).with_name("partq")
NODE = "a-node"
"""Pods without a node are removed at once when they are deleted, without a grace period."""
GRACE_S = 30
LEASE_S = 10
"""Of a broker: longer than a busy machine lets a process wait."""
STARTED_AT = "2024-01-01T00:00:00Z"


class PlayedPod:
    """A pod of the API and the process that stands for its only container."""

    def __init__(self, kube: Kube, body: Mapping[str, Any]) -> None:
        self._kube = kube
        made = kube.create(body)
        self.namespace: str = made["metadata"]["namespace"]
        self.name: str = made["metadata"]["name"]
        self.uid: str = made["metadata"]["uid"]
        self._container: str = made["spec"]["containers"][0]["name"]
        self._restarts = 0
        self.process: Process | None = None

    def start(self, process: Process) -> None:
        """Let a process stand for the container."""
        self.process = process
        process.start()

    def report(self, *, is_ready: bool, running: bool = True) -> None:
        """Write what the kubelet would say of the pod."""
        state: Body = {"running": {"startedAt": STARTED_AT}}
        if not running:
            state = {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": STARTED_AT}}
        container = {
            "name": self._container,
            "image": "partq",
            "imageID": "",
            "ready": is_ready,
            "restartCount": self._restarts,
            "state": state,
        }
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        self._kube.patch(
            "Pod",
            self.namespace,
            self.name,
            {
                "status": {
                    "phase": "Running",
                    "podIP": HOST,
                    "podIPs": [{"ip": HOST}],
                    "conditions": [ready],
                    "containerStatuses": [container],
                }
            },
            part="status",
        )

    def crash(self) -> None:
        """Kill the process, as the kernel would when the memory is full; the pod stays."""
        assert self.process is not None
        self.process.kill()
        self.report(is_ready=False, running=False)

    def restart(self) -> None:
        """Start the container again, in the same pod."""
        assert self.process is not None
        self._restarts += 1
        self.process.start()
        self.report(is_ready=True)

    def delete(self) -> None:
        """Delete the pod as its owner or a person does: it is given its time to end."""
        assert self.process is not None
        self._kube.delete("Pod", self.namespace, self.name, grace_s=GRACE_S)
        self.process.terminate()

    def end(self) -> None:
        """Wait for the end of a process that was told to end, and remove the pod."""
        assert self.process is not None
        self.process.wait()
        self.report(is_ready=False, running=False)
        self.remove()

    def vanish(self) -> None:
        """Let the container die and its pod be removed, without a word to the process."""
        self.crash()
        self.remove()

    def remove(self) -> None:
        """Remove the object, whatever becomes of the process: a forced deletion."""
        self._kube.delete("Pod", self.namespace, self.name, grace_s=0)


class Owner:
    """A Deployment with its ReplicaSet, or a StatefulSet, of consumers."""

    def __init__(
        self, kube: Kube, namespace: str, name: str, *, kind: str, labels: Mapping[str, str]
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._labels = dict(labels)
        self._kind = kind
        self._count = 0
        self._hash = ""
        self._made = self._owner = kube.create(self._object(kind, name))
        if kind == "Deployment":
            self.roll_out("5d7f9c")

    def make_pod(self, name: str = "", *, node: str = NODE) -> PlayedPod:
        """Make a pod; without a name, the next one of its owner."""
        if not name:
            suffix = (
                f"{self._hash}-{self._count:05d}" if self._kind == "Deployment" else self._count
            )
            name = f"{self._name}-{suffix}"
            self._count += 1
            self._scale()
        return PlayedPod(
            self._kube,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": self._namespace,
                    "labels": self._labels,
                    "ownerReferences": [controller(self._owner)],
                },
                "spec": {**_POD_SPEC, "nodeName": node},
            },
        )

    def roll_out(self, template_hash: str) -> None:
        """Let the pods of a Deployment that are made from now on have another template."""
        self._hash = template_hash
        self._labels["pod-template-hash"] = template_hash
        name = f"{self._name}-{template_hash}"
        self._owner = self._kube.create(self._object("ReplicaSet", name, owner=self._made))

    def _scale(self) -> None:
        for kind, name in {(self._kind, self._name), _identity(self._owner)}:
            changes = {"spec": {"replicas": self._count}}
            self._kube.patch(kind, self._namespace, name, changes)

    def _object(self, kind: str, name: str, *, owner: Body | None = None) -> Body:
        spec: Body = {
            "replicas": 0,
            "selector": {"matchLabels": self._labels},
            "template": {"metadata": {"labels": self._labels}, "spec": _POD_SPEC},
        }
        if kind == "StatefulSet":
            spec["serviceName"] = name
        owners = [controller(owner)] if owner is not None else []
        return {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": self._labels,
                "ownerReferences": owners,
            },
            "spec": spec,
        }


class Brokers:
    """The pods of a queue's StatefulSet, as `partq broker` processes."""

    def __init__(
        self, kube: Kube, namespace: str, queue: str, folder: Path, *, lease_s: int = LEASE_S
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self.queue = queue
        self._lease_s = lease_s
        self._folder = folder
        self.pods: list[PlayedPod] = []
        self.urls: list[str] = []
        self.tls_dir = folder / f"{namespace}-{queue}-tls"
        """Where the certificate is mounted, when the queue has one."""
        self.tokens: dict[str, str] = {}
        """By role, once the brokers run."""
        self.tokens_file = folder / f"{namespace}-{queue}-tokens.json"
        """What would be mounted in each pod."""

    def start(self) -> None:
        """Wait for the StatefulSet, and have as many pods as it wants."""
        name = f"{self.queue}-broker"
        stateful_set = eventually(
            lambda: self._kube.get("StatefulSet", self._namespace, name), f"StatefulSet {name}"
        )
        started = []
        for number in range(len(self.pods), stateful_set["spec"]["replicas"]):
            pod = self._make(stateful_set, number)
            self.pods.append(pod)
            started.append((pod, self.urls[number]))
        for pod, url in started:
            trusted = trust(ca_file=self.tls_dir / "ca.crt") if url.startswith("https") else None
            eventually(partial(_answers, pod, f"{url}/readyz", trusted), f"{pod.name} is ready")
            pod.report(is_ready=True)

    def stop(self) -> None:
        """Kill the processes that still run."""
        for pod in self.pods:
            if pod.process is not None:
                pod.process.kill()

    def _make(self, stateful_set: Body, number: int) -> PlayedPod:
        template = deepcopy(stateful_set["spec"]["template"])
        (container,) = template["spec"]["containers"]
        # One network for all pods: each has a port of its own, and says which.
        port = container["ports"][0]["containerPort"] = free_port()
        scheme = container["ports"][0]["name"]
        name = f"{stateful_set['metadata']['name']}-{number}"
        pod = PlayedPod(
            self._kube,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **template["metadata"],
                    "name": name,
                    "namespace": self._namespace,
                    "ownerReferences": [controller(stateful_set)],
                },
                "spec": _on_node(template["spec"]),
            },
        )
        url = f"{scheme}://{HOST}:{port}"
        env = {
            **self._environment(container["env"], name),
            **self._tls(template["spec"]["volumes"]),
            # What differs from a pod: one network for all of them, and no mounted files.
            "PARTQ_LISTEN_HOST": HOST,
            "PARTQ_LISTEN_PORT": str(port),
            "PARTQ_ADVERTISED_URL": url,
            "PARTQ_TOKENS_FILE": str(self._mounted_tokens(template["spec"]["volumes"])),
            "PARTQ_LEASE_TTL_S": str(self._lease_s),
        }
        log = self._folder / f"{self._namespace}-{name}.log"
        self.urls.append(url)
        pod.start(Process([PARTQ, *container["args"]], log=log, env=env))
        return pod

    def _environment(self, entries: list[Body], pod_name: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in entries:
            match entry:
                case {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}:
                    found[name] = pod_name
                case {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}:
                    found[name] = self._secret(secret)[key]
                case {"name": name, "value": value}:
                    for known, text in found.items():
                        value = value.replace(f"$({known})", text)
                    found[name] = value
                case _:
                    raise AssertionError(f"a variable that this play does not know: {entry}")
        return found

    def _mounted_tokens(self, volumes: list[Body]) -> Path:
        (secret,) = (each["secret"] for each in volumes if each["name"] == "tokens")
        (item,) = secret["items"]
        self.tokens = self._secret(secret["secretName"])
        self.tokens_file.write_text(self.tokens[item["key"]])
        return self.tokens_file

    def _tls(self, volumes: list[Body]) -> dict[str, str]:
        """Mount the Secret of the certificate, if there is one."""
        for volume in volumes:
            if volume["name"] == "tls":
                entries = self._secret(volume["secret"]["secretName"])
                mount(self.tls_dir, {name: text.encode() for name, text in entries.items()})
                return {"PARTQ_TLS_DIR": str(self.tls_dir)}
        return {}

    def _secret(self, name: str) -> dict[str, str]:
        secret = self._kube.get("Secret", self._namespace, name)
        assert secret is not None, f"no Secret {name}"
        return {key: b64decode(text).decode() for key, text in secret["data"].items()}


_POD_SPEC: Body = {"containers": [{"name": "consumer", "image": "partq"}]}


def controller(owner: Body) -> Body:
    """Return the reference by which `owner` controls an object."""
    kind, name = _identity(owner)
    return {
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": name,
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def _identity(body: Body) -> tuple[str, str]:
    return body["kind"], body["metadata"]["name"]


def _on_node(spec: Mapping[str, Any]) -> Body:
    return {**spec, "nodeName": NODE}


def _answers(pod: PlayedPod, url: str, trusted: ssl.SSLContext | None) -> bool:
    assert pod.process is not None
    pod.process.require()
    try:
        with urllib.request.urlopen(url, timeout=2, context=trusted) as answer:
            return bool(json.load(answer))
    except (OSError, urllib.error.URLError):
        return False
