"""Clusters to test on: one that is given, one of kind, or one of this machine's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import debian, kind
from e2e.cluster.base import Cluster
from e2e.cluster.commands import ClusterError
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import KindCluster
from e2e.cluster.local import LocalCluster

__all__ = ["Cluster", "ClusterError", "ExistingCluster", "KindCluster", "LocalCluster", "choose"]


def choose(environ: Mapping[str, str] = os.environ) -> Cluster:
    """Return the cluster to use: that of E2E_KUBECONFIG, else kind, else this machine's own.

    Raises:
        ClusterError: this machine can have none of them.
    """
    if given := environ.get("E2E_KUBECONFIG"):
        return ExistingCluster(Path(given), environ)
    if kind.is_usable():
        return KindCluster()
    debian.require()
    return LocalCluster()
