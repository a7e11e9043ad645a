"""From what is on record to what the core judges."""

from types import SimpleNamespace

import pytest

from partq.coordinator.sight import World, blocked, look
from partq.core.model import MemberId, PartitionId

P, Q = PartitionId(1, 0), PartitionId(1, 1)
NOW_MS = 1_800_000_000_000
NOBODY_ANSWERS = World(partitions=(), states={}, is_complete=True)


@pytest.mark.parametrize(
    ("lost_at_ms", "lost_ms"),
    [
        pytest.param(None, {}, id="not lost"),
        pytest.param(NOW_MS - 700, {"m": 700}, id="lost a while ago"),
        pytest.param(NOW_MS, {"m": 0}, id="lost just now"),
        pytest.param(NOW_MS + 30_000, {}, id="the clock was set back: to be noted anew"),
    ],
)
def test_how_long_a_member_is_lost(lost_at_ms, lost_ms):
    listed = {MemberId("m"): SimpleNamespace(address="10.0.0.1", lost_at_ms=lost_at_ms)}
    members = SimpleNamespace(members=listed, heirs={}, now_ms=NOW_MS)
    sight = look(NOBODY_ANSWERS, "g", members=members, assignment={}, outcomes={}, facts={})
    assert sight.lost_ms == lost_ms


def test_only_the_owner_says_what_waits_for_dead_letters():
    def claims(epoch, **groups):
        reports = {name: SimpleNamespace(blocked=why) for name, why in groups.items()}
        return SimpleNamespace(broker_epoch=epoch, groups=reports)

    states = {
        "b-0": SimpleNamespace(partitions={P: claims(7, g="no such queue", h="")}),
        "b-1": SimpleNamespace(partitions={P: claims(6, g="of long ago", h="of long ago")}),
        "b-2": SimpleNamespace(partitions={Q: claims(1)}),
    }
    world = World(partitions=(P, Q), states=states, is_complete=True)
    assert blocked(world, "g") == {P: "no such queue"}
    assert blocked(world, "h") == {}
