"""The chart: the same resource kinds as `crds/`, and what its values decide."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from partq.core.views.rescale_status import RescalePhase
from partq.kube import names
from partq.operator_metrics import OperatorMetrics
from partq.settings import OperatorSettings
from tests.rendering import CHART, helm, render

VERSION = (1, 31)
ROOT = Path(__file__).parent.parent
KINDS = sorted(path.name for path in (ROOT / "crds").glob("*.yaml"))


@pytest.mark.parametrize("name", KINDS)
def test_the_chart_has_the_same_text(name):
    """`partq crds` writes one, a copy serves the other; neither is edited."""
    chart = ROOT / "charts" / "partq" / "files" / "crds"
    assert (chart / name).read_text() == (ROOT / "crds" / name).read_text()


def test_the_chart_has_no_other_kinds():
    """A kind that is gone from `crds/` is gone from the chart."""
    chart = ROOT / "charts" / "partq" / "files" / "crds"
    assert sorted(path.name for path in chart.iterdir()) == KINDS


def rendered(folder, values, kind, name=None, *, version=VERSION, release="partq"):
    """Return the objects of a kind, or the one of a name."""
    bodies = render(values, version, folder, release=release)
    found = [body for body in bodies if body["kind"] == kind]
    if name is None:
        return found
    (one,) = [body for body in found if body["metadata"]["name"] == name]
    return one


def test_with_namespaces_little_is_allowed_elsewhere(tmp_path):
    """What it takes to end a queue whose namespace is deleted, and with it the Role there."""
    values = {"operator": {"namespaces": ["team-a"]}}
    role, nodes = rendered(tmp_path, values, "ClusterRole")
    bindings = rendered(tmp_path, values, "ClusterRoleBinding")
    assert [each["roleRef"]["name"] for each in bindings] == [
        each["metadata"]["name"] for each in (role, nodes)
    ]
    assert nodes["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    ]
    written = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert written == {("partitionedqueues", "patch"), ("statefulsets", "delete")}
    read = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert "secrets" not in read

    values["rbac"] = {"namespaceDeletion": False, "nodes": False}
    assert rendered(tmp_path, values, "ClusterRole") == []
    assert rendered(tmp_path, values, "ClusterRoleBinding") == []


@pytest.mark.req("PUL-59")
def test_queues_are_made_where_they_are_served_and_never_deleted(tmp_path):
    values = {"operator": {"namespaces": ["team-a"]}}
    roles = [*rendered(tmp_path, values, "Role"), *rendered(tmp_path, values, "ClusterRole")]
    verbs = {
        (role["metadata"].get("namespace"), verb)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        if "partitionedqueues" in rule["resources"] and verb not in ("get", "list", "watch")
    }
    assert verbs == {("team-a", "create"), ("team-a", "patch"), (None, "patch")}


@pytest.mark.parametrize("namespaces", [[], ["team-a"]], ids=["everywhere", "a namespace"])
@pytest.mark.parametrize("is_written", [True, False])
def test_pods_are_changed_only_where_their_cost_is_wanted(tmp_path, namespaces, is_written):
    values = {"operator": {"namespaces": namespaces, "podDeletionCost": is_written}}
    roles = [*rendered(tmp_path, values, "Role"), *rendered(tmp_path, values, "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]
    patched = {name for rule in rules if "patch" in rule["verbs"] for name in rule["resources"]}
    assert ("pods" in patched) is is_written
    assert settings(tmp_path, values).pod_deletion_cost == ("written" if is_written else "off")


def pod_template(folder, values):
    return rendered(folder, values, "Deployment", "partq-operator")["spec"]["template"]


def test_another_redis_restarts_the_operator(tmp_path):
    """It reads the URL from a Secret, and at its start only."""
    one, same, other = (
        pod_template(tmp_path, {"redis": {"url": f"redis://:{password}@one:6379/0"}})
        for password in ("hunter2", "hunter2", "hunter3")
    )
    assert one == same
    assert one != other
    assert "hunter2" not in str(one)


def test_a_secret_of_ones_own_is_not_looked_into(tmp_path):
    values = {"redis": {"existingSecret": "redis"}}
    assert "annotations" not in pod_template(tmp_path, values)["metadata"]
    values["operator"] = {"podAnnotations": {"example.org/owner": "us"}}
    assert pod_template(tmp_path, values)["metadata"]["annotations"] == {"example.org/owner": "us"}


def settings(folder, values, release="partq"):
    """Return what the operator reads of its container's environment."""
    (deployment,) = rendered(folder, values, "Deployment", release=release)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    pod = {"PARTQ_POD_NAME": "operator-0", "PARTQ_POD_NAMESPACE": "default"}
    return OperatorSettings.from_env({**env, **pod})


@pytest.mark.parametrize(
    ("redis", "expected"),
    [
        ({}, "persistent"),
        ({"builtIn": {"persistence": {"enabled": False}}}, "ephemeral"),
        (
            {"url": "redis://one:6379/0", "builtIn": {"persistence": {"enabled": False}}},
            "persistent",
        ),
    ],
)
def test_the_operator_knows_whether_its_redis_has_a_volume(tmp_path, redis, expected):
    assert settings(tmp_path, {"redis": redis}).redis_storage == expected


def test_scrapes_of_the_operator_may_need_a_token(tmp_path):
    """The operator and the ServiceMonitor take it from the same entry."""
    place = {"name": "scrapes", "key": "token"}
    values = {"monitoring": {"serviceMonitor": True, "tokenSecret": "scrapes"}}
    (deployment,) = rendered(tmp_path, values, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each for each in container["env"]}
    assert env["PARTQ_METRICS_TOKEN"]["valueFrom"] == {"secretKeyRef": place}
    (monitor,) = rendered(tmp_path, values, "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["authorization"] == {"credentials": place}
    (deployment,) = rendered(tmp_path, {}, "Deployment")
    assert "PARTQ_METRICS_TOKEN" not in str(deployment)


def test_the_alerts_are_on_what_the_operator_serves(tmp_path):
    """Each on a phase that a change leaves by itself, unless something is wrong."""
    assert rendered(tmp_path, {}, "PrometheusRule") == []
    values = {"monitoring": {"prometheusRule": True}}
    (rule,) = rendered(tmp_path, values, "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    found = {each["expr"]: each["for"] for each in group["rules"]}
    expected = {}
    metrics = OperatorMetrics()
    for phase, long in (("Preparing", "15m"), ("Opening", "5m"), ("Draining", "1h")):
        metrics.observe_rescale("ns", "orders", RescalePhase(phase), 0)
        name = f'partq_rescale_phase{{namespace="ns",phase="{phase}",queue="orders"}} 1.0'
        assert name in metrics.render().decode()
        expected[f'partq_rescale_phase{{phase="{phase}"}} == 1'] = long
    assert found == expected
    assert all("{{ $labels.queue }}" in r["annotations"]["summary"] for r in group["rules"])


def test_the_hosts_that_queues_may_name(tmp_path):
    assert settings(tmp_path, {}).redis_host_list == ()
    values = {"redis": {"allowedHosts": ["*.example.org", "10.0.0.7"]}}
    assert settings(tmp_path, values).redis_host_list == ("*.example.org", "10.0.0.7")


def test_two_releases_of_a_namespace_have_a_lease_each(tmp_path):
    one, other = (settings(tmp_path, {}, release) for release in ("partq", "second"))
    assert (one.lease_name, one.key_prefix) == ("partq-operator", "partq")
    assert other.lease_name == "second-partq-operator"
    named = settings(tmp_path, {"operator": {"leaseName": "mine", "keyPrefix": "mine-2"}})
    assert (named.lease_name, named.key_prefix) == ("mine", "mine-2")


def test_what_is_the_operators_alone_restarts_no_broker(tmp_path):
    """Both would be in the template of every broker pod."""
    found = settings(
        tmp_path, {"image": {"pullPolicy": "Always"}, "operator": {"logLevel": "debug"}}
    )
    assert (found.broker_image_pull_policy, found.broker_log_level) == ("IfNotPresent", "info")
    assert found.log_level == "debug"
    found = settings(tmp_path, {"broker": {"pullPolicy": "Never", "logLevel": "debug"}})
    assert (found.broker_image_pull_policy, found.broker_log_level) == ("Never", "debug")
    assert found.log_level == "info"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, "full"),
        ({"brokerEgress": False}, "ingress"),
        ({"enabled": False}, "none"),
        ({"enabled": False, "brokerEgress": True}, "none"),
    ],
)
def test_the_switch_of_network_policies_is_the_brokers_too(tmp_path, values, expected):
    values = {"networkPolicy": values}
    assert settings(tmp_path, values).broker_network_policy == expected
    assert bool(rendered(tmp_path, values, "NetworkPolicy")) is (expected != "none")


@pytest.mark.parametrize(
    ("version", "expected", "evicts_unready"),
    [
        ((1, 20), "policy/v1beta1", None),
        ((1, 21), "policy/v1", None),
        ((1, 27), "policy/v1", "AlwaysAllow"),
        ((1, 31), "policy/v1", "AlwaysAllow"),
    ],
)
def test_the_disruption_budget_is_of_the_version(tmp_path, version, expected, evicts_unready):
    """Also where no cluster is asked which kinds it has."""
    values = {"operator": {"replicas": 2}}
    (budget,) = rendered(tmp_path, values, "PodDisruptionBudget", version=version)
    assert budget["apiVersion"] == expected
    assert budget["spec"].get("unhealthyPodEvictionPolicy") == evicts_unready


@pytest.mark.parametrize(
    ("namespaces", "complaint"),
    [
        (["team-a", "team-a"], "unique"),
        (["Team-A"], "pattern"),
        ([""], "pattern"),
        (["team-a,team-b"], "pattern"),
        (["a" * 64], "pattern"),
    ],
)
def test_namespaces_that_could_not_be_served_are_refused(tmp_path, namespaces, complaint):
    with pytest.raises(AssertionError, match=complaint):
        render({"operator": {"namespaces": namespaces}}, VERSION, tmp_path)


@pytest.mark.parametrize("user", ["fixed", "assigned"])
def test_the_user_of_every_pod(tmp_path, user):
    values = {"podSecurity": {"user": user}}
    assert settings(tmp_path, values).broker_user == user
    found = [body for body in render(values, VERSION, tmp_path) if "spec" in body]
    templates = [body["spec"]["template"] for body in found if "template" in body["spec"]]
    pods = [*templates, *(body for body in found if body["kind"] == "Pod")]
    contexts = [pod["spec"]["securityContext"] for pod in pods]
    assert len(contexts) == 3, "operator, Redis, and what helm test runs"
    for context in contexts:
        assert context["runAsNonRoot"] is True
        assert context.get("runAsUser") == (65532 if user == "fixed" else None)
        assert context.get("fsGroup") == context.get("runAsUser")


@pytest.mark.parametrize(
    ("memory", "size", "is_enough"),
    [
        ("512mb", "8Gi", True),
        ("3gb", "12Gi", True),
        ("3gb", "11.9Gi", False),
        ("2gb", "8000Mi", False),
        ("524288kb", "2Gi", True),
    ],
)
def test_a_volume_that_is_small_for_the_memory_is_warned_of(tmp_path, memory, size, is_enough):
    """Whoever raises the memory alone gets a Redis that ends itself when the disk is full."""
    built_in = {"maxMemory": memory, "persistence": {"size": size}}
    text = notes({"redis": {"builtIn": built_in}}, tmp_path)
    assert ("WARNING" in text) == (not is_enough), text
    assert f"expected at least 4 x redis.builtIn.maxMemory ({memory})" in text or is_enough


def test_the_notes_say_what_is_watched_and_warn_of_no_volume(tmp_path):
    text = notes({"redis": {"builtIn": {"persistence": {"enabled": False}}}}, tmp_path)
    assert "WARNING: redis.builtIn.persistence.enabled is false" in text
    assert text.count("WARNING") == 1
    other = {"redis": {"url": "redis://elsewhere:6379"}, "operator": {"namespaces": ["team-a"]}}
    assert "the namespaces team-a" in (text := notes(other, tmp_path))
    assert "maxMemory" not in text


def notes(values, folder):
    """Return what an installation tells whoever makes it; helm shows it with a cluster alone."""
    chart = shutil.copytree(CHART, folder / "chart")
    shown = 'notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}\n'
    (chart / "templates" / "shown.yaml").write_text(shown)
    options = ("--show-only", "templates/shown.yaml")
    text = helm("template", "partq", str(chart), *options, values=values, folder=folder)
    shutil.rmtree(chart)
    return yaml.safe_load(text)["notes"]


def ingresses(folder, *pages, **values):
    return rendered(folder, {"page": {"ingresses": list(pages)}, **values}, "Ingress")


def test_an_ingress_reaches_the_page_of_a_queue_and_nothing_else(tmp_path):
    """The page, its files and its calls: no metrics, and no calls of a coordinator."""
    page = {"queue": "orders", "namespace": "shop", "host": "orders.example.org"}
    more = {"className": "nginx", "tlsSecret": "orders-page", "annotations": {"a": "b"}}
    (plain,) = ingresses(tmp_path, page)
    assert (plain["metadata"]["name"], plain["metadata"]["namespace"]) == ("orders-page", "shop")
    assert set(plain["spec"]) == {"rules"}
    (rule,) = plain["spec"]["rules"]
    assert rule["host"] == "orders.example.org"
    paths = {each["path"]: each["pathType"] for each in rule["http"]["paths"]}
    assert paths == {"/": "Exact", "/page/": "Prefix", "/v1/queues/orders/": "Prefix"}
    (service,) = {json.dumps(each["backend"]["service"]) for each in rule["http"]["paths"]}
    assert json.loads(service) == {
        "name": names.client_service("orders"), "port": {"number": names.BROKER_PORT},
    }  # fmt: skip
    (full,) = ingresses(tmp_path, {**page, **more})
    assert full["spec"]["ingressClassName"] == "nginx"
    assert full["spec"]["tls"] == [{"hosts": ["orders.example.org"], "secretName": "orders-page"}]
    assert full["metadata"]["annotations"] == {"a": "b"}
    assert rendered(tmp_path, {}, "Ingress") == []


@pytest.mark.parametrize(
    ("pages", "values", "said"),
    [
        ([{"queue": "orders"}], {}, "host"),
        ([{"queue": "a/b", "host": "a.example.org"}], {}, "pattern"),
        ([{"queue": "a", "host": "a.example.org"}] * 2, {}, "queue default/a has an entry already"),
        (
            [{"queue": "a", "namespace": "other", "host": "a.example.org"}],
            {"operator": {"namespaces": ["team-a"]}},
            "namespace: got other, expected one of operator.namespaces: team-a",
        ),
    ],
    ids=["no host", "no name of a queue", "twice", "a namespace without queues"],
)
def test_a_wrong_ingress_is_refused(tmp_path, pages, values, said):
    with pytest.raises(AssertionError, match=said):
        ingresses(tmp_path, *pages, **values)
