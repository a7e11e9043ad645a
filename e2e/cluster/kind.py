"""A cluster of kind, wherever Docker answers."""

import shutil
from pathlib import Path

from e2e.cluster.base import Cluster
from e2e.cluster.commands import ClusterError, run, say
from e2e.cluster.images import SPARK
from e2e.cluster.local import default_state

_NAME = "partq-e2e"
_CONFIG = Path(__file__).resolve().parents[1] / "kind.yaml"
_UP_TIMEOUT_S = 900.0
_BUILD_TIMEOUT_S = 900.0


def is_usable() -> bool:
    """Say whether Docker answers and kind is installed."""
    if shutil.which("docker") is None or shutil.which("kind") is None:
        return False
    try:
        return run(["docker", "info"], timeout_s=20, check=False).returncode == 0
    except ClusterError:
        return False


class KindCluster(Cluster):
    """A cluster of kind with a separate kubeconfig: the user's is left alone."""

    def __init__(self, state: Path | None = None) -> None:
        self._state = (state or default_state().with_name("kind")).absolute()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that kind has written."""
        return self._state / "kubeconfig"

    def prepare(self) -> None:
        """Do nothing: kind downloads what it needs."""

    def up(self) -> None:
        """Make the cluster, unless it is there.

        Raises:
            ClusterError: kind failed.
        """
        self._state.mkdir(parents=True, exist_ok=True)
        if _NAME in run(["kind", "get", "clusters"], timeout_s=60).stdout.split():
            say("it runs already")
            kubeconfig = run(["kind", "get", "kubeconfig", "--name", _NAME], timeout_s=60).stdout
            self.kubeconfig.touch(mode=0o600)
            self.kubeconfig.write_text(kubeconfig)
            return
        say("creating a cluster with kind: one to five minutes, the first time")
        run(
            [
                *("kind", "create", "cluster", "--name", _NAME, "--config", str(_CONFIG)),
                *("--kubeconfig", str(self.kubeconfig), "--wait", "300s"),
            ],
            timeout_s=_UP_TIMEOUT_S,
        )

    def down(self) -> None:
        """Delete the cluster.

        Raises:
            ClusterError: kind failed.
        """
        run(
            ["kind", "delete", "cluster", "--name", _NAME, "--kubeconfig", str(self.kubeconfig)],
            timeout_s=300,
        )

    def build_image(self, context: Path, name: str, stage: str | None = None) -> None:
        """Build an image of the project with Docker.

        Raises:
            ClusterError: docker failed.
        """
        say(f"building {name}")
        target = () if stage is None else ("--target", stage)
        run(["docker", "build", *target, "--tag", name, str(context)], timeout_s=_BUILD_TIMEOUT_S)

    def project_image(self, context: Path, name: str) -> str:
        """Build the image with Docker and load it into the node.

        Raises:
            ClusterError: docker or kind failed.
        """
        return self._load(context, name, None)

    def spark_image(self, context: Path, name: str) -> str:
        """Build the image for Spark with Docker and load it into the node.

        Raises:
            ClusterError: docker or kind failed.
        """
        return self._load(context, name, SPARK)

    def redis_image(self, name: str) -> None:
        """Do nothing: the node pulls it."""

    def _load(self, context: Path, name: str, stage: str | None) -> str:
        self.build_image(context, name, stage)
        run(["kind", "load", "docker-image", "--name", _NAME, name], timeout_s=300)
        return name
