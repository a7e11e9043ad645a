"""Without helm: the files of `make manifests`, the operator deleted and back, and the way out."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.release import OPERATOR, Release
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[1]


def test_the_operator_of_the_files_goes_and_comes_and_takes_no_message(
    stage: Stage, release: Release, tmp_path: Path
) -> None:
    write(tmp_path, stage, release)
    redis, operator = tmp_path / "redis.yaml", tmp_path / "operator.yaml"

    with without_operators(stage, release):
        try:
            stage.kubectl("apply", f"--filename={redis}", f"--filename={operator}")
            stage.open()

            stage.kubectl("delete", f"--filename={operator}")
            stage.await_traffic()
            stage.kubectl("apply", f"--filename={operator}")
            stage.scale(3)
            stage.await_shared(3)
            stage.close()

            stage.kubectl("delete", "pq", "--all", "--timeout=60s")
        finally:
            files = (f"--filename={operator}", f"--filename={redis}")
            stage.kubectl("delete", *files, "--ignore-not-found")


def write(folder: Path, stage: Stage, release: Release) -> None:
    """Write the files, for an installation beside the release's, in the story's namespace."""
    version = json.loads(stage.kubectl("version", "--output=json"))["serverVersion"]["gitVersion"]
    repository, _, tag = release.image.rpartition(":")
    options = (
        f"--set=image.repository={repository},image.tag={tag},operator.namespaces={{{stage.namespace}}}",
        "--set=redis.builtIn.persistence.size=1Gi",
    )
    helm = Path(release.cluster.tool("helm")).parent
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "manifests.py", folder, *options],
        env={
            **os.environ,
            "PATH": f"{helm}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KUBE": version.removeprefix("v").partition("+")[0],
            "NAMESPACE": stage.namespace,
            "RELEASE": "plain",
        },
        check=True,
        timeout=60,
    )


@contextmanager
def without_operators(stage: Stage, release: Release) -> Iterator[None]:
    """Have no operator of the release meanwhile: two would serve the same queue."""
    release.kubectl("scale", "deployment", OPERATOR, "--replicas=0")
    release.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=110s")
    try:
        yield
    finally:
        release.kubectl("scale", "deployment", OPERATOR, "--replicas=2")
        release.kubectl("rollout", "status", f"deployment/{OPERATOR}", "--timeout=110s")

        def leads() -> bool:
            try:
                return bool(release.operators())
            except ClusterError:
                return False

        stage.eventually(leads, "an operator of the release leads again")
