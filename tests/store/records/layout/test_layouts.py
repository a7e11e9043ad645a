"""The layout record through changes of the partition count: each step is stored once."""

import json

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import abort, commit, prepare, settle
from partq.errors import ConflictError, InternalError, UnknownQueueError
from partq.store.codec import decode_counts
from partq.store.records.layout.layouts import Layouts

NOW = 1_700_000_000_000


@pytest.fixture
async def layouts(store, keys):
    layouts = Layouts(store, keys)
    await layouts.create_queue({1: 16})
    return layouts


async def test_a_queue_that_has_never_changed(layouts):
    assert (await layouts.read()).layout == Layout.first(16)


async def test_each_step_is_read_as_it_was_written(layouts):
    layout = (await layouts.read()).layout
    steps = [
        lambda layout: prepare(layout, 24),
        lambda layout: abort(layout),
        lambda layout: prepare(layout, 24),
        lambda layout: commit(layout, NOW),
        lambda layout: prepare(layout, 10),
        lambda layout: commit(layout, NOW + 1),
        lambda layout: settle(layout, PartitionId(1, 0)),
    ]
    for step in steps:
        layout = step(layout)
        await layouts.write(layout)
        assert (await layouts.read()).layout == layout


async def test_an_earlier_version_reads_the_layout_until_the_first_commit(store, keys, layouts):
    layout = prepare((await layouts.read()).layout, 24)
    await layouts.write(layout)
    assert await store.read("HGET", keys.layout(), "generations") == b"1:16"
    await layouts.write(commit(layout, NOW))
    await expect_refusal_by_an_earlier_version(store, keys)


async def expect_refusal_by_an_earlier_version(store, keys):
    stored = await store.read("HGET", keys.layout(), "generations")
    with pytest.raises(InternalError, match=r"damaged at .*changed by a later version"):
        decode_counts(stored)  # all that such a version reads of the layout


async def test_a_changed_queue_that_is_made_again_is_not_one_of_an_earlier_version(
    store, keys, layouts
):
    layout = commit(prepare((await layouts.read()).layout, 24), NOW)
    await layouts.write(prepare((await layouts.read()).layout, 24))
    await layouts.write(layout)
    # An operator does so after each start; one of an earlier version by the call alone.
    assert (await layouts.create_queue({1: 24})).layout == layout
    assert not await store.read("HSETNX", keys.layout(), "generations", "1:16")
    await expect_refusal_by_an_earlier_version(store, keys)


async def test_a_table_without_counts_is_not_made_again(store, keys, layouts):
    layout = prepare((await layouts.read()).layout, 24)
    for step in (layout, commit(layout, NOW)):
        await layouts.write(step)
    await store.read("HDEL", keys.layout(), "generations")
    assert (await layouts.create_queue({1: 16})).layout == step
    assert not await store.read("HEXISTS", keys.layout(), "generations")


async def test_of_two_steps_from_one_revision_one_is_stored(layouts):
    layout = prepare((await layouts.read()).layout, 24)
    await layouts.write(layout)
    await layouts.write(layout)  # a repeat
    await layouts.write(commit(layout, NOW))
    with pytest.raises(ConflictError, match="another step than revision 2"):
        await layouts.write(abort(layout))
    with pytest.raises(ConflictError):
        await layouts.write(layout)
    assert (await layouts.read()).layout == commit(layout, NOW)


async def test_a_queue_that_is_being_deleted_does_not_change(layouts):
    layout = (await layouts.read()).layout
    await layouts.bury()
    with pytest.raises(UnknownQueueError):
        await layouts.write(prepare(layout, 24))
    assert (await layouts.read()).layout == layout


async def test_a_queue_that_is_not_there(store, keys):
    layouts = Layouts(store, keys)
    with pytest.raises(UnknownQueueError):
        await layouts.read()
    with pytest.raises(UnknownQueueError):
        await layouts.write(prepare(Layout.first(2), 3))
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
async def test_a_damaged_record_is_refused(store, keys, layouts, field, value):
    await layouts.write(prepare((await layouts.read()).layout, 24))
    await store.read("HSET", keys.layout(), field, value)
    with pytest.raises(InternalError, match=f"the field .*{field}.* of the layout is damaged"):
        await layouts.read()
