"""A spec that is refused says why, and stops nothing that runs."""

from typing import Any

import pytest

from e2e import manifests
from e2e.cluster import ClusterError
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"partitions": 0}, "partitions"),
        ({"rebalance": {"delaySeconds": -1}}, "delaySeconds"),
        ({"brokers": {"replicas": "two"}}, "replicas"),
        ({"deletionPolicy": "Perhaps"}, "deletionPolicy"),
    ],
)
def test_a_spec_out_of_bounds_is_refused_by_the_server(
    stage: Stage, spec: dict[str, Any], field: str
) -> None:
    bad = manifests.queue()
    bad["spec"] |= spec

    with pytest.raises(ClusterError, match=field):
        stage.apply(bad)
