"""The chart as helm renders it, for installations that differ in all that values can turn."""

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import binaries

CHART = Path(__file__).parents[1] / "charts" / "partq"
TIMEOUT_S = 600
TEAMS = ("team-a", "team-b")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The kinds of our resources are long texts: in C they are read ten times as fast."""
_WITH_VERSION = re.compile(
    r'semverCompare ">=(\d+)\.(\d+)\.0-0" \.Capabilities\.KubeVersion\.Version\b'
)
_rendered: dict[tuple[str, tuple[int, int], str, str], str] = {}
"""What helm has printed: the same arguments give the same text."""

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "two namespaces": {"operator": {"namespaces": list(TEAMS)}},
    "shared cluster": {
        "crds": {"create": False},
        "operator": {"namespaces": list(TEAMS)},
        "redis": {"existingSecret": "redis-of-the-company", "existingSecretKey": "address"},
        "serviceAccount": {"create": False, "name": "queues"},
        "rbac": {"namespaceDeletion": False, "nodes": False},
        "networkPolicy": {"enabled": False},
    },
    "everything": {
        "image": {"repository": "example.org/partq", "tag": "9.9", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "crds": {"keep": False},
        "operator": {
            "replicas": 3,
            "leaseName": "queues",
            "keyPrefix": "queues-2",
            "logLevel": "debug",
            "podDeletionCost": False,
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "only", "operator": "Equal", "value": "queues"}],
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {
                                "matchLabels": {"app.kubernetes.io/name": "partq-operator"}
                            },
                        }
                    ]
                }
            },
            "podAnnotations": {"example.org/owner": "us"},
            "podLabels": {"tier": "data"},
        },
        "podSecurity": {"user": "assigned"},
        "broker": {"pullPolicy": "Always", "logLevel": "warning"},
        "redis": {
            "builtIn": {
                "maxMemory": "3gb",
                "appendFsync": "everysec",
                "resources": {"requests": {"cpu": "1", "memory": "4Gi"}},
                "persistence": {"size": "20Gi", "storageClass": "fast"},
            }
        },
        "serviceAccount": {"annotations": {"example.org/role": "operator"}},
        "monitoring": {
            "serviceMonitor": True,
            "tokenSecret": "scrapes",
            "podMonitor": True,
            "prometheusRule": True,
            "labels": {"release": "prometheus"},
            "dashboard": True,
        },
        "page": {
            "ingresses": [
                {"queue": "orders", "host": "orders.example.org"},
                {
                    "queue": "mail",
                    "namespace": "team-a",
                    "host": "mail.example.org",
                    "className": "nginx",
                    "tlsSecret": "mail-page",
                    "annotations": {"example.org/timeout": "60"},
                },
            ]
        },
    },
}
"""By name; each turns on or off what the others leave as it is."""


def find_helm() -> Path:
    """Return the helm of the PATH, else the one that the tests' cluster keeps.

    Without one the test is skipped, or fails where the API server's tests would fail, too.
    """
    if found := shutil.which("helm"):
        return Path(found)
    kept = binaries.directory() / "helm"
    if not kept.exists():
        message = f"no helm on the PATH and none at {kept}: `make test` and `make manifests` get it"
        if os.environ.get("PARTQ_REQUIRE_APISERVER") == "1" or os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return kept


def helm(*arguments: str, values: dict[str, Any], folder: Path) -> str:
    """Run helm on the chart with these values, and return what it prints.

    Raises:
        AssertionError: it fails; the message is what it says.
    """
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    # Not of the user: repositories, plugins and settings that only this machine has.
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    command, *options = arguments
    done = subprocess.run(
        [find_helm(), command, *options, "--values", file],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def _boundaries() -> list[tuple[int, int]]:
    """Return the versions of Kubernetes from which on the chart has something else.

    Raises:
        AssertionError: a template asks for the version in another way than `>=` a minor version.
    """
    found: set[tuple[int, int]] = set()
    for file in (CHART / "templates").rglob("*"):
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        compared = _WITH_VERSION.findall(text)
        asked = text.count("Capabilities.KubeVersion")
        assert len(compared) == asked, f"{file.name}: {asked} uses of the version of Kubernetes"
        found |= {(int(major), int(minor)) for major, minor in compared}
    return sorted(found)


def render(
    values: dict[str, Any],
    version: tuple[int, int],
    folder: Path,
    *,
    release: str = "partq",
    namespace: str = "default",
) -> list[dict[str, Any]]:
    """Return what the chart makes of these values for a version of Kubernetes.

    What `helm test` runs is in it. The cluster has the kinds of the Prometheus operator. Versions
    between which the chart compares nothing have one text: helm takes most of a second for it.
    """
    version = max((each for each in _boundaries() if each <= version), default=version)
    key = (json.dumps(values), version, release, namespace)
    if key not in _rendered:
        _rendered[key] = helm(
            *("template", release, str(CHART), "--namespace", namespace),
            *("--kube-version", f"{version[0]}.{version[1]}.0"),
            *("--api-versions", "monitoring.coreos.com/v1"),
            values=values,
            folder=folder,
        )
    return [body for body in yaml.load_all(_rendered[key], _Loader) if body]
