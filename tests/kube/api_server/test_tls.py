"""A queue with a certificate: the operator waits for it, and calls the brokers by HTTPS."""

import pytest

from tests.authority import LOOPBACK, Authority
from tests.kube.api_server.processes import eventually


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


def make_secret(stage, name):
    """Make a certificate's Secret, as cert-manager writes it.

    Consumers of the test call a broker by its address, the operator by the name of its pod.
    """
    queue = name.removesuffix("-tls")
    broker = f"{queue}-broker-0.{queue}-brokers.{stage.namespace}.svc"
    entries = Authority().issue(*LOOPBACK, broker)
    stage.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": stage.namespace},
            "type": "kubernetes.io/tls",
            "stringData": {entry: text.decode() for entry, text in entries.items()},
        }
    )


def test_a_queue_waits_for_its_certificate_and_is_served_by_https(stage):
    """Who signed it is known from the Secret alone."""
    stage.apply_queue("private", tls={"secretName": "private-tls"})
    condition = stage.wait_for("PartitionedQueue", "private", "Ready", "False", "SecretMissing")
    assert "private-tls" in condition["message"]
    stage.wait_for_event("PartitionedQueue", "private", "SecretMissing")
    assert stage.kube.get("StatefulSet", stage.namespace, "private-broker") is None

    make_secret(stage, "private-tls")
    brokers = stage.serve("private")
    assert brokers.urls[0].startswith("https://")

    stage.apply_group("trusting", "private")
    pod = stage.owner("trusting", "trusting").make_pod()
    env = {"PARTQ_MEMBER": pod.uid, "PARTQ_CA_FILE": str(brokers.tls_dir / "ca.crt")}
    stage.start_consumer_as(pod, "private", "trusting", brokers, env)
    pod.report(is_ready=True)
    stage.wait_for_shares("private", "trusting", pod)


def traces(stage, queue):
    """Return what TLS changes in a queue's objects; None: they are not there yet."""
    made = stage.kube.get("StatefulSet", stage.namespace, f"{queue}-broker")
    if made is None:
        return None
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    service = stage.kube.get("Service", stage.namespace, f"{queue}-partq")
    return {
        "ports": [container["ports"][0]["name"], service["spec"]["ports"][0]["name"]],
        "probes": [container[p]["httpGet"]["scheme"] for p in ("livenessProbe", "readinessProbe")],
        "volumes": [volume["name"] for volume in pod["volumes"]],
        "url": stage.status("PartitionedQueue", queue).get("url"),
    }


def test_a_queue_goes_to_https_and_back(stage):
    """What the certificate had added to the objects goes with it."""
    make_secret(stage, "fickle-tls")
    stage.apply_queue("fickle")
    url = f"http://fickle-partq.{stage.namespace}.svc:7411"
    plain = {"ports": ["http"] * 2, "probes": ["HTTP"] * 2, "volumes": ["tokens"], "url": url}
    secure = {
        "ports": ["https"] * 2,
        "probes": ["HTTPS"] * 2,
        "volumes": ["tokens", "tls"],
        "url": url.replace("http:", "https:"),
    }
    eventually(lambda: traces(stage, "fickle") == plain, "plain HTTP")
    for tls, expected in (({"secretName": "fickle-tls"}, secure), (None, plain)):
        change = {"spec": {"tls": tls}}
        stage.kube.patch("PartitionedQueue", stage.namespace, "fickle", change)
        eventually(lambda expected=expected: traces(stage, "fickle") == expected, f"{expected}")
