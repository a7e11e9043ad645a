"""The layout record through changes of the partition count: each step is stored once."""

import json

import pytest

from partq.core.model import PartitionId
from partq.core.rescale import RescalePlan
from partq.core.slot_table import SlotTable
from partq.errors import ConflictError, InternalError, UnknownQueueError
from partq.store.records.layouts import Layouts, RescalePlans

NOW = 1_700_000_000_000


@pytest.fixture
async def layouts(store, keys):
    layouts = Layouts(store, keys)
    await layouts.create_queue({1: 16})
    return layouts


@pytest.fixture
def plans(store, keys, layouts):
    return RescalePlans(store, keys)


async def test_a_queue_that_has_never_changed(plans):
    assert await plans.read() == RescalePlan(table=SlotTable.first(16))


async def test_each_step_is_read_as_it_was_written(plans):
    plan = await plans.read()
    steps = [
        lambda plan: plan.prepared(24),
        lambda plan: plan.aborted(),
        lambda plan: plan.prepared(24),
        lambda plan: plan.committed(NOW),
        lambda plan: plan.prepared(10),
        lambda plan: plan.committed(NOW + 1),
        lambda plan: plan.without_predecessor(PartitionId(1, 0)),
    ]
    for step in steps:
        plan = step(plan)
        await plans.write(plan)
        assert await plans.read() == plan


async def test_an_earlier_version_reads_the_layout_until_the_first_commit(plans, layouts):
    before = await layouts.read()
    plan = (await plans.read()).prepared(24)
    await plans.write(plan)
    assert await layouts.read() == before
    await plans.write(plan.committed(NOW))
    with pytest.raises(UnknownQueueError):
        await layouts.read()


async def test_of_two_steps_from_one_revision_one_is_stored(plans):
    plan = (await plans.read()).prepared(24)
    await plans.write(plan)
    await plans.write(plan)  # a repeat
    await plans.write(plan.committed(NOW))
    with pytest.raises(ConflictError, match="another step than revision 2"):
        await plans.write(plan.aborted())
    with pytest.raises(ConflictError):
        await plans.write(plan)
    assert await plans.read() == plan.committed(NOW)


async def test_a_queue_that_is_being_deleted_does_not_change(plans, layouts):
    plan = await plans.read()
    await layouts.bury()
    with pytest.raises(UnknownQueueError):
        await plans.write(plan.prepared(24))
    assert await plans.read() == plan


async def test_a_queue_that_is_not_there(store, keys):
    plans = RescalePlans(store, keys)
    with pytest.raises(UnknownQueueError):
        await plans.read()
    with pytest.raises(UnknownQueueError):
        await plans.write(RescalePlan(table=SlotTable.first(2)).prepared(3))
    assert not await store.read("EXISTS", keys.layout())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("table", "{"),
        ("table", json.dumps({"1.0": [[0, 99]]})),
        ("table", json.dumps({"1.0": [[0, 65_537]]})),
        ("table", json.dumps({"x": [[0, 65_536]]})),
        ("table", json.dumps({"1.0": [[0, 1, 2]]})),
        ("table", "[]"),
        ("next", "{}"),
        ("lineage", json.dumps({"2.0": 5})),
        ("retired", json.dumps({"1.0": "soon"})),
        ("generation", "one"),
    ],
)
async def test_a_damaged_record_is_refused(store, keys, plans, field, value):
    await plans.write((await plans.read()).prepared(24))
    await store.read("HSET", keys.layout(), field, value)
    with pytest.raises(InternalError, match=f"the field .*{field}.* of the layout is damaged"):
        await plans.read()
