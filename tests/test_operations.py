"""docs/operations.md names metrics and reasons that exist."""

import re
from pathlib import Path

import pytest

from partq.errors import PartqError
from partq.kube import names
from partq.metrics import BrokerMetrics
from partq.operator_metrics import OperatorMetrics

TEXT = (Path(__file__).parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")
METRICS = {
    metric.name
    for metrics in (BrokerMetrics("orders", "shop"), OperatorMetrics())
    for metric in metrics.registry.collect()
}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\bpartq_\w+", TEXT))))
def test_a_metric_exists(name):
    assert {name, name.removesuffix("_total")} & METRICS


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", TEXT))))
def test_a_reason_exists(name):
    assert name in {str(each) for each in (*names.ConditionReason, *names.EventReason)}


@pytest.mark.parametrize("code", ["quota_exceeded", "store_full", "outcome_unknown"])
def test_an_error_code_exists(code):
    def codes(kind):
        return {kind.code} | {code for child in kind.__subclasses__() for code in codes(child)}

    assert f"`{code}`" in TEXT
    assert code in codes(PartqError)
