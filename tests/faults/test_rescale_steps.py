"""Each process dies before and after each step of a change of the partition count."""

import asyncio
from contextlib import suppress

import pytest
from aiohttp import ClientError

from partq.core.model import Cause, PartitionId
from partq.errors import StoreUnavailableError
from partq.lab.verdict.journal_rows import PublishedRow
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.testing import eventually
from tests.faults import moving_producer
from tests.faults.processes import DieAt, aim
from tests.faults.traffic import MOVES, STAYS

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


async def begin(stage, **options):
    """Open the stage, with a coordinator that has nothing to do; return its layouts."""
    await stage.open(**options)
    stage.traffic.publish()
    stage.start_coordinator()
    await stage.until_assigned("b")
    return Layouts(stage.store, Keys(stage.store.prefix, "default", "orders", stage.uid))


async def change(stage, count):
    (answer,) = await stage._post("orders-0", "/partitions", {"partitions": count})
    assert "error" not in answer, answer


async def settled(layouts):
    """Wait until a change is over, and was made once."""

    async def is_settled():
        with suppress(StoreUnavailableError):
            layout = (await layouts.read()).layout
            assert layout.generation <= 2
            return layout.generation == 2 and not (layout.lineage or layout.retired)

    await eventually(is_settled, "the change is settled")


STEPS_OF_COORDINATOR = [
    (phase, operation)
    for operation in (
        "change_layout", "create_partition", "add_group", *["change_layout"] * 3, "erase_partition",
    )
    for phase in ("before", "after")
]  # fmt: skip
"""It prepares, makes partitions and cursors, commits, settles, removes and erases."""


async def test_the_coordinator_dies_at_each_step(bare_stage):
    """Each next one goes on from the record."""
    stage = bare_stage
    layouts = await begin(stage)
    await stage.kill("coordinator")
    await change(stage, 1)
    armed = stage.directory / "armed"
    armed.touch()
    for phase, operation in STEPS_OF_COORDINATOR:
        stage.start_coordinator(die_at=DieAt(phase, operation, str(armed)))
        await stage.processes["coordinator"].ended()
    stage.start_coordinator()
    await settled(layouts)
    await stage.traffic.verdict()


STEPS = (
    "change_layout", "create_partition", "add_group", "seal_slots", "open_partition", "open_gate",
    "erase_partition",
)  # fmt: skip
"""Of coordinator and brokers."""


async def revive(redis):
    """Start Redis again whenever it has died."""
    while True:
        await eventually(lambda: not redis.server.is_running(), "Redis has died", timeout_s=600)
        await redis.restart()


@pytest.mark.parametrize("phase", ["before", "after"])
async def test_redis_dies_at_each_step(bare_stage, phase):
    """It comes back with all that it has confirmed."""
    stage = bare_stage
    armed = stage.directory / "armed"
    layouts = await begin(stage, die_at=DieAt("", "", str(armed)))
    await stage.kill("coordinator")
    await change(stage, 1)
    # What is done is done: after it the same script takes the next step.
    later = ["change_layout"] * 3 if phase == "after" else []
    aim(armed, phase, [*STEPS, *later], stage.redis.server.port)
    reviving = asyncio.create_task(revive(stage.redis))
    stage.start_coordinator(die_at=DieAt("", "", str(armed)))
    await eventually(lambda: not any(armed.iterdir()), "Redis has died at each step")
    await settled(layouts)
    reviving.cancel()
    await asyncio.gather(reviving, return_exceptions=True)
    assert stage.redis.server.is_running()
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE, Cause.FLOW_LOST])


@pytest.mark.parametrize("step", moving_producer.STEPS)
async def test_a_producer_dies(bare_stage, step):
    """What it has confirmed is there; what it has sent is there once, in order and without gaps."""
    stage = bare_stage
    layouts = await begin(stage)
    keys = [f"dying-{number}" for number in range(12)]
    confirmed = stage.directory / "confirmed"
    stage.start_producer(keys, confirmed, step)

    async def is_publishing():
        return confirmed.exists() and len(confirmed.read_text().split("\n")) > len(keys)

    await eventually(is_publishing, "the producer publishes")
    await change(stage, 4)
    await stage.processes["producer"].ended()
    await settled(layouts)
    await stage.traffic.quiet()

    async def is_all_processed():
        states = [await stage.state(each) for each in (STAYS, MOVES, *NEW)]
        return all(each and each["cursor"] == each["end"] for each in states)

    await eventually(is_all_processed, "everything is processed")
    deliveries = [each for each in stage.traffic.look().deliveries if each.key in keys]
    places = {(each.partition, each.offset): each for each in deliveries}.values()
    found = {(each.key, each.number) for each in places}
    assert len(found) == len(places), "stored once"
    lines = confirmed.read_text().splitlines()
    assert found >= {(key, int(number)) for key, number in map(str.split, lines)}
    stage.traffic.rows += [
        PublishedRow(each.at_ns, each.partition, each.offset, each.key, each.number)
        for each in sorted(places, key=lambda each: each.number)
    ]
    await stage.traffic.verdict()  # the first of each key is 1, and each next one higher
