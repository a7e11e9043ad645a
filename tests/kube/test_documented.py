"""What people look up: every reason, condition, annotation and Event has its line."""

import re
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from partq.broker.peers.tls import BrokerTls
from partq.kube import names
from partq.kube.watch import parse
from partq.metrics import BrokerMetrics
from partq.operator_metrics import OperatorMetrics
from partq.wire.tls import trust
from tests.authority import Authority, Connection, mount

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"


@pytest.mark.parametrize(
    "words",
    [
        names.ConditionType,
        names.ConditionReason,
        names.EventReason,
        [names.PAUSE, names.PAUSE_REBALANCE, names.REBALANCE_NOW, names.FINALIZER],
    ],
)
def test_words_are_explained(words):
    text = PAGE.read_text(encoding="utf-8")
    assert [str(word) for word in words if f"`{word}`" not in text] == []


def test_the_certificate_of_the_page_is_for_every_address(tmp_path):
    """Whoever copies it is not refused: not by clients, nor by brokers and operator."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if "kind: Certificate" in block]
    certificate, body = yaml.safe_load_all(example)
    assert body["spec"]["tls"]["secretName"] == certificate["spec"]["secretName"]
    queue = parse.queue(body)
    key = names.QueueKey(*queue.key)
    authority = Authority()
    folder = mount(tmp_path, authority.issue(*certificate["spec"]["dnsNames"]))
    served = BrokerTls(folder, clock=lambda: 0.0).server
    trusted = trust(ca_pem=authority.pem.decode())
    for host in (
        urlsplit(names.client_url(key, "https")).hostname,
        names.client_service(key.name),
        *(f"orders-broker-{n}.{names.headless_service(key.name)}.shop.svc" for n in (0, 63)),
    ):
        assert Connection(served, trusted, host).serial
    with pytest.raises(ssl.SSLCertVerificationError):
        Connection(served, trusted, f"other-partq.{key.namespace}.svc")


@pytest.mark.parametrize("metrics", [BrokerMetrics("orders", "shop"), OperatorMetrics()])
def test_metrics_are_explained(metrics):
    text = PAGE.read_text(encoding="utf-8")
    names_of_all = [metric.name for metric in metrics.registry.collect()]
    assert len(names_of_all) >= 10
    assert [name for name in names_of_all if f"`{name}`" not in text] == []
