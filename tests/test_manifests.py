"""The chart and the examples, held against the schemas of many versions of Kubernetes.

What 1.20 takes is asked of a real server, in tests/kube/api_server/test_manifests.py. Custom kinds
are in none of the schemas: ours are read by our own models, and those of the Prometheus operator
(ServiceMonitor, PodMonitor, PrometheusRule) are only seen to be rendered.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from partq.resources import API_VERSION, parse_resources
from tests.rendering import CHART, VALUES, find_helm, helm, render
from tests.schemas import VERSIONS, assert_valid

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
MONITORING = "monitoring.coreos.com/v1"


@pytest.fixture(params=VALUES)
def values(request):
    return VALUES[request.param]


def test_the_schemas_are_those_of_many_versions():
    assert VERSIONS[0] <= (1, 25)
    assert VERSIONS[-1] >= (1, 34)
    assert len(VERSIONS) >= 10


def test_helm_finds_nothing_to_complain_of(values, tmp_path):
    # `helm lint` cannot be told that a cluster has these kinds, and the chart insists on it.
    off = dict.fromkeys(("serviceMonitor", "podMonitor", "prometheusRule"), False)
    monitoring = {**values.get("monitoring", {}), **off}
    values = {**values, "monitoring": monitoring}
    said = helm("lint", str(CHART), "--strict", values=values, folder=tmp_path)
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: ".".join(map(str, each)))
def test_the_chart_fits_every_version(values, version, tmp_path):
    ours = []
    for body in render(values, version, tmp_path):
        if body["apiVersion"] == API_VERSION:
            ours.append(body)
        elif body["apiVersion"] != MONITORING:
            assert_valid(body, version)
    assert {each.metadata.name for each in parse_resources(yaml.safe_dump_all(ours)).queues}


def test_values_bring_what_they_say(tmp_path):
    kinds = {
        name: {body["kind"] for body in render(values, VERSIONS[-1], tmp_path)}
        for name, values in VALUES.items()
    }
    assert {"CustomResourceDefinition", "ClusterRole", "NetworkPolicy"} <= kinds["defaults"]
    assert {"ClusterRole", "Role"} <= kinds["two namespaces"]
    monitoring = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
    assert {*monitoring, "PodDisruptionBudget"} <= kinds["everything"]
    not_shared = {"CustomResourceDefinition", "ClusterRole", "StatefulSet", "ServiceAccount"}
    assert not kinds["shared cluster"] & not_shared


def write_manifests(folder, *options, **env):
    """Do what `make manifests` does; return the files' texts by name."""
    program = [sys.executable, ROOT / "scripts" / "manifests.py", folder, *options]
    path = f"{find_helm().parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(folder), "PYTHONPATH": str(ROOT), "KUBE": "1.31.0", **env}
    subprocess.run(program, env=env, check=True, timeout=600, stdout=subprocess.DEVNULL)
    return {file.name: file.read_text() for file in folder.glob("*.yaml")}


def test_what_is_deleted_with_the_operator_is_nothing_that_holds_messages(tmp_path):
    """`kubectl delete -f` is the way back that everybody tries first."""
    texts = write_manifests(tmp_path)
    kinds = {
        name: {body["kind"] for body in yaml.safe_load_all(text)} for name, text in texts.items()
    }
    assert kinds.keys() == {"crds.yaml", "operator.yaml", "redis.yaml"}
    assert kinds["crds.yaml"] == {"CustomResourceDefinition"}
    assert "StatefulSet" in kinds["redis.yaml"]
    holders = {"CustomResourceDefinition", "StatefulSet", "Namespace", "PersistentVolumeClaim"}
    assert not kinds["operator.yaml"] & holders
    assert all("Namespace" not in each for each in kinds.values())
    for name in ("crds.yaml", "redis.yaml"):
        assert "# WARNING" in texts[name].partition("---\n")[0]
    together = [body for text in texts.values() for body in yaml.safe_load_all(text)]
    whole = render({}, (1, 31), tmp_path, namespace="partq-system")
    names = {(body["kind"], body["metadata"]["name"]) for body in together}
    assert names == {
        (body["kind"], body["metadata"]["name"])
        for body in whole
        if "helm.sh/hook" not in body["metadata"].get("annotations", {})
    }
    for body in together:
        if body["apiVersion"] != API_VERSION:
            assert_valid(body, (1, 31))


def test_the_password_of_redis_stays_over_renderings(tmp_path):
    first = write_manifests(tmp_path)["redis.yaml"]
    assert (tmp_path / "redis.yaml").stat().st_mode & 0o077 == 0
    assert write_manifests(tmp_path)["redis.yaml"] == first


@pytest.mark.parametrize(
    "name",
    [
        "consumers.yaml",
        "drained.yaml",
        "producer.yaml",
        "spark/job.yaml",
        "spark/pod.yaml",
        "spark/rbac.yaml",
    ],
)
def test_the_examples_fit_every_version(name):
    bodies = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    assert bodies
    for version in VERSIONS:
        for body in bodies:
            assert_valid(body, version)


@pytest.mark.parametrize("name", ["group-types.yaml", "queue.yaml"])
def test_our_resources_in_the_examples_are_taken(name):
    resources = parse_resources((EXAMPLES / name).read_text())
    assert resources.queues
    assert resources.groups


def test_the_examples_have_each_type_that_cannot_be_changed():
    groups = parse_resources((EXAMPLES / "group-types.yaml").read_text()).groups
    assert {group.spec.type for group in groups} == {"KeyShared", "Session", "Shared"}
