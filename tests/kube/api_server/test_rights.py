"""The operator with the rights that the chart gives it, and with fewer."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.kube.api_server.processes import eventually

RBAC = Path(__file__).parents[3] / "charts" / "partq" / "templates" / "rbac.yaml"
ACCOUNT = "operator"
FORBIDDEN = "forbidden-namespace"
"""One more that the operator is to serve, and in which it never gets a right."""


def rules_of_the_chart(block="rules"):
    """Return what the chart's role allows: the block is YAML as it stands."""
    text = RBAC.read_text(encoding="utf-8")
    block = re.search(rf'define "partq\.{block}" }}}}\n(.*?)\{{\{{- end }}}}', text, re.DOTALL)
    assert block is not None
    return yaml.safe_load(block[1])


LEASES = {
    "apiGroups": ["coordination.k8s.io"],
    "resources": ["leases"],
    "verbs": ["get", "create", "update"],
}
NEEDED_UNSEEN = {
    # Server-side apply is a patch in the log, and asks for this right where nothing is there yet.
    *(("create", name) for name in ("services", "statefulsets")),
    *(("create", name) for name in ("poddisruptionbudgets", "networkpolicies")),
    # Of an installation that is told to do without; see test_queues.py.
    ("delete", "networkpolicies"),
    # An Event that comes again is counted up after a minute.
    ("patch", "events"),
    # A pod's deletion cost changes when its rank does.
    ("patch", "pods"),
    # Asked for when a member is lost while its pod seems to be there.
    ("get", "pods"),
}
"""What the operator needs in moments that the tests here do not wait for, or cannot see."""


def granted(rules):
    """Return what rules allow: a set of verb and resource."""
    return {
        (verb, resource)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(server, since=0):
    """Return what the operator has done by its rights, in the same form.

    `since`: how many lines of the log are left out.
    """
    found = set()
    for line in server.audit_log.read_text(encoding="utf-8").splitlines()[since:]:
        call = json.loads(line)
        target = call.get("objectRef", {})
        if call["responseStatus"]["code"] != 403 and "resource" in target:
            name = "/".join(target[key] for key in ("resource", "subresource") if key in target)
            found.add((call["verb"], name))
    return found


def set_rights(stage, rules):
    """Let the operator's account do what `rules` say, and no more."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": ACCOUNT, "namespace": stage.namespace},
        "rules": rules,
    }
    if stage.kube.get("Role", stage.namespace, ACCOUNT) is None:
        stage.kube.create(role)
    else:
        stage.kube.patch("Role", stage.namespace, ACCOUNT, {"rules": rules})


def without(rules, *resources):
    kept = []
    for rule in rules:
        names = [name for name in rule["resources"] if name not in resources]
        kept += [{**rule, "resources": names}] if names else []
    return kept


def allow_everywhere(stage, rules):
    """Let the operator's account do what `rules` say in every namespace."""
    root = "/apis/rbac.authorization.k8s.io/v1"
    metadata = {"name": f"{stage.namespace}-{ACCOUNT}"}
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **metadata}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": stage.namespace}
    stage.kube.call("POST", f"{root}/clusterroles", {**kind, "kind": "ClusterRole", "rules": rules})
    binding = {**kind, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [account]}
    stage.kube.call("POST", f"{root}/clusterrolebindings", binding)


@pytest.fixture(scope="module")
def account(stage, api_server):
    """A kubeconfig of the operator's service account, which has no right yet."""
    metadata = {"name": ACCOUNT, "namespace": stage.namespace}
    stage.kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    set_rights(stage, [])
    stage.kube.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": ACCOUNT,
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": stage.namespace}],
        }
    )
    path = f"/api/v1/namespaces/{stage.namespace}/serviceaccounts/{ACCOUNT}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = stage.kube.call("POST", path, request)["status"]["token"]
    return api_server.kubeconfig("account", token)


@pytest.fixture(scope="module")
def operator(stage, account):
    return stage.start_operator(
        kubeconfig=account, PARTQ_NAMESPACES=f"{FORBIDDEN},{stage.namespace}"
    )


def test_without_any_right_it_waits(stage, operator):
    eventually(lambda: "forbidden" in operator.process.output(), "it says what it may not do")
    assert operator.answers("/healthz"), "a restart would not help"
    assert not operator.answers("/readyz")


def test_a_right_that_is_missing_is_a_condition(stage, operator):
    set_rights(stage, [*without(rules_of_the_chart(), "statefulsets"), LEASES])
    eventually(lambda: operator.answers("/readyz"), "it is ready")
    stage.apply_queue("orders")
    condition = stage.wait_for("PartitionedQueue", "orders", "Ready", "False", "Forbidden")
    assert "statefulsets" in condition["message"]
    stage.wait_for_event("PartitionedQueue", "orders", "Forbidden")
    assert stage.condition("PartitionedQueue", "orders", "Stalled")[0] == "True"


def test_the_rights_of_the_chart_are_enough_and_none_is_idle(stage, operator, api_server):
    set_rights(stage, [*rules_of_the_chart(), *rules_of_the_chart("costRules"), LEASES])
    brokers = stage.serve("orders")
    with stage.consumers():
        dead_letters = {"ack": {"maxRedeliveries": 3}, "deadLetter": {"create": True}}
        stage.apply_group("workers", "orders", **dead_letters)
        stage.wait_for_event("PartitionedQueue", "orders", "DeadLetterQueueCreated")
        owner = stage.owner("workers", "workers")
        pods = [stage.start_consumer(owner.make_pod(), "orders", "workers", brokers) for _ in "ab"]
        for pod in pods:
            pod.report(is_ready=True)
        stage.wait_for_shares("orders", "workers", *pods)
        stage.wait_for_active("workers", 2)
        pods[0].delete()
        pods[0].end()
        stage.wait_for_shares("orders", "workers", pods[1])
    stage.wait_for_event("ConsumerGroup", "workers", "MemberLeft")

    since = len(operator.process.output())
    stage.delete_queue("orders", brokers)
    lines = operator.process.output()[since:].splitlines()
    assert [line for line in lines if "forbidden" in line and FORBIDDEN not in line] == []

    # Of a watch the log tells when it has ended.
    operator.process.terminate()
    operator.process.wait()
    assert operator.process.output().count("cannot watch nodes") == 1, "told once, and gone on"
    rights = granted([*rules_of_the_chart(), *rules_of_the_chart("costRules"), LEASES])
    assert rights >= NEEDED_UNSEEN
    eventually(lambda: rights - used(api_server) <= NEEDED_UNSEEN, "no right is idle")
    assert used(api_server) <= rights


def test_a_queue_ends_though_the_role_of_its_namespace_is_gone(stage, account, api_server):
    """What a namespace that is deleted loses first; its queues need the operator some time more."""
    end_rules = rules_of_the_chart("endRules")
    assert granted(end_rules) < granted(rules_of_the_chart())
    allow_everywhere(stage, end_rules)
    set_rights(stage, [*rules_of_the_chart(), LEASES])
    first = stage.start_operator(kubeconfig=account)
    stage.apply_queue("invoices")
    brokers = stage.serve("invoices")

    since = len(api_server.audit_log.read_text(encoding="utf-8").splitlines())
    set_rights(stage, [LEASES])
    stage.delete_queue("invoices", brokers)
    first.process.terminate()
    first.process.wait()

    # Whoever takes over in the middle of it has to find what is left.
    second = stage.start_operator(kubeconfig=account)
    eventually(lambda: second.answers("/readyz"), "it lists the namespace without the Role")
    second.process.terminate()
    second.process.wait()
    rights = granted(end_rules)
    eventually(lambda: rights <= used(api_server, since), "no right is idle")
