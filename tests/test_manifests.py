"""The chart and the examples, held against the schemas of many versions of Kubernetes.

What 1.20 takes is asked of a real server, in tests/kube/api_server/test_manifests.py. Custom kinds
are in none of the schemas: ours are read by our own models, and those of the Prometheus operator
(ServiceMonitor, PodMonitor) are only seen to be rendered.
"""

from pathlib import Path

import pytest
import yaml

from partq.resources import API_VERSION, parse_resources
from tests.rendering import CHART, VALUES, helm, render
from tests.schemas import VERSIONS, assert_valid

EXAMPLES = Path(__file__).parents[1] / "examples"
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
    monitoring = {**values.get("monitoring", {}), "serviceMonitor": False, "podMonitor": False}
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
    assert {"ServiceMonitor", "PodMonitor", "PodDisruptionBudget"} <= kinds["everything"]
    not_shared = {"CustomResourceDefinition", "ClusterRole", "StatefulSet", "ServiceAccount"}
    assert not kinds["shared cluster"] & not_shared


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
