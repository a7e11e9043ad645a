"""The chart and the examples, applied to a real server without a trace: 1.20, where we built it.

A server-side apply is refused when the server does not know a field, which a plain creation is
not. Custom kinds that the server does not have (ServiceMonitor, PodMonitor) are left out.
"""

from pathlib import Path

import pytest
import yaml

from tests.kube.api_server.client import ApiError
from tests.rendering import TEAMS, VALUES, render

EXAMPLES = Path(__file__).parents[3] / "examples"
FOREIGN = "monitoring.coreos.com/v1"
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
PLURALS = {"NetworkPolicy": "networkpolicies", "Ingress": "ingresses"}


def path_of(body, namespace):
    """Return where the server has an object; each of our kinds has a regular plural but two."""
    version, kind, metadata = body["apiVersion"], body["kind"], body["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    scope = "" if kind in CLUSTER_WIDE else f"/namespaces/{metadata.get('namespace', namespace)}"
    return f"{root}{scope}/{plural}/{metadata['name']}"


def try_to_apply(stage, body):
    """Let the server judge an object; nothing is stored."""
    stage.kube.call(
        "PATCH",
        f"{path_of(body, stage.namespace)}?dryRun=All&force=true&fieldManager=tests",
        body,
        "application/apply-patch+yaml",
    )


@pytest.fixture(scope="module")
def server_version(stage):
    found = stage.kube.call("GET", "/version")
    return int(found["major"]), int(found["minor"].rstrip("+"))


@pytest.fixture(scope="module")
def teams(stage):
    for name in TEAMS:
        metadata = {"name": name}
        stage.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_server_knows_all_of_the_chart(stage, server_version, teams, values, tmp_path):
    bodies = render(values, server_version, tmp_path, namespace=stage.namespace)
    ours = [body for body in bodies if body["apiVersion"] != FOREIGN]
    assert len(ours) >= 5
    for body in ours:
        try_to_apply(stage, body)


@pytest.mark.parametrize(
    "name",
    [
        "queue.yaml",
        "consumers.yaml",
        "drained.yaml",
        "group-types.yaml",
        "producer.yaml",
        "spark/group.yaml",
        "spark/job.yaml",
        "spark/rbac.yaml",
    ],
)
def test_the_server_knows_all_of_the_examples(stage, name):
    bodies = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    assert bodies
    for body in bodies:
        try_to_apply(stage, body)


@pytest.mark.parametrize(
    ("kind", "version", "field"),
    [("Service", "v1", "prots"), ("NetworkPolicy", "networking.k8s.io/v1", "podSelektor")],
)
def test_a_field_that_the_server_does_not_know_is_refused(stage, kind, version, field):
    """Else the tests above would say nothing."""
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {field: {}}}
    with pytest.raises(ApiError, match="not declared in schema"):
        try_to_apply(stage, body)
