"""What the API of Kubernetes cannot do: end the processes of a pod by kill -9, as a crash would.

A pod that is deleted by force still hears of it two seconds before; and no process of a container
can kill its first one. So a pod on each node, which sees the processes of all others, does it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from e2e.cluster import Cluster
from e2e.cluster.commands import wait_for

NAMESPACE = "partq-e2e-nodes"
_NAME = "nodes"
_READY_S = 60.0
_KILL = """
import os, pathlib, sys
killed = 0
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        group = (process / "cgroup").read_text().replace("_", "-")
        program = (process / "cmdline").read_bytes()
        # The process that holds the pod's namespaces is no part of the program.
        if not program.startswith(b"/pause") and any(uid in group for uid in sys.argv[1:]):
            os.kill(int(process.name), 9)
            killed += 1
    except (FileNotFoundError, ProcessLookupError):
        pass  # it has ended meanwhile
sys.exit(0 if killed else "no process of these pods")
"""


class Nodes:
    """The nodes of a cluster."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self._cluster = cluster
        self._image = image

    def open(self) -> None:
        """Have a pod on each node; repeatable.

        Raises:
            ClusterError: they are not Ready within a minute.
        """
        document = {"apiVersion": "v1", "kind": "List", "items": _objects(self._image)}
        self._kubectl("apply", "--filename", "-", stdin=json.dumps(document))
        wait = ("--timeout", f"{_READY_S:.0f}s")
        self._kubectl("rollout", "status", f"daemonset/{_NAME}", *wait, timeout_s=_READY_S + 10)

    def kill(self, *pods: Mapping[str, Any]) -> None:
        """Kill every process of each of `pods`, as `kubectl get` shows them, with -9.

        The pods stay, and their containers are started again. Pods of one node die together.

        Raises:
            ClusterError: none of their processes runs.
        """
        killers = {
            pod["spec"]["nodeName"]: pod["metadata"]["name"]
            for pod in json.loads(self._kubectl("get", "pods", "--output", "json"))["items"]
        }
        doomed: dict[str, list[str]] = defaultdict(list)
        for pod in pods:
            doomed[pod["spec"]["nodeName"]].append(pod["metadata"]["uid"])
        for node, uids in doomed.items():
            self._kubectl("exec", killers[node], "--", "python3", "-c", _KILL, *uids)

    def await_again(self, pod: Mapping[str, Any]) -> None:
        """Wait until `pod`, as it was seen, has been started again, or another has its name.

        Raises:
            ClusterError: neither runs and is Ready after a minute.
        """
        before, metadata = _life(pod), pod["metadata"]
        name = ("--namespace", metadata["namespace"], "get", "pod", metadata["name"])

        def runs_again() -> bool:
            text = self._cluster.kubectl(*name, "--ignore-not-found", "--output", "json")
            found = json.loads(text) if text else None
            return found is not None and _life(found) != before and _is_ready(found)

        wait_for(f"another start of {metadata['name']}", runs_again, timeout_s=_READY_S)

    def _kubectl(self, *args: str, stdin: str = "", timeout_s: float = _READY_S) -> str:
        return self._cluster.kubectl(
            "--namespace", NAMESPACE, *args, stdin=stdin, timeout_s=timeout_s
        )


def _life(pod: Mapping[str, Any]) -> tuple[str, int]:
    """Return what another start changes: the pod's uid, and how often its containers began."""
    containers = pod["status"].get("containerStatuses") or ()
    return pod["metadata"]["uid"], sum(each["restartCount"] for each in containers)


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _objects(image: str) -> list[dict[str, Any]]:
    container = {
        "name": "shell",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["KILL"]},
        },
    }
    labels = {"app": _NAME}
    spec = {
        "hostPID": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            # Where pods are restricted by default, these need to be let through.
            "metadata": {
                "name": NAMESPACE,
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": _NAME, "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]
