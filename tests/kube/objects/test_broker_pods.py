"""The objects of a queue: what runs, what may restart it, and that it is restricted."""

import hashlib
import json
import re
from dataclasses import replace

import pytest

from partq.broker.api.tokens import read_grants
from partq.errors import SettingsError
from partq.kube import names
from partq.kube.names import QueueKey
from partq.kube.objects import broker_pods, tokens
from partq.kube.objects.broker_pods import BrokerPlan, objects, stateful_set
from partq.kube.watch import parse
from partq.settings import BrokerSettings
from tests.kube.bodies import UID, queue_body
from tests.schemas import VERSIONS, assert_valid

KEY = QueueKey("shop", "orders")
TEMPLATE_DIGEST = "6b01"


def plan(*, queue=None, **changes):
    made = BrokerPlan(
        queue=parse.queue(queue or queue_body()),
        operator="partq-system.partq-operator",
        owner_uid=UID,
        store_uid=UID[:8],
        redis_url="redis://:secret@redis.shop.svc:6380/0",
        tokens_secret="orders-tokens",
        image="partq:1",
        image_pull_policy="IfNotPresent",
        key_prefix="partq",
        log_level="info",
        has_fixed_user=True,
        network_policy="full",
        server_version=(1, 30),
    )
    return replace(made, **changes)


def template(plan):
    return stateful_set(plan)["spec"]["template"]


def test_brokers_have_requests_and_a_limit_that_holds_their_buffers():
    """Without requests they are the first to be evicted; without a limit one takes the node."""
    resources = template(plan())["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "1Gi"},
    }
    settings, _ = broker_settings(plan())
    buffers = [
        settings.pending_bytes,
        settings.tail_bytes,
        settings.read_ahead_bytes,
        settings.request_memory_bytes,
    ]
    assert 2 * sum(buffers) + 128 * 2**20 <= 2**30
    own = queue_body(brokers={"resources": {"requests": {"memory": "2Gi"}}})
    resources = template(plan(queue=own))["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"memory": "2Gi"}}, "no default that contradicts it"


def test_broker_pods_say_which_installation_made_them():
    """The policy of its Redis admits no others."""
    labels = template(plan())["metadata"]["labels"]
    assert labels[names.OPERATOR_LABEL] == "partq-system.partq-operator"
    assert len(names.operator_label("n" * 60, "leases")) == 63
    assert names.operator_label("n" * 62, "leases") == "n" * 62, "a label ends with no dot"


def test_everything_is_owned_and_labelled():
    made = objects(plan())
    assert [body["kind"] for _, body in made] == [
        "Secret",
        "Service",
        "Service",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "StatefulSet",
    ]
    for path, body in made:
        metadata = body["metadata"]
        assert path.endswith(f"/namespaces/shop/{path.split('/')[-2]}/{metadata['name']}")
        assert metadata["labels"][names.QUEUE_LABEL] == "orders"
        (owner,) = metadata["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (UID, True)
        assert len(metadata["name"]) <= 63
    assert len({path for path, _ in made}) == len(made)


def test_the_longest_name_fits():
    for _, body in objects(plan(queue=queue_body("q" * 45))):
        # A StatefulSet adds its revision hash to its name and makes a label of that.
        assert len(body["metadata"]["name"]) <= (52 if body["kind"] == "StatefulSet" else 63)


@pytest.mark.parametrize(
    ("version", "expected", "evicts_unready"),
    [
        ((1, 20), "policy/v1beta1", None),
        ((1, 21), "policy/v1", None),
        ((1, 26), "policy/v1", None),
        ((1, 27), "policy/v1", "AlwaysAllow"),
    ],
)
def test_the_disruption_budget_is_of_a_version_that_the_server_knows(
    version, expected, evicts_unready
):
    (budget,) = [o for o in objects(plan(server_version=version)) if "poddisruption" in o.path]
    assert budget.body["apiVersion"] == expected
    assert budget.path.startswith(f"/apis/{expected}/")
    assert budget.body["spec"].get("unhealthyPodEvictionPolicy") == evicts_unready


def broker_settings(plan):
    """Return what `partq broker` makes of the environment of the container."""
    container = template(plan)["spec"]["containers"][0]
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    env["PARTQ_BROKER_ID"] = "orders-broker-0"
    env["PARTQ_REDIS_URL"] = "redis://redis:6379"
    env["PARTQ_ADVERTISED_URL"] = env["PARTQ_ADVERTISED_URL"].replace(
        "$(PARTQ_BROKER_ID)", env["PARTQ_BROKER_ID"]
    )
    return BrokerSettings.from_env(env), [each["mountPath"] for each in container["volumeMounts"]]


def test_brokers_can_read_their_settings():
    settings, mounts = broker_settings(plan())
    assert settings.advertised_url == "http://orders-broker-0.orders-brokers.shop.svc:7411"
    assert (settings.queue, settings.queue_uid) == ("orders", UID[:8])
    assert [str(settings.tokens_file.parent)] == mounts
    assert settings.tls_dir is None


TLS = queue_body(tls={"secretName": "orders-tls"})


def test_with_tls_brokers_read_their_certificate_and_send_callers_to_https():
    settings, mounts = broker_settings(plan(queue=TLS))
    assert settings.advertised_url == "https://orders-broker-0.orders-brokers.shop.svc:7411"
    assert [str(settings.tokens_file.parent), str(settings.tls_dir)] == mounts
    (volume,) = [v for v in template(plan(queue=TLS))["spec"]["volumes"] if v["name"] == "tls"]
    # All of it, and no `items`: a CA that comes later comes into the running pods, too.
    assert volume["secret"] == {"secretName": "orders-tls"}


def test_with_tls_whoever_calls_knows_it_by_the_name_of_the_port():
    container = template(plan(queue=TLS))["spec"]["containers"][0]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"] == "https"
    services = [body for _, body in objects(plan(queue=TLS)) if body["kind"] == "Service"]
    assert [body["spec"]["ports"][0]["name"] for body in services] == ["https", "https"]


def test_a_service_serves_brokers_before_and_after_their_change_to_tls():
    """Its port leads to a number: names of ports change pod by pod."""
    for queue in (queue_body(), TLS):
        services = [body for _, body in objects(plan(queue=queue)) if body["kind"] == "Service"]
        assert {body["spec"]["ports"][0]["targetPort"] for body in services} == {7411}


def test_the_password_is_in_the_secret_alone():
    secret, *others = objects(plan())
    assert broker_pods.secret_entries(secret.body) == {
        names.REDIS_ENTRY: "redis://:secret@redis.shop.svc:6380/0"
    }
    assert "secret@" not in json.dumps([body for _, body in others])


def test_the_hash_of_a_password_is_one_queues_alone():
    """It is in observation of whoever reads pods; of two queues nothing can be compared."""
    one, other = (broker_pods.config_hash(plan(owner_uid=uid)) for uid in (UID, f"{UID[:-1]}d"))
    assert one != other
    plain = hashlib.sha256(plan().redis_url.encode()).hexdigest()
    assert not plain.startswith(one)
    assert one == broker_pods.config_hash(plan())


RESTARTS = [
    pytest.param({"redis_url": "redis://other"}, True, id="another Redis"),
    pytest.param({"image": "partq:2"}, True, id="another image"),
    pytest.param({"queue": {"tls": {"secretName": "orders-tls"}}}, True, id="TLS"),
    pytest.param({"queue": {"brokers": {"replicas": 5}}}, False, id="more brokers"),
    pytest.param({"queue": {"limits": {"maxMessageBytes": 2048}}}, False, id="limits"),
    pytest.param({"queue": {"rebalance": {"delaySeconds": 9}}}, False, id="rebalance"),
    pytest.param({"server_version": (1, 21)}, False, id="a newer server"),
    pytest.param({"network_policy": "none"}, False, id="no network policy"),
    pytest.param(
        {"queue": {"brokers": {"resources": {"limits": {"cpu": 1}}}}}, True, id="resources"
    ),
]


@pytest.mark.parametrize(("changes", "restarts"), RESTARTS)
def test_pods_restart_only_when_they_must(changes, restarts):
    changes = dict(changes)
    if "queue" in changes:
        changes["queue"] = queue_body(**changes["queue"])
    assert (template(plan(**changes)) != template(plan())) is restarts


def test_a_change_of_the_template_is_noticed():
    """An upgrade of the operator restarts all brokers if this digest changes: say so in the log."""
    text = json.dumps(template(plan()), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:4] == TEMPLATE_DIGEST


def test_pods_are_restricted():
    spec = template(plan())["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    container = spec["containers"][0]["securityContext"]
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_user_that_the_cluster_assigns():
    """A cluster that insists on its own refuses pods that name one."""
    fixed, assigned = (
        template(plan(has_fixed_user=is_fixed))["spec"]["securityContext"]
        for is_fixed in (True, False)
    )
    assert set(fixed) - set(assigned) == {"runAsUser", "runAsGroup", "fsGroup"}
    assert assigned["runAsNonRoot"] is True


def test_what_the_spec_says_of_pods():
    brokers = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "jobs", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "high",
        "imagePullSecrets": ["registry"],
        "resources": {"requests": {"cpu": "100m", "memory": 1024}},
    }
    spec = template(plan(queue=queue_body(brokers=brokers)))["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["tolerations"] == brokers["tolerations"]
    assert spec["priorityClassName"] == "high"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    resources = spec["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "100m", "memory": "1024"}}


def network_policy(plan):
    (found,) = [each.body["spec"] for each in objects(plan) if "networkpolicies" in each.path]
    return found


def test_the_network_policy_lets_redis_and_the_dns_through():
    ports = [
        (port["protocol"], port["port"])
        for rule in network_policy(plan())["egress"]
        for port in rule["ports"]
    ]
    dns = [("TCP", 53), ("UDP", 53), ("TCP", 5353), ("UDP", 5353)]
    assert ports == [("TCP", 7411), ("TCP", 6380), *dns]
    default = network_policy(plan(redis_url="redis://r"))
    assert default["egress"][1]["ports"][0]["port"] == 6379


def test_a_network_policy_that_lets_everything_out():
    policy = network_policy(plan(network_policy="ingress"))
    assert policy["policyTypes"] == ["Ingress"]
    assert "egress" not in policy
    assert policy["ingress"] == network_policy(plan())["ingress"]


def test_without_a_network_policy():
    """It is unwanted, at just the place where it was."""
    (before,) = [each.path for each in objects(plan()) if "networkpolicies" in each.path]
    without = plan(network_policy="none")
    assert broker_pods.unwanted(without) == [before]
    assert before not in [each.path for each in objects(without)]
    assert len(objects(without)) == len(objects(plan())) - 1
    assert broker_pods.unwanted(plan()) == []


def test_tokens_are_new_each_time_and_good_for_brokers(tmp_path):
    made, other = (broker_pods.tokens_secret(KEY, UID).body for _ in range(2))
    entries = broker_pods.secret_entries(made)
    assert entries["admin"] != broker_pods.secret_entries(other)["admin"]
    # None may begin with a dash: a shell hands it to a program as an option.
    assert all(
        re.fullmatch("[0-9a-f]{48}", entries[role]) for role in ("produce", "consume", "admin")
    )
    file = tmp_path / "tokens.json"
    file.write_text(entries["tokens.json"])
    assert {grant.role: grant.token for grant in read_grants(file)} == {
        role: entries[role] for role in ("produce", "consume", "admin")
    }
    assert tokens.admin_token(entries["tokens.json"], "orders") == entries["admin"]


def test_each_group_has_a_token_that_names_it(tmp_path):
    """Drawn once: what a person has changed or withdrawn since stays so."""
    entries = tokens.first_entries("orders")
    added = tokens.with_groups(entries, "orders", {"archive", "workers"})
    assert added.keys() == {"consume-archive", "consume-workers", "tokens.json"}
    entries |= added
    file = tmp_path / "tokens.json"
    file.write_text(entries["tokens.json"])
    of_group = {each.token: each.groups for each in read_grants(file) if each.groups}
    assert of_group == {
        entries["consume-archive"]: {"archive"},
        entries["consume-workers"]: {"workers"},
    }
    assert tokens.with_groups(entries, "orders", {"archive"}) == {}
    withdrawn = {**entries, "tokens.json": "[]"}
    assert tokens.with_groups(withdrawn, "orders", {"archive", "workers"}) == {}
    later = tokens.with_groups(entries, "orders", {"workers", "new"})
    file.write_text(later["tokens.json"])
    kept = {each.token: each.groups for each in read_grants(file) if each.groups}
    assert kept == {**of_group, later["consume-new"]: {"new"}}


def test_tokens_of_groups_are_bounded():
    entries = {"tokens.json": json.dumps([{"token": str(n)} for n in range(tokens.MAX_TOKENS)])}
    with pytest.raises(SettingsError, match="expected at most 999"):
        tokens.with_groups(entries, "orders", {"one-more"})
    with pytest.raises(SettingsError, match="a JSON list"):
        tokens.with_groups({"tokens.json": "{}"}, "orders", {"one"})


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        "[]",
        "[7]",
        '[{"token": "t", "queue": "other", "role": "admin"}]',
        '[{"token": "t", "queue": "orders", "role": "consume"}]',
        '[{"token": 7, "queue": "orders", "role": "admin"}]',
    ],
)
def test_without_an_admin_token(text):
    with pytest.raises(SettingsError, match="no token of the role admin"):
        tokens.admin_token(text, "orders")


def test_the_url_of_redis_is_not_repeated():
    assert broker_pods.checked_redis_url(" rediss://r:1/0\n") == "rediss://r:1/0"
    with pytest.raises(SettingsError) as caught:
        broker_pods.checked_redis_url("http://:hunter2@r")
    assert "hunter2" not in caught.value.message


def test_entries_that_are_no_text_are_left_out():
    data = {"good": "YQ==", "bad": "!", "binary": "//79"}
    assert broker_pods.secret_entries({"data": data}) == {"good": "a"}
    assert broker_pods.secret_entries({}) == {}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: ".".join(map(str, each)))
def test_every_version_of_kubernetes_knows_the_objects(version):
    brokers = {
        "replicas": 3,
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
        "priorityClassName": "high",
        "imagePullSecrets": ["registry"],
    }
    queue = queue_body(brokers=brokers, tls={"secretName": "orders-tls"})
    full = plan(queue=queue, server_version=version)
    for made in (*objects(full), broker_pods.tokens_secret(KEY, UID)):
        assert_valid(made.body, version)
