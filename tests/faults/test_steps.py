"""Coordinator and broker die before and after each script that a handoff has them run.

Between two scripts nothing changes that outlasts a process, so these are all the places where a
death can make a difference.
"""

import pytest
from aiohttp import ClientError

from partq import Consumer, UnavailableError
from partq.core.model import Cause
from partq.testing import eventually
from tests.faults import points
from tests.faults.processes import DieAt
from tests.faults.stage import ADMIN, CONSUME, GROUP
from tests.faults.traffic import MOVES


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


async def keep_log(stage):
    """Pin the log of the partition that moves: what is acknowledged is not trimmed."""
    port = stage.proxies["orders-1"].target_port
    url = f"http://127.0.0.1:{port}/v1/queues/orders/pins/test"
    headers = {"Authorization": f"Bearer {ADMIN}"}
    body = {"offsets": {str(MOVES): 0}}
    async with stage.http.put(url, json=body, headers=headers) as answer:
        return (await answer.json())["partitions"][str(MOVES)]["offset"]


async def reset(stage):
    """Move the group to the first message, by force; return why that was not done."""
    port = stage.proxies["orders-1"].target_port
    url = f"http://127.0.0.1:{port}/v1/queues/orders/groups/{GROUP}/reset"
    body = {"to": "earliest", "partitions": [str(MOVES)], "is_forced": True}
    headers = {"Authorization": f"Bearer {ADMIN}"}
    async with stage.http.post(url, json=body, headers=headers) as answer:
        found = await answer.json()
    return found.get("error") or found["partitions"][str(MOVES)].get("error")


@pytest.mark.parametrize("operation", ["flush_cursor", "reset_cursor"])
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_broker_dies_in_a_forced_reset(bare_stage, phase, operation):
    """All of it is stored or nothing; whoever has got no answer repeats it."""
    stage = bare_stage
    armed = stage.directory / "armed"
    await stage.open(die_at=DieAt(phase, operation, str(armed)))
    assert await keep_log(stage) == 0
    stage.traffic.publish()
    await stage.hold("a")
    await stage.traffic.quiet()

    async def is_stored():
        state = await stage.state()
        record = await stage.partitions.read_cursor(MOVES, GROUP)
        return state if state["cursor"] == record.cursor > 0 else None

    before = await eventually(is_stored, "all acks are stored")
    armed.touch()
    with pytest.raises(ClientError):
        await reset(stage)
    await stage.processes["orders-1"].ended()
    stored = await stage.partitions.read_cursor(MOVES, GROUP)
    is_moved = (phase, operation) == ("after", "reset_cursor")
    assert stored.cursor == (0 if is_moved else before["cursor"])
    stage.start_broker("orders-1")

    async def is_repeated():
        try:
            return await reset(stage) is None
        except ClientError:
            return False

    await eventually(is_repeated, "the repeat goes through")
    assert (await stage.partitions.read_cursor(MOVES, GROUP)).cursor == 0
    stage.let_go("a")
    await stage.until_state(cursor=before["end"], member="a")


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_broker_dies_in_a_seek(bare_stage, phase):
    """The consumer is told that the cursor may have moved; a repeat moves it."""
    stage = bare_stage
    armed = stage.directory / "armed"
    await stage.open(die_at=DieAt(phase, "reset_cursor", str(armed)))
    first = await keep_log(stage)  # some may be trimmed by now
    await stage.processes["a"].kill()
    async with Consumer(
        stage.url, queue="orders", group=GROUP, token=CONSUME, member="a", handle_signals=False,
        leave_timeout_s=0,
    ) as consumer:  # fmt: skip
        await eventually(lambda: MOVES in consumer.partitions, "it has the partition")
        end = (await stage.state())["end"]
        assert await consumer.seek({MOVES: end}) == {MOVES: end}
        armed.touch()  # from now on the next one dies
        with pytest.raises(UnavailableError, match="the cursor may have moved, or not"):
            await consumer.seek({MOVES: first})
        await stage.processes["orders-1"].ended()
        stored = await stage.partitions.read_cursor(MOVES, GROUP)
        assert stored.cursor == (first if phase == "after" else end)
        assert MOVES not in consumer.partitions
        stage.start_broker("orders-1")
        await eventually(lambda: MOVES in consumer.partitions, "it has the partition again")
        assert await consumer.seek({MOVES: first}) == {MOVES: first}
        message = await anext(consumer)
        while message.partition != MOVES:
            message = await anext(consumer)
        assert message.offset == first
        assert (await stage.partitions.read_cursor(MOVES, GROUP)).cursor == first
