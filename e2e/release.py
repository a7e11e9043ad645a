"""The chart on a cluster: its images, its values, and what runs of it."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, ClusterError
from e2e.images import IMAGE

NAME = "partq"
NAMESPACE = "partq-system"
OPERATOR = "partq-operator"
OPERATOR_PODS = "app.kubernetes.io/name=partq-operator"
REDIS_POD = "partq-redis-0"
REDIS_IMAGE = "redis:7.4"
_HELM_S = 180.0


class Release:
    """The chart and the image of a checkout, installed with two replicas of the operator."""

    def __init__(self, cluster: Cluster, checkout: Path, image: str = IMAGE) -> None:
        self.cluster = cluster
        self.image = image
        self._checkout = checkout
        self._run = f"{time.time():.0f}"

    def load(self) -> None:
        """Make the image available to pods, and that of Redis.

        Raises:
            ClusterError: one cannot be built or loaded.
        """
        self.load_project()
        self.cluster.redis_image(REDIS_IMAGE)

    def load_project(self) -> None:
        """Make the image available to pods.

        Raises:
            ClusterError: it cannot be built or loaded.
        """
        self.image = self.cluster.project_image(self._checkout, self.image)

    def install(self) -> None:
        """Install the chart, or upgrade to it; return when all of it is Ready.

        Raises:
            ClusterError: it is not, within three minutes.
        """
        repository, _, tag = self.image.rpartition(":")
        given = (f"image.repository={repository}", f"image.tag={tag}", "operator.replicas=2")
        self.cluster.helm(
            *("upgrade", "--install", NAME, str(self._checkout / "charts" / "partq")),
            *("--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "150s"),
            *(f"--set={value}" for value in given),
            # On a cluster that was kept the image may be another under the same name.
            f"--set-string=operator.podAnnotations.e2e-run={self._run}",
            timeout_s=_HELM_S,
        )

    def operators(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the pod of the operator that leads, and the one that stands by.

        Raises:
            ClusterError: there are not just two, of which one leads.
        """
        leader = self._get("lease", OPERATOR)["spec"]["holderIdentity"]
        pods = self._get("pods", "--selector", OPERATOR_PODS)["items"]
        pods.sort(key=lambda pod: pod["metadata"]["name"] != leader)
        names = [pod["metadata"]["name"] for pod in pods]
        if len(names) != 2 or names[0] != leader:
            raise ClusterError(f"the leader is {leader!r}, the pods of the operator are {names}")
        return pods[0], pods[1]

    def redis(self) -> dict[str, Any]:
        """Return the pod of Redis."""
        return self._get("pod", REDIS_POD)

    def remove(self, pod: Mapping[str, Any]) -> None:
        """Delete a pod by force: nobody waits for its end.

        Raises:
            ClusterError: there is no such pod.
        """
        self.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")

    def kubectl(self, *args: str, timeout_s: float = _HELM_S) -> str:
        """Run kubectl in the release's namespace.

        Raises:
            ClusterError: it failed.
        """
        return self.cluster.kubectl("--namespace", NAMESPACE, *args, timeout_s=timeout_s)

    def _get(self, *args: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *args, "--output", "json"))
        return found
