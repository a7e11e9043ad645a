"""A broker dies before and after each script that a change of the partition count has it run."""

from contextlib import suppress

import pytest
from aiohttp import ClientError

from partq.core.model import Cause, PartitionId
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.testing import eventually
from tests.faults.processes import DieAt

NEW = (PartitionId(2, 2), PartitionId(2, 3))


@pytest.mark.parametrize("operation", ["seal_slots", "open_partition", "open_gate"])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_broker_dies(bare_stage, phase, operation):
    """It goes on from the record: nothing is lost, stored twice or out of order."""
    stage = bare_stage
    armed = stage.directory / "armed"
    await stage.open(die_at=DieAt(phase, operation, str(armed)))
    stage.traffic.publish()
    stage.start_coordinator()
    await stage.until_assigned("b")  # the handoff is not what is tested here
    armed.touch()
    (answer,) = await stage._post("orders-0", "/partitions", {"partitions": 4})
    assert "error" not in answer, answer
    await stage.processes["orders-1"].ended()
    stage.start_broker("orders-1")
    layouts = Layouts(stage.store, Keys(stage.store.prefix, "default", "orders", stage.uid))

    async def is_over():
        """Whether every group gets the messages of the new partitions."""
        assert (await layouts.read()).layout.generation <= 2
        with suppress(ClientError, TimeoutError):
            states = [await stage.state(partition) for partition in NEW]
            return all(state.get("is_bound") and state["cursor"] > 0 for state in states)

    await eventually(is_over, "messages of the new partitions are processed")
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE])
