"""More consumers than partitions, which share the keys of each: scaled up and down under load."""

import time

import pytest

from e2e import manifests
from e2e.figures import Figures
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
PARTS = 16


def test_more_consumers_than_partitions_share_their_keys(stage: Stage, figures: Figures) -> None:
    spec = {"type": "KeyShared", "keyShared": {"parts": PARTS}}
    stage.open(consumers=4, partitions=PARTITIONS, group=spec)
    assert sizes(stage) == [8] * 4

    began = time.monotonic()
    stage.scale(7)
    stage.await_shared(7)
    figures.add(
        "from `kubectl scale` 4 to 7 members of 2 partitions to all parts Ready",
        f"{time.monotonic() - began:.1f} s",
    )
    assert sizes(stage) == [4] * 3 + [5] * 4
    stage.await_traffic()
    told = stage.partq("explain", "1.0")
    assert len({part["member"] for part in told["parts"]}) > 1, "several have keys of it"

    stage.scale(3)
    stage.await_pods(3)
    stage.await_shared(3)
    assert sizes(stage) == [10, 11, 11]
    stage.await_traffic()

    stage.close()


def sizes(stage: Stage) -> list[int]:
    """Return how many parts the members have, the smallest number first."""
    members = stage.partq("members", "--group", manifests.GROUP)["members"]
    return sorted(len(each["partitions"]) for each in members if each["state"] == "Active")
