"""The interface that tests and the demo use, the same for every kind of cluster."""

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.commands import ClusterError, run

TIMEOUT_S = 120.0


class Cluster(ABC):
    """A Kubernetes cluster for the time of a test run.

    `up` and `down` can be repeated. What is called in between reaches the cluster from wherever
    this process runs. An address inside the cluster is reached from its pods: ask there, with
    `kubectl exec`; `run` reaches it on some kinds of cluster only.
    """

    @property
    @abstractmethod
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""

    @abstractmethod
    def prepare(self) -> None:
        """Make ahead of time what `up` takes long to make, where it makes anything.

        Raises:
            ClusterError: it could not be made.
        """

    @abstractmethod
    def up(self) -> None:
        """Make the cluster, or find it there, and return when pods can run.

        Raises:
            ClusterError: it could not be made; the message says what to do.
        """

    @abstractmethod
    def down(self) -> None:
        """Remove what `up` made, and nothing else."""

    @abstractmethod
    def build_image(self, context: Path, name: str, stage: str | None = None) -> None:
        """Build an image of the project ahead of time, so that pods have it sooner later.

        Needs no cluster. Where the images of a cluster are made elsewhere, nothing is done.

        Args:
            context: a checkout, with its Dockerfile.
            name: the image's name and tag.
            stage: of the Dockerfile; None: the last one.

        Raises:
            ClusterError: it could not be built.
        """

    @abstractmethod
    def project_image(self, context: Path, name: str) -> str:
        """Make the image of the project in the folder `context` available to pods.

        Args:
            context: a checkout, with its Dockerfile.
            name: the image's name and tag.

        Returns:
            The name that pods use, with `imagePullPolicy: Never` or `IfNotPresent`.

        Raises:
            ClusterError: it could not be built or loaded.
        """

    @abstractmethod
    def spark_image(self, context: Path, name: str) -> str:
        """Make the project's image for jobs of Spark available to pods; as `project_image`.

        Raises:
            ClusterError: it could not be built or loaded.
        """

    @abstractmethod
    def redis_image(self, name: str) -> None:
        """See that pods can use an image of Redis by `name`, the chart's own.

        Raises:
            ClusterError: it could not be built or loaded.
        """

    def command(self, *argv: str) -> list[str]:
        """Return a command that runs `argv` from where the cluster can be reached."""
        return list(argv)

    def environment(self) -> Mapping[str, str]:
        """Return the variables under which kubectl and helm find the cluster, and are found."""
        return {"KUBECONFIG": str(self.kubeconfig)}

    def run(
        self, *argv: str, stdin: str = "", check: bool = True, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that talks to the cluster; see `commands.run`.

        Raises:
            ClusterError: no end in `timeout_s`, or (with `check`) an exit status other than 0.
        """
        return run(
            self.command(*argv),
            stdin=stdin,
            check=check,
            timeout_s=timeout_s,
            env=self.environment(),
        )

    def kubectl(
        self, *args: str, stdin: str = "", check: bool = True, timeout_s: float = TIMEOUT_S
    ) -> str:
        """Run kubectl and return what it prints.

        Raises:
            ClusterError: as of `run`.
        """
        argv = [self.tool("kubectl"), *args]
        return self.run(*argv, stdin=stdin, check=check, timeout_s=timeout_s).stdout

    def helm(self, *args: str, check: bool = True, timeout_s: float = 600.0) -> str:
        """Run helm and return what it prints.

        Raises:
            ClusterError: as of `run`.
        """
        return self.run(self.tool("helm"), *args, check=check, timeout_s=timeout_s).stdout

    def tool(self, name: str) -> str:
        """Return the path of `kubectl` or `helm`.

        Raises:
            ClusterError: no such program on the PATH.
        """
        if found := shutil.which(name):
            return found
        if name == "helm":
            return str(binaries.helm())
        raise ClusterError(f"no {name} on the PATH: {os.environ.get('PATH', '')}")
