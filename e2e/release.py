"""The chart on a cluster: its images, its values, and what runs of it."""

from pathlib import Path

from e2e.cluster import Cluster

NAME = "partq"
NAMESPACE = "partq-system"
OPERATOR = "partq-operator"
OPERATOR_PODS = "app.kubernetes.io/name=partq-operator"
REDIS_POD = "partq-redis-0"
REDIS_IMAGE = "redis:7.4"
IMAGE_REPOSITORY, IMAGE_TAG = "partq", "e2e"
_HELM_S = 180.0


class Release:
    """The chart of a checkout, installed with two replicas of the operator."""

    def __init__(self, cluster: Cluster, checkout: Path) -> None:
        self.cluster = cluster
        self.image = f"{IMAGE_REPOSITORY}:{IMAGE_TAG}"
        self._checkout = checkout

    def load(self) -> None:
        """Make the images available to pods.

        Raises:
            ClusterError: one cannot be built or loaded.
        """
        self.image = self.cluster.project_image(self._checkout, self.image)
        self.cluster.redis_image(REDIS_IMAGE)

    def install(self, chart: Path | None = None, *values: str) -> None:
        """Install the chart, or upgrade to it; return when all of it is Ready.

        Raises:
            ClusterError: it is not, within three minutes.
        """
        repository, _, tag = self.image.rpartition(":")
        given = (f"image.repository={repository}", f"image.tag={tag}", "operator.replicas=2")
        self.cluster.helm(
            *("upgrade", "--install", NAME, str(chart or self._checkout / "charts" / "partq")),
            *("--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "150s"),
            *(f"--set={value}" for value in (*given, *values)),
            timeout_s=_HELM_S,
        )

    def kubectl(self, *args: str, timeout_s: float = _HELM_S) -> str:
        """Run kubectl in the release's namespace.

        Raises:
            ClusterError: it failed.
        """
        return self.cluster.kubectl("--namespace", NAMESPACE, *args, timeout_s=timeout_s)
