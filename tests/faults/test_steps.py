"""Coordinator and broker die before and after each script that a handoff has them run.

Between two scripts nothing changes that outlasts a process, so these are all the places where a
death can make a difference.
"""

import pytest

from partq.core.model import Cause
from tests.faults import points
from tests.faults.processes import DieAt


async def ended_well(stage, causes=()):
    """Wait until b has the partition, and judge everything that was processed."""
    await stage.until_state(member="b", state="Ready")
    await stage.until_assigned("b")
    await stage.traffic.until_processed("b")
    await stage.traffic.verdict(causes=causes)


@pytest.mark.parametrize(
    ("phase", "operation", "count"),
    [
        ("before", "draw_attempt", 1),
        ("after", "draw_attempt", 1),
        # What a holds is copied, the plan is put on record, and what has come of it is copied.
        ("after", "write_fields", 1),
        ("after", "write_fields", 2),
        ("after", "write_fields", 3),
    ],
)
async def test_the_coordinator_dies(stage, phase, operation, count):
    armed = stage.directory / "armed"
    armed.touch()
    stage.start_coordinator(die_at=DieAt(phase, operation, str(armed), count))
    await stage.processes["coordinator"].ended()
    stage.start_coordinator()
    await ended_well(stage)


@pytest.mark.parametrize("operation", ["append_batches", "flush_cursor", "commit_handoff"])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_broker_dies(bare_stage, phase, operation):
    """It is started again at once, and claims its own."""
    stage = bare_stage
    armed = stage.directory / "armed"
    await stage.open(die_at=DieAt(phase, operation, str(armed)))
    stage.traffic.publish()
    if operation == "commit_handoff":
        armed.touch()
        stage.start_coordinator()
    else:
        await points.draining(stage)
        armed.touch()
        stage.let_go("a")
    await stage.processes["orders-1"].ended()
    stage.start_broker("orders-1")
    await ended_well(stage, [Cause.BROKER_CHANGE])
