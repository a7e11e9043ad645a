"""A spec that is refused says why, and stops nothing that runs."""

from typing import Any

import pytest

from e2e import manifests
from e2e.cluster import ClusterError
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)


def test_a_changed_number_of_partitions_is_refused_and_the_queue_goes_on(stage: Stage) -> None:
    stage.open()

    refusal = ""
    try:
        stage.apply(manifests.queue(partitions=17))
    except ClusterError as error:
        refusal = str(error)
    if refusal:  # by a server that knows CEL
        assert "the number of partitions cannot be changed yet" in refusal
    else:
        stage.eventually(lambda: _reason(stage) == "PartitionsImmutable", "the reason")
    stage.await_traffic()
    stage.apply(manifests.queue())
    stage.await_condition("pq", manifests.QUEUE)

    stage.close()


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


def _reason(stage: Stage) -> str:
    conditions = stage.get("pq", manifests.QUEUE)["status"]["conditions"]
    return str(next(each["reason"] for each in conditions if each["type"] == "Ready"))
