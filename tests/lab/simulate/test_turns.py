"""Seeds of Shared groups: whatever happens, each message is at one member at a time."""

import pytest

from partq.core.group.planner import GroupType
from partq.lab.simulate.parallel import SeedOptions
from partq.lab.simulate.trial import run_schedule


@pytest.mark.parametrize("seed", [0, 12])
def test_seeds_of_shared_groups_hold(seed):
    """In both a group is created again while its members are connected."""
    schedule = SeedOptions(20, is_shared=True).schedule(seed)
    assert schedule.setting.group_type is GroupType.SHARED
    outcome = run_schedule(schedule)
    assert outcome.violation is None, "\n".join(outcome.lines())
    assert outcome.handed
