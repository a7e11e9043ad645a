"""Clusters to test on: one that is given, one of kind, or one of this machine's own."""

import os
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import debian, kind
from e2e.cluster.base import Cluster
from e2e.cluster.commands import ClusterError
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import KindCluster
from e2e.cluster.local import LocalCluster, default_state

__all__ = ["Cluster", "ClusterError", "ExistingCluster", "KindCluster", "LocalCluster", "choose"]


def choose(environ: Mapping[str, str] = os.environ, *, number: int = 0) -> Cluster:
    """Return the cluster to use: that of E2E_KUBECONFIG, else kind, else this machine's own.

    `number`: of those that run at the same time, which only the machine's own ones can.

    Raises:
        ClusterError: this machine can have none of them, or not several.
    """
    given = environ.get("E2E_KUBECONFIG")
    if given or kind.is_usable():
        if number:
            raise ClusterError("only local clusters can run at once; leave out CLUSTERS")
        return ExistingCluster(Path(given), environ) if given else KindCluster()
    debian.require()
    state = default_state(environ)
    return LocalCluster(state.with_name(f"{state.name}-{number}") if number else state)
