"""The configs of a queue and its groups: who writes one late, and how brokers read them."""

import pytest

from partq.errors import ConflictError, UnknownGroupError
from partq.store.records.configs import FULL_READ_EVERY, Configs
from partq.store.records.groups import Terms
from partq.store.records.members import Members

GROUP = "workers"
GROUPS = [f"g{number}" for number in range(30)]


@pytest.fixture
async def configs(store, keys):
    """A queue of thirty groups."""
    configs = Configs(store, keys)
    for group in GROUPS:
        await configs.write_group(group, {"name": group}, resource_generation=1)
    await configs.write_queue({"groups": GROUPS}, resource_generation=1)
    return configs


async def specs(configs):
    """Read all as a broker does each second."""
    found = await configs.read_groups(await configs.read_queue())
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


async def test_what_has_not_changed_is_not_read_again(configs, store):
    assert await specs(configs) == {group: {"name": group} for group in GROUPS}
    before = await commands(store)
    for _ in range(5):
        assert len(await specs(configs)) == len(GROUPS)
    assert await commands(store) - before < 5 * 5


async def test_a_spec_that_changes_is_read_at_once(configs):
    await specs(configs)
    await configs.write_group("g7", {"name": "new"}, resource_generation=2)
    found = await specs(configs)
    assert (found["g7"], found["g8"]) == ({"name": "new"}, {"name": "g8"})


async def test_a_spec_that_an_earlier_version_writes_is_read(configs, store, keys):
    """At once where no version is told; else with the next full read, as the own hash decides."""
    await specs(configs)
    await write_as_before(store, keys, "other", '{"name": "other"}', 1)
    await configs.write_queue({"groups": [*GROUPS, "other"]}, resource_generation=2)
    assert (await specs(configs))["other"] == {"name": "other"}
    await write_as_before(store, keys, "other", '{"name": "again"}', 2)
    assert (await specs(configs))["other"] == {"name": "again"}
    await write_as_before(store, keys, "g3", '{"name": "later"}', 2)
    reads = [(await specs(configs))["g3"] for _ in range(FULL_READ_EVERY)]
    assert reads[-1] == {"name": "later"}


async def test_a_group_that_is_made_again_has_its_new_spec(configs):
    await specs(configs)
    await configs.erase_group("g5", born=(await configs.read_group("g5")).born)
    assert "g5" not in await specs(configs)
    await configs.write_group("g5", {"uid": "another"}, resource_generation=1)
    assert (await specs(configs))["g5"] == {"uid": "another"}


@pytest.mark.parametrize("is_older", [False, True])
async def test_a_spec_that_arrives_after_its_group_was_erased_is_not_written(
    configs, store, keys, is_older
):
    """A change of it, or its first one; and where an earlier version made it, without a birth."""
    if is_older:
        await store.run("write_fields", [keys.group_config("g5")], [0, "born"])
    born = (await configs.read_group("g5")).born
    await configs.erase_group("g5", born=born)
    assert not await configs.write_group("g5", {}, resource_generation=2, born=born)
    begun = await configs.begin_group("g6")
    first = {"resource_generation": 1, "born": await configs.begin_group("new")}
    assert begun == (await configs.read_group("g6")).born
    await configs.erase_group("new", born=0)
    assert not await configs.write_group("new", {}, **first)
    assert await store.read_all(*(("EXISTS", keys.group_config(group)) for group in ["g5"])) == [0]
    assert await configs.read_group("new") is None


async def test_of_two_specs_of_one_generation_the_first_is_written(configs):
    """Both writers have seen the one before it; a repeat of the first is none."""
    write = configs.write_group
    assert await write("g1", {"name": "first"}, resource_generation=2)
    assert not await write("g1", {"name": "second"}, resource_generation=2)
    assert await write("g1", {"name": "first"}, resource_generation=2)
    assert (await specs(configs))["g1"] == {"name": "first"}


async def test_an_erasure_of_an_earlier_group_leaves_the_one_of_its_name(configs):
    born = (await configs.read_group("g1")).born
    with pytest.raises(ConflictError, match=r"group g1 .* not erased, as it was created again"):
        await configs.erase_group("g1", born=born - 1)
    assert (await configs.read_group("g1")).born == born


async def test_a_group_that_is_begun_and_has_no_spec_is_not_on_record(configs, store, keys):
    await configs.begin_group("new")
    assert await configs.read_group("new") is None
    with pytest.raises(UnknownGroupError):
        await Terms(store, keys).begin("new")
    with pytest.raises(UnknownGroupError):
        await Members(store, keys).list_member("new", "m", "10.0.0.1")


async def test_a_group_that_the_queue_does_not_name_is_forgotten(configs):
    await specs(configs)
    await configs.write_queue({"groups": GROUPS[1:]}, resource_generation=2)
    assert await specs(configs) == {group: {"name": group} for group in GROUPS[1:]}


async def test_versions_alone_are_no_config(store, keys):
    """Groups are written before the queue."""
    configs = Configs(store, keys)
    await configs.write_group("g0", {}, resource_generation=1)
    assert await configs.read_queue() is None


async def test_each_term_of_a_coordinator_is_above_those_before_it(configs, store, keys):
    """Also if Redis's clock was set back: else who began last would be taken for the older one."""
    ahead = 2**53 - 10
    fields = [1, "coordinator_term", ahead]
    await store.run("write_fields", [keys.group_config("g1")], fields)
    terms = Terms(store, keys)
    await terms.begin("g1")
    assert await terms.named("g1") == ahead + 1


async def test_an_older_spec_does_not_replace_a_later_one(store, keys):
    configs = Configs(store, keys)
    assert await configs.read_queue() is None
    assert await configs.write_queue({"groups": ["g", "h"]}, resource_generation=2)
    assert not await configs.write_queue({"groups": []}, resource_generation=1)
    found = await configs.read_queue()
    assert (found.resource_generation, found.spec, found.groups) == (
        2,
        {"groups": ["g", "h"]},
        ("g", "h"),
    )
    assert await configs.read_group(GROUP) is None
    await configs.write_group(GROUP, {"type": "Exclusive"}, resource_generation=1)
    assert (await configs.read_group(GROUP)).spec == {"type": "Exclusive"}


async def test_of_two_that_have_seen_the_same_spec_one_writes(store, keys):
    """Whose call comes second changes nothing; the same call may come twice."""
    configs = Configs(store, keys)
    await configs.write_queue({"groups": []}, resource_generation=1)
    for _ in range(2):
        assert await configs.write_queue({"groups": ["g"]}, resource_generation=2)
    assert not await configs.write_queue({"groups": ["h"]}, resource_generation=2)
    assert (await configs.read_queue()).groups == ("g",)


async def test_a_late_spec_does_not_replace_that_of_a_group_made_again(store, keys):
    configs, uid = Configs(store, keys), iter("abc")

    async def make():
        spec, born = {"uid": next(uid)}, await configs.begin_group(GROUP)
        assert await configs.write_group(GROUP, spec, resource_generation=1, born=born)
        return await configs.read_group(GROUP)

    before = await make()
    await configs.erase_group(GROUP, born=before.born)
    late = {"resource_generation": 2, "born": before.born}
    assert not await configs.write_group(GROUP, {"uid": "late"}, **late)
    assert await configs.read_group(GROUP) is None
    after = await make()
    assert after.born > before.born
    assert not await configs.write_group(GROUP, {"uid": "late"}, **late)
    assert (await configs.read_group(GROUP)).spec == {"uid": "b"}
    late["born"] = after.born
    assert await configs.write_group(GROUP, {"uid": "b", "a": 1}, **late)
    found = await configs.read_group(GROUP)
    assert (found.born, found.resource_generation) == (after.born, 2)
