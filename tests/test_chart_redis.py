"""The chart's own Redis: a password that nobody else is told, and who may reach it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import yaml

from partq.embedded.redis_process import find_redis_server
from partq.kube import names
from partq.kube.objects.broker_policies import DNS_PORTS
from partq.testing.tcp_ports import free_port
from tests.kube.api_server.processes import eventually
from tests.rendering import render

VERSION = (1, 31)
PASSWORD = "a" * 32


def rendered(folder, values, kind, name, *, version=VERSION):
    bodies = render(values, version, folder)
    (one,) = [b for b in bodies if (b["kind"], b["metadata"]["name"]) == (kind, name)]
    return one


def secret(folder, values):
    return rendered(folder, values, "Secret", "partq-redis-url")["stringData"]


def given(**values):
    return {"redis": {"builtIn": {"password": PASSWORD}}, **values}


def test_the_password_is_random_and_in_the_secret_alone(tmp_path):
    found = secret(tmp_path, {})
    password = found["password"]
    assert len(password) >= 32
    assert found["url"] == f"redis://:{password}@partq-redis.default.svc:6379/0"
    another = secret(tmp_path, {"operator": {"replicas": 2}})["password"]
    assert another != password, "each rendering without a cluster makes one"
    others = [body for body in render({}, VERSION, tmp_path) if body["kind"] != "Secret"]
    assert password not in yaml.safe_dump_all(others)


def test_a_password_that_is_given_is_used(tmp_path):
    assert secret(tmp_path, given())["password"] == PASSWORD
    with pytest.raises(AssertionError, match="password"):
        render({"redis": {"builtIn": {"password": "short"}}}, VERSION, tmp_path)


def test_another_password_restarts_redis_and_operator(tmp_path):
    def templates(values):
        return [
            rendered(tmp_path, values, kind, f"partq-{name}")["spec"]["template"]["metadata"]
            for kind, name in (("StatefulSet", "redis"), ("Deployment", "operator"))
        ]

    other = {"redis": {"builtIn": {"password": "b" * 32}}}
    same = given(operator={"logLevel": "debug"})
    assert templates(given()) == templates(same)
    for one, another in zip(templates(given()), templates(other), strict=True):
        assert one != another


@contextmanager
def started(folder: Path) -> Iterator[int]:
    """Run a Redis with the chart's own configuration; only its folders and port are this test's."""
    config = rendered(folder, given(), "ConfigMap", "partq-redis")["data"]["redis.conf"]
    (folder / "password.conf").write_text(secret(folder, given())["password.conf"])
    text = config.replace("/etc/redis-password", str(folder)).replace("/data", str(folder))
    port = free_port()
    (folder / "redis.conf").write_text(f"{text}\nport {port}\n")
    program = find_redis_server()
    with subprocess.Popen([program, folder / "redis.conf"], stdout=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.kill()


def test_nobody_gets_in_without_the_password(tmp_path):
    with started(tmp_path) as port:

        def ping():
            try:
                return redis.Redis(port=port, password=PASSWORD).ping()
            except redis.ConnectionError:
                return False

        eventually(ping, "Redis with the password")
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port).ping()
        with redis.Redis(port=port, password=PASSWORD, decode_responses=True) as connection:
            assert connection.config_get("protected-mode") == {"protected-mode": "yes"}


def policy(folder, name, values=None, version=VERSION):
    return rendered(folder, values or {}, "NetworkPolicy", f"partq-{name}", version=version)["spec"]


def test_only_this_releases_pods_reach_redis(tmp_path):
    (rule,) = policy(tmp_path, "redis")["ingress"]
    operator, brokers = rule["from"]
    assert operator == {
        "podSelector": {
            "matchLabels": {
                "app.kubernetes.io/name": "partq-operator",
                "app.kubernetes.io/instance": "partq",
            }
        }
    }
    label = names.operator_label("default", "partq-operator")
    assert brokers == {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {**names.ANY_BROKER, names.OPERATOR_LABEL: label}},
    }


@pytest.mark.parametrize(("version", "is_known"), [((1, 20), False), ((1, 22), True)])
def test_and_only_from_the_namespaces_that_are_served(tmp_path, version, is_known):
    """Older servers do not label a namespace with its name."""
    values = {"operator": {"namespaces": ["team-a", "team-b"], "leaseName": "queues"}}
    (rule,) = policy(tmp_path, "redis", values, version)["ingress"]
    brokers = rule["from"][1]
    expression = {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["team-a", "team-b"],
    }
    assert brokers["namespaceSelector"] == ({"matchExpressions": [expression]} if is_known else {})
    assert brokers["podSelector"]["matchLabels"][names.OPERATOR_LABEL] == "default.queues"


def test_what_the_operator_reaches(tmp_path):
    values = {"redis": {"url": "redis://one.example.org:7000,two.example.org:7001/0"}}
    api, dns, brokers, stores = policy(tmp_path, "operator", values)["egress"]
    assert [each["port"] for each in api["ports"]] == [443, 6443, 8443]
    assert {each["port"] for each in dns["ports"]} == set(DNS_PORTS)
    assert [each["port"] for each in brokers["ports"]] == [names.BROKER_PORT]
    assert brokers["to"][0]["podSelector"]["matchLabels"] == names.ANY_BROKER
    assert [each["port"] for each in stores["ports"]] == [6379, 7000, 7001]
    excepted = {cidr for peer in stores["to"][1:] for cidr in peer["ipBlock"]["except"]}
    assert {"169.254.0.0/16", "fe80::/10"} <= excepted
    off = policy(tmp_path, "operator", {"networkPolicy": {"operatorEgress": False}})
    assert (off["policyTypes"], "egress" in off) == (["Ingress"], False)
