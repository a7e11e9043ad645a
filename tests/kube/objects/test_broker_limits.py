"""`spec.brokers.limits`: the bounds of each broker, from the resource to its process."""

from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from partq.errors import SettingsError
from partq.kube.watch import parse
from partq.resources.crds import queue_crd
from partq.settings import BrokerSettings
from tests.kube.bodies import queue_body
from tests.kube.objects.test_broker_pods import broker_settings, plan, template

SETTINGS = {
    "pendingBytes": "pending_bytes",
    "tailBytes": "tail_bytes",
    "readAheadBytes": "read_ahead_bytes",
    "requestMemoryBytes": "request_memory_bytes",
    "maxConnections": "max_connections",
    "maxConnectionsPerToken": "max_connections_per_token",
    "maxConnectionsPerAddress": "max_connections_per_address",
    "headersTimeoutSeconds": "headers_timeout_s",
    "bodyTimeoutSeconds": "body_timeout_s",
    "answerTimeoutSeconds": "answer_timeout_s",
    "idleTimeoutSeconds": "idle_timeout_s",
}


def with_limits(**limits):
    return plan(queue=queue_body(brokers={"limits": limits, "resources": {}}))


def environment(plan):
    (container,) = template(plan)["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def schema():
    (version,) = queue_crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec["properties"]["brokers"]["properties"]["limits"]["properties"]


def test_every_field_is_a_setting_of_the_broker():
    assert set(schema()) == set(SETTINGS)


@pytest.mark.parametrize(("name", "setting"), SETTINGS.items())
def test_range_and_default_are_those_of_the_broker(name, setting):
    """What the resource takes, the process takes, and the reverse."""
    (default,) = [each.default for each in fields(BrokerSettings) if each.name == setting]
    reader = get_args(get_type_hints(BrokerSettings, include_extras=True)[setting])[1]
    found = schema()[name]
    assert (found["minimum"], found["maximum"], found["default"]) == (
        reader.low,
        reader.high,
        default,
    )


@pytest.mark.parametrize(("name", "setting"), SETTINGS.items())
@pytest.mark.parametrize("bound", ["minimum", "maximum"])
def test_brokers_run_with_what_the_resource_says(name, setting, bound):
    wanted = schema()[name][bound]
    settings, _ = broker_settings(with_limits(**{name: wanted}))
    assert getattr(settings, setting) == wanted
    others, _ = broker_settings(with_limits())
    changed = {
        each.name
        for each in fields(BrokerSettings)
        if getattr(settings, each.name) != getattr(others, each.name)
    }
    assert changed == {setting}


def test_a_default_changes_no_pod():
    """The API server fills them in: an upgrade restarts no broker for that."""
    defaults = {name: each["default"] for name, each in schema().items()}
    assert template(with_limits(**defaults)) == template(with_limits())
    assert template(with_limits(tailBytes=2**21)) != template(with_limits())


def test_numbers_are_written_as_the_broker_reads_them():
    values = environment(with_limits(headersTimeoutSeconds=0.25, pendingBytes=2**40))
    assert values["PARTQ_HEADERS_TIMEOUT_S"] == "0.25"
    assert values["PARTQ_PENDING_BYTES"] == "1099511627776"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"pendingBytes": 1}, "pendingBytes: got 1, expected a whole number from 1048576"),
        ({"maxConnections": 15}, "maxConnections: got 15, expected a whole number from 16"),
        ({"bodyTimeoutSeconds": 601}, "bodyTimeoutSeconds: got 601, expected a number from 0.1"),
        ({"tailBytes": "64Mi"}, "tailBytes: got '64Mi', expected a whole number"),
    ],
)
def test_a_wrong_one_is_named(limits, expected):
    with pytest.raises(SettingsError) as caught:
        parse.queue(queue_body(brokers={"limits": limits}))
    assert f"spec.brokers.limits.{expected}" in caught.value.message


MIB = 2**20
SUM = 320 * MIB
"""Of the four defaults."""


@pytest.mark.parametrize(
    ("limits", "memory", "is_refused"),
    [
        ({"pendingBytes": 2**30}, "1Gi", True),
        ({"pendingBytes": 64 * MIB + 1}, SUM, True),
        ({"pendingBytes": 64 * MIB + 1}, f"{SUM // MIB}Mi", True),
        ({"pendingBytes": 64 * MIB + 1}, f"{SUM // MIB + 1}Mi", False),
        ({"pendingBytes": 64 * MIB + 1}, "0.4G", False),
        ({"pendingBytes": 64 * MIB + 1}, "3e8", True),
        ({"pendingBytes": 64 * MIB + 1}, "400000000000m", False),
        ({"pendingBytes": 2**30}, None, False),
        ({"maxConnections": 20}, "64Mi", True),
        ({}, "64Mi", False),
    ],
)
def test_bounds_that_the_memory_of_the_pod_cannot_hold(limits, memory, is_refused):
    """The kubelet would end a broker that fills them. A queue that ran before continues."""
    resources = {"limits": {"memory": memory}} if memory is not None else {}
    body = queue_body(brokers={"limits": limits, "resources": resources})
    if not is_refused:
        assert parse.queue(body)
        return
    with pytest.raises(SettingsError) as caught:
        parse.queue(body)
    assert "spec.brokers.limits: got " in caught.value.message
    assert f"resources.limits.memory, {memory}" in caught.value.message
