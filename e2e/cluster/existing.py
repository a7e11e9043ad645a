"""A cluster that is there already: the one of E2E_KUBECONFIG."""

import os
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.base import Cluster
from e2e.cluster.commands import ClusterError
from e2e.cluster.images import SPARK

_IMAGE, _SPARK_IMAGE = "E2E_IMAGE", "E2E_SPARK_IMAGE"


class ExistingCluster(Cluster):
    """Somebody's cluster. It is neither made nor removed here, and images come from a registry."""

    def __init__(self, kubeconfig: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._kubeconfig = kubeconfig.absolute()
        self._images = {name: environ.get(name, "") for name in (_IMAGE, _SPARK_IMAGE)}

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig that was given."""
        return self._kubeconfig

    def prepare(self) -> None:
        """Do nothing: the cluster is there."""

    def up(self) -> None:
        """See that the cluster answers.

        Raises:
            ClusterError: it does not.
        """
        if not self._kubeconfig.exists():
            raise ClusterError(f"E2E_KUBECONFIG: no file {self._kubeconfig}")
        self.kubectl("get", "--raw", "/readyz", timeout_s=30)

    def down(self) -> None:
        """Do nothing: the cluster is not ours."""

    def build_image(self, context: Path, name: str, stage: str | None = None) -> None:
        """Do nothing: the owner of the cluster has built the images."""

    def project_image(self, context: Path, name: str) -> str:
        """Return the image of E2E_IMAGE, which somebody has put where the cluster finds it.

        Raises:
            ClusterError: E2E_IMAGE is not set.
        """
        return self._get(_IMAGE, f"docker build {context}", name)

    def spark_image(self, context: Path, name: str) -> str:
        """Return the image of E2E_SPARK_IMAGE, which somebody has put where the cluster finds it.

        Raises:
            ClusterError: E2E_SPARK_IMAGE is not set.
        """
        return self._get(_SPARK_IMAGE, f"docker build --target {SPARK} {context}", name)

    def redis_image(self, name: str) -> None:
        """Do nothing: the cluster pulls it."""

    def _get(self, variable: str, build: str, name: str) -> str:
        if image := self._images[variable]:
            return image
        raise ClusterError(
            f"build the image ({build}), push it where the cluster of E2E_KUBECONFIG can pull it, "
            f"and name it: {variable}=REGISTRY/{name}"
        )
