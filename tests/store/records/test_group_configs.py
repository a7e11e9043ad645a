"""The specs of a queue's groups: one read tells which of them have changed."""

import pytest

from partq.errors import ConflictError, UnknownGroupError
from partq.store.records.groups import Terms
from partq.store.records.layouts import FULL_READ_EVERY, Layouts
from partq.store.records.members import Members

GROUPS = [f"g{number}" for number in range(30)]


@pytest.fixture
async def layouts(store, keys):
    """A queue of thirty groups."""
    layouts = Layouts(store, keys)
    for group in GROUPS:
        await layouts.write_group_config(group, {"name": group}, resource_generation=1)
    await layouts.write_config({"groups": GROUPS}, resource_generation=1)
    return layouts


async def specs(layouts):
    """Read all as a broker does each second."""
    found = await layouts.read_group_configs(await layouts.read_config())
    return {group: config.spec for group, config in found.items()}


async def commands(store):
    """Return how many commands the servers have done."""
    count = 0
    for node in store.nodes():
        text = (await node.read(["INFO", "stats"])).decode()
        count += int(text.partition("total_commands_processed:")[2].split()[0])
    return count


async def write_as_before(store, keys, group, text, number):
    """Write a spec as an earlier version does, which knows of no versions of specs."""
    fields = (2, "resource_generation", number, "json", text)
    await store.run("write_fields", [keys.group_config(group)], fields)


async def test_what_has_not_changed_is_not_read_again(layouts, store):
    assert await specs(layouts) == {group: {"name": group} for group in GROUPS}
    before = await commands(store)
    for _ in range(5):
        assert len(await specs(layouts)) == len(GROUPS)
    assert await commands(store) - before < 5 * 5


async def test_a_spec_that_changes_is_read_at_once(layouts):
    await specs(layouts)
    await layouts.write_group_config("g7", {"name": "new"}, resource_generation=2)
    found = await specs(layouts)
    assert (found["g7"], found["g8"]) == ({"name": "new"}, {"name": "g8"})


async def test_a_spec_that_an_earlier_version_writes_is_read(layouts, store, keys):
    """At once where no version is told; else with the next full read, as the own hash decides."""
    await specs(layouts)
    await write_as_before(store, keys, "other", '{"name": "other"}', 1)
    await layouts.write_config({"groups": [*GROUPS, "other"]}, resource_generation=2)
    assert (await specs(layouts))["other"] == {"name": "other"}
    await write_as_before(store, keys, "other", '{"name": "again"}', 2)
    assert (await specs(layouts))["other"] == {"name": "again"}
    await write_as_before(store, keys, "g3", '{"name": "later"}', 2)
    reads = [(await specs(layouts))["g3"] for _ in range(FULL_READ_EVERY)]
    assert reads[-1] == {"name": "later"}


async def test_a_group_that_is_made_again_has_its_new_spec(layouts):
    await specs(layouts)
    await layouts.erase_group("g5", born=(await layouts.read_group_config("g5")).born)
    assert "g5" not in await specs(layouts)
    await layouts.write_group_config("g5", {"uid": "another"}, resource_generation=1)
    assert (await specs(layouts))["g5"] == {"uid": "another"}


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_spec_that_arrives_after_its_group_was_erased_is_not_written(
    layouts, store, keys, is_older
):
    """A change of it, or its first one; and where an earlier version made it, without a birth."""
    if is_older:
        await store.run("write_fields", [keys.group_config("g5")], [0, "born"])
    born = (await layouts.read_group_config("g5")).born
    await layouts.erase_group("g5", born=born)
    assert not await layouts.write_group_config("g5", {}, resource_generation=2, born=born)
    begun = await layouts.begin_group("g6")
    first = {"resource_generation": 1, "born": await layouts.begin_group("new")}
    assert begun == (await layouts.read_group_config("g6")).born
    await layouts.erase_group("new", born=0)
    assert not await layouts.write_group_config("new", {}, **first)
    assert await store.read_all(*(("EXISTS", keys.group_config(group)) for group in ["g5"])) == [0]
    assert await layouts.read_group_config("new") is None


async def test_of_two_specs_of_one_generation_the_first_is_written(layouts):
    """Both writers have seen the one before it; a repeat of the first is none."""
    write = layouts.write_group_config
    assert await write("g1", {"name": "first"}, resource_generation=2)
    assert not await write("g1", {"name": "second"}, resource_generation=2)
    assert await write("g1", {"name": "first"}, resource_generation=2)
    assert (await specs(layouts))["g1"] == {"name": "first"}


async def test_an_erasure_of_an_earlier_group_leaves_the_one_of_its_name(layouts):
    born = (await layouts.read_group_config("g1")).born
    with pytest.raises(ConflictError, match=r"group g1 .* not erased, as it was created again"):
        await layouts.erase_group("g1", born=born - 1)
    assert (await layouts.read_group_config("g1")).born == born


async def test_a_group_that_is_begun_and_has_no_spec_is_not_on_record(layouts, store, keys):
    await layouts.begin_group("new")
    assert await layouts.read_group_config("new") is None
    with pytest.raises(UnknownGroupError):
        await Terms(store, keys).begin("new")
    with pytest.raises(UnknownGroupError):
        await Members(store, keys).list_member("new", "m", "10.0.0.1")


async def test_a_group_that_the_queue_does_not_name_is_forgotten(layouts):
    await specs(layouts)
    await layouts.write_config({"groups": GROUPS[1:]}, resource_generation=2)
    assert await specs(layouts) == {group: {"name": group} for group in GROUPS[1:]}


async def test_versions_alone_are_no_config(store, keys):
    """Groups are written before the queue."""
    layouts = Layouts(store, keys)
    await layouts.write_group_config("g0", {}, resource_generation=1)
    assert await layouts.read_config() is None


async def test_each_term_of_a_coordinator_is_above_those_before_it(layouts, store, keys):
    """Also if Redis's clock was set back: else who began last would be taken for the older one."""
    ahead = 2**53 - 10
    fields = [1, "coordinator_term", ahead]
    await store.run("write_fields", [keys.group_config("g1")], fields)
    terms = Terms(store, keys)
    await terms.begin("g1")
    assert await terms.named("g1") == ahead + 1
