"""Where the operator calls brokers: at their own pods, whatever a store says."""

from types import SimpleNamespace

import pytest

from partq.kube.names import QUEUE_LABEL, QueueKey
from partq.kube.objects.broker_addresses import NOWHERE, BrokerAddresses, PodResolver
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from tests.kube.bodies import pod_body

KEY = QueueKey("shop", "orders")
FORGED = SimpleNamespace(incarnation="i", counter=1, ttl_s=3.0, url="http://attacker.example/?x=")
URL = "http://orders-broker-0.orders-brokers.shop.svc:7411"


def broker_body(name="orders-broker-0", *, scheme="http", queue="orders", **changes):
    body = pod_body(
        name, owner="StatefulSet", labels={QUEUE_LABEL: queue}, **{"ip": "10.0.0.9", **changes}
    )
    ports = [{"name": scheme, "containerPort": 7411}]
    body["spec"]["containers"] = [{"name": "broker", "ports": ports}]
    return body


@pytest.fixture
def cache():
    return ObjectCache(lambda key: None)


@pytest.mark.parametrize(
    ("body", "broker", "expected"),
    [
        pytest.param(broker_body(), "orders-broker-0", URL, id="its pod"),
        pytest.param(
            broker_body(scheme="https"),
            "orders-broker-0",
            URL.replace("http:", "https:"),
            id="with TLS",
        ),
        pytest.param(broker_body(), "orders-broker-1", NOWHERE, id="no such pod"),
        pytest.param(broker_body("evil"), "evil", NOWHERE, id="no broker of the StatefulSet"),
        pytest.param(broker_body(), "evil/path?", NOWHERE, id="no name at all"),
        pytest.param(broker_body(queue="bank"), "orders-broker-0", NOWHERE, id="another queue's"),
        pytest.param(broker_body(namespace="b"), "orders-broker-0", NOWHERE, id="another place's"),
        pytest.param(
            pod_body("orders-broker-0", owner="StatefulSet", labels={QUEUE_LABEL: "orders"}),
            "orders-broker-0",
            NOWHERE,
            id="no container of a broker",
        ),
    ],
)
def test_the_url_of_a_broker(cache, body, broker, expected):
    cache.put_pod(parse.pod(body))
    assert BrokerAddresses(cache, KEY)(broker, FORGED) == expected


async def test_names_lead_to_pods_alone(cache):
    cache.put_pod(parse.pod(broker_body()))
    cache.put_pod(parse.pod(broker_body("orders-broker-1", uid="other", ip=None)))
    resolver = PodResolver(cache)
    (found,) = await resolver.resolve("orders-broker-0.orders-brokers.shop.svc", 7411)
    assert (found["host"], found["port"]) == ("10.0.0.9", 7411)
    for host in (
        "orders-broker-1.orders-brokers.shop.svc",
        "orders-broker-0.orders-brokers.bank.svc",
        "orders-broker-0.bank-brokers.shop.svc",
        "no-such-pod.invalid",
        "localhost",
    ):
        with pytest.raises(OSError, match=host):
            await resolver.resolve(host, 7411)
