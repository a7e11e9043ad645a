from types import SimpleNamespace

import pytest

from partq.core.group.records import HandoffRecord
from partq.core.layout import Succession
from partq.core.model import PartitionId
from partq.errors import FencedError
from partq.testing import eventually
from tests.coordinator.timing import looks

P0 = PartitionId(1, 0)
GROUP = "workers"


async def test_what_is_vacant_is_shared_out_without_a_pause(system):
    system.brokers.bind("a")
    system.brokers.bind("b")
    async with system.running():
        await eventually(lambda: sorted(map(str, system.brokers.owners().values())) == list("aabb"))
        await eventually(lambda: len(system.store.assignment) == 4 and not system.store.handoffs)
        await eventually(lambda: {a.state for a in system.store.assignment.values()} == {"Ready"})
    assert system.said("pause") == []
    assert {forced for _, forced in system.said("committed")} == {"unassigned"}


@pytest.mark.req("TUB-02")
@pytest.mark.parametrize(
    ("lost_s", "look_s", "next_s"),
    [
        pytest.param(4.0, 0.0, 1.0, id="what is left of the delay"),
        pytest.param(4.99, 0.0, 0.01, id="little is left"),
        pytest.param(4.0, 0.2, 0.8, id="the look itself takes time"),
        pytest.param(4.9, 0.2, 0.0, id="the look takes all of it"),
    ],
)
async def test_it_looks_again_when_the_delay_is_over_and_no_later(system, lost_s, look_s, next_s):
    system.own("a", "a", "a", "a")
    system.clock.stop()
    system.brokers.bind("a")
    system.brokers.bind("b")
    coordinator = system.coordinator(resync_s=60.0)
    await coordinator.look()
    system.brokers.lose("a", age_s=lost_s)
    read_members = system.store._read_members

    async def take_time(group):
        system.clock.skipped_s += look_s
        return await read_members(group)

    system.store._read_members = take_time
    later = system.coordinator(resync_s=60.0)
    assert await later.look() == pytest.approx(next_s, abs=0.002)
    await coordinator.close()
    await later.close()


@pytest.mark.req("SOL-27", "HND-01")
async def test_a_handoff_is_recorded_before_its_first_call_and_until_it_is_copied(system):
    system.begin("aaaa", bound="ab")
    async with system.running():
        await eventually(lambda: len(system.said("remove")) == 2)
    (moved, _), (other, _) = system.said("record")
    assert sorted(system.brokers.owners().values()) == list("aabb")
    for index in (moved, other):
        steps = [
            name
            for name, at, *_ in system.journal
            if at == index and name in ("record", "pause", "committed", "remove")
        ]
        assert steps[:2] == ["record", "pause"]
        assert steps[-2:] == ["committed", "remove"]
        attempts = {rest for name, at, rest in system.journal if at == index and name == "commit"}
        assert attempts == {rest for at, rest in system.said("record") if at == index}


async def test_a_rebalance_is_kept_with_its_cost(system):
    system.begin("aaaa", bound="ab")
    async with system.running():
        await eventually(lambda: system.store.rebalances)
    (rebalance,) = system.store.rebalances
    assert (rebalance.trigger, rebalance.moved, rebalance.assigned) == ("member_joined", 2, 0)


@pytest.mark.req("FAIL-07")
async def test_a_silent_broker_holds_up_only_its_own_partitions(system):
    """Both brokers were seen; then one falls silent in the middle of its handoffs."""
    system.own("a", "a", "a", "a")
    system.brokers.bind("a")
    for record in system.brokers.records.values():
        record.in_flight = 1
    system.brokers.bind("b")
    async with system.running():
        await eventually(lambda: len(system.said("pause")) >= 2)
        paused = {index for index, _ in system.said("pause")}
        here = {index for index in paused if index % 2 == 0}
        system.brokers.leave("a")  # all four have to go now, and b-1 cannot be asked
        system.brokers.silent.add("b-1")
        for record in system.brokers.records.values():
            record.in_flight = 0
        await eventually(lambda: {i for i, _ in system.said("committed")} >= {0, 2} | here)
        assert not {i for i, _ in system.said("committed")} & {1, 3}
        system.brokers.silent.clear()
        await eventually(lambda: set(system.brokers.owners().values()) == {"b"})


@pytest.mark.req("FAIL-04")
async def test_no_plan_before_every_living_broker_was_seen_once(system):
    system.brokers.bind("a")
    system.brokers.silent.add("b-1")
    coordinator = system.coordinator()
    await looks(coordinator)
    assert system.said("record") == []
    system.brokers.silent.clear()
    await looks(coordinator)
    assert len(system.said("record")) == 4
    await coordinator.close()


@pytest.mark.req("SOL-37", "SOL-U03")
async def test_a_lost_member_gets_everything_back_in_time(system):
    system.begin("aabb", bound="ab")
    async with system.running():
        await eventually(lambda: len(system.store.members) == 2)
        system.brokers.lose("b", age_s=1.0)
        await eventually(lambda: system.store.members["b"].lost_at_ms)
        await eventually(lambda: system.store.assignment[PartitionId(1, 2)].state == "Unbound")
        system.brokers.bind("b", age_s=0.1)
        await eventually(lambda: not system.store.members["b"].lost_at_ms)
        await eventually(lambda: system.store.assignment[PartitionId(1, 2)].state == "Ready")
    assert system.said("record") == []


@pytest.mark.req("SOL-41")
async def test_past_the_delay_the_partitions_of_a_lost_member_are_taken(system):
    system.own("a", "a", "b", "b")
    system.brokers.bind("a")
    system.brokers.lose("b")
    for broker in ("b-0", "b-1"):
        system.brokers.losses["b", broker] = 5.0
    async with system.running():
        await eventually(lambda: set(system.brokers.owners().values()) == {"a"})
        await eventually(lambda: system.store.rebalances)
    assert {forced for _, forced in system.said("committed")} == {"source_lost"}
    assert system.said("pause") == []
    (rebalance,) = system.store.rebalances
    assert (rebalance.trigger, rebalance.moved) == ("member_lost", 2)
    assert rebalance.longest_pause_ms >= 5_000


@pytest.mark.req("HND-11", "HND-20")
async def test_a_drain_that_takes_too_long_is_cut(system):
    system.begin("aabb", bound="ab", leaving="b", in_flight=1)
    async with system.running():
        await eventually(lambda: len(system.said("drain")) >= 4)
        assert system.said("committed") == []
        system.clock.skipped_s += 3.0
        await eventually(lambda: len(system.said("committed")) == 2)
    assert {forced for _, forced in system.said("committed")} == {"drain_timeout"}


@pytest.mark.req("HND-22")
async def test_without_time_to_drain_nothing_is_waited_for(system):
    """maxHandoffSeconds is 0: the source is paused, and cut off with what it has in hand."""
    system.clock.stop()
    system.store.groups[GROUP].spec["rebalance"] = {"maxHandoffSeconds": 0}
    system.begin("aabb", bound="ab", leaving="b", in_flight=1)
    async with system.running():
        await eventually(lambda: len(system.said("committed")) == 2)
    assert len({index for index, _ in system.said("pause")}) == 2
    assert {forced for _, forced in system.said("committed")} == {"drain_timeout"}


@pytest.mark.req("HND-22")
async def test_without_a_delay_a_lost_member_is_not_waited_for(system):
    system.clock.stop()
    system.store.groups[GROUP].spec["rebalance"] = {"delaySeconds": 0}
    system.own("a", "a", "b", "b")
    system.brokers.bind("a")
    system.brokers.lose("b")
    async with system.running():
        await eventually(lambda: set(system.brokers.owners().values()) == {"a"})
    assert {forced for _, forced in system.said("committed")} == {"source_lost"}


async def test_a_source_that_is_lost_while_it_drains_is_not_waited_for(system):
    system.begin("aabb", bound="ab", leaving="b", in_flight=1)
    async with system.running():
        await eventually(lambda: len(system.said("drain")) >= 2)
        system.brokers.lose("b")
        await eventually(lambda: len(system.said("committed")) == 2)
    assert {forced for _, forced in system.said("committed")} == {"source_lost"}


@pytest.mark.req("FAIL-08")
async def test_a_target_that_is_lost_lets_the_source_go_on(system):
    system.begin("aaaa", bound="ab", in_flight=1)
    async with system.running():
        await eventually(lambda: len({index for index, _ in system.said("drain")}) == 2)
        system.brokers.lose("b")
        await eventually(lambda: len(system.said("cancel")) == 2 and not system.store.handoffs)
    assert system.said("committed") == []
    assert {record.pause for record in system.brokers.records.values()} == {None}


async def test_a_commit_whose_answer_is_lost_happens_once(system):
    system.begin("aaaa", bound="ab")
    system.brokers.deaf.add("commit")
    async with system.running():
        await eventually(lambda: len(system.said("remove")) == 2)
        await eventually(lambda: system.store.rebalances)
    assert len(system.said("committed")) == 2
    assert len({attempt for _, attempt in system.said("commit")}) == 2
    assert system.store.rebalances[0].moved == 2


async def test_the_next_coordinator_goes_on_with_the_same_attempt(system):
    """The recorded pause is still in force: the drain goes on, and its deadline too."""
    system.begin("aaaa", bound="ab")
    record = system.brokers.records[P0]
    record.pause, record.in_flight = 41, 1
    system.store.attempt = 41
    deadline_ms = round(system.clock() * 1000) + 2_000
    system.store.handoffs[P0] = HandoffRecord("a", "b", 41, "Draining", deadline_ms)
    async with system.running():
        await eventually(lambda: (0, 41) in system.said("drain"))
        assert (0, "a") not in system.said("committed")
        system.clock.skipped_s += 2.0
        await eventually(lambda: (0, "drain_timeout") in system.said("committed"))
    assert {attempt for index, attempt in system.said("commit") if index == 0} == {41}


async def test_the_next_coordinator_draws_a_new_attempt_when_the_pause_has_lapsed(system):
    system.begin("aaaa", bound="ab")
    system.brokers.records[P0].closed = 41
    system.store.attempt = 41
    system.store.handoffs[P0] = HandoffRecord("a", "b", 41, "Draining", 1)
    async with system.running():
        await eventually(lambda: sorted(system.brokers.owners().values()) == list("aabb"))
        await eventually(lambda: not system.store.handoffs)
    assert 41 not in {attempt for _, attempt in system.said("pause")}


@pytest.mark.req("HND-01")
async def test_the_record_of_a_new_attempt_outlives_that_of_the_last_one(system):
    """What is planned again in the look that finds the last attempt over stays on record."""
    system.begin("aaaa", bound="ab", in_flight=1)
    system.store.attempt = 41
    for index in range(4):
        system.brokers.records[PartitionId(1, index)].closed = 41
        system.store.handoffs[PartitionId(1, index)] = HandoffRecord("a", "b", 41, "Draining", 1)
    async with system.running():
        await eventually(lambda: len({index for index, _ in system.said("drain")}) == 2)
        looks = system.store.looks
        await eventually(lambda: system.store.looks > looks + 2)
        on_record = {p.index: each.attempt for p, each in system.store.handoffs.items()}
        assert on_record == dict(system.said("record"))
        for record in system.brokers.records.values():
            record.in_flight = 0
        await eventually(lambda: not system.store.handoffs)


@pytest.mark.req("FAIL-09")
async def test_the_next_coordinator_copies_what_was_committed(system):
    system.begin("bbaa", bound="ab")
    system.brokers.records[P0].closed = 41
    system.store.handoffs[P0] = HandoffRecord("a", "b", 41, "Draining", 1)
    async with system.running():
        await eventually(lambda: not system.store.handoffs)
        await eventually(lambda: system.store.assignment[P0].member == "b")
    assert system.said("committed") == []


@pytest.mark.req("FAIL-05")
async def test_two_coordinators_at_once_do_no_harm(system):
    system.brokers.bind("a")
    system.brokers.bind("b")
    async with system.running(), system.running():
        await eventually(lambda: sorted(map(str, system.brokers.owners().values())) == list("aabb"))
        system.brokers.bind("c")
        await eventually(lambda: "c" in system.brokers.owners().values())
        await eventually(lambda: not system.store.handoffs)
    assert len(system.said("committed")) == 5


async def test_who_asks_from_this_machine_is_listed_at_once(system):
    async with system.running():
        await eventually(lambda: system.store.assignment)
        for member, address, queue in (
            ("near", "127.0.0.1", "orders"),
            ("far", "10.0.0.9", "orders"),
            ("other", "127.0.0.1", "invoices"),
        ):
            fields = {"namespace": "ns", "queue": queue, "group": "workers"}
            fields |= {"member": member, "address": address}
            await system.store.events.put(SimpleNamespace(kind="ask", fields=fields))
        await eventually(lambda: "near" in system.store.members)
        await eventually(system.store.events.empty)
    assert system.store.members.keys() == {"near"}


async def test_cursors_follow_the_groups(system):
    store = system.store
    async with system.running():
        await eventually(
            lambda: set(map(frozenset, store.cursors.values())) == {frozenset(["workers"])}
        )
        store.groups["audit"] = SimpleNamespace(spec={"start": "Latest"}, groups=(), born=1)
        store.queue = SimpleNamespace(spec={}, groups=("audit", "workers"), resource_generation=2)
        await eventually(lambda: all("audit" in groups for groups in store.cursors.values()))
        # A spec that cannot be read, or is not there, removes nothing.
        names = ("audit", "workers")
        for number, spec in (
            (3, SimpleNamespace(spec={"type": "Common"}, groups=(), born=1)),
            (4, None),
        ):
            store.groups["workers"] = spec
            store.queue = SimpleNamespace(spec={}, groups=names, resource_generation=number)
            looks = store.looks
            await eventually(lambda looks=looks: store.looks > looks + 2)
            assert all("workers" in groups for groups in store.cursors.values())
        del store.groups["workers"]
        store.queue = SimpleNamespace(spec={}, groups=("audit",), resource_generation=5)
        await eventually(lambda: not any("workers" in groups for groups in store.cursors.values()))


async def test_a_queue_that_is_being_deleted_is_left_alone(system):
    system.brokers.bind("a")
    system.store.layout.tombstone = True
    coordinator = system.coordinator()
    await looks(coordinator)
    system.store.layout = None
    await looks(coordinator)
    assert system.journal == []
    await coordinator.close()


async def test_unowned_partitions_are_claimed_evenly(system):
    system.brokers.records.clear()
    system.store.owners.clear()
    async with system.running():
        await eventually(lambda: len(system.brokers.records) == 4)
    brokers = [record.broker for record in system.brokers.records.values()]
    assert sorted(brokers) == ["b-0", "b-0", "b-1", "b-1"]


async def test_a_new_broker_gets_its_share_when_all_is_quiet(system):
    for record in system.brokers.records.values():
        record.broker = "b-0"
    system.own("a", "a", "a", "a")
    system.brokers.bind("a")
    async with system.running():
        await eventually(lambda: "a" in system.store.members)
        system.brokers.lose("a", age_s=1.0)
        await eventually(lambda: system.store.members["a"].lost_at_ms)
        system.clock.skipped_s += 5.0
        looks = system.store.looks
        await eventually(lambda: system.store.looks > looks + 2)
        assert system.said("yield") == [], "somebody is missing"
        system.brokers.bind("a")
        await eventually(lambda: len(system.said("claim")) == 2)
    brokers = [record.broker for record in system.brokers.records.values()]
    assert sorted(brokers) == ["b-0", "b-0", "b-1", "b-1"]


async def test_one_that_is_refused_begins_another_term_and_nothing_twice(system):
    """What it has under way goes on: its brokers judge that by attempt and epoch."""
    system.begin("aaaa", bound="ab")
    store, real = system.store, system.store._write_assignment

    async def refused_once(group, mapping):
        store._write_assignment = real
        raise FencedError("another coordinator has begun")

    ports = system.store.ports

    def patched():
        found = ports()
        found.assignments.write = lambda *args: store._write_assignment(*args)
        return found

    store.ports = patched
    store._write_assignment = refused_once
    async with system.running():
        await eventually(lambda: sorted(system.brokers.owners().values()) == list("aabb"))
        await eventually(lambda: not store.handoffs)
    terms = [entry for entry in system.journal if entry[0] == "term"]
    assert len(terms) == 2, "before its first look, and after it was refused"
    assert system.journal[0][0] == "term"
    attempts = {rest for _, rest in system.said("record")}
    assert len(attempts) == 2, "no attempt was begun twice"


async def test_one_that_may_not_list_a_member_begins_another_term(system):
    """Without members a look has nothing to write, and would be refused nothing."""
    store, real = system.store, system.store.ports
    terms = []

    def patched():
        ports = real()
        begin, list_member = ports.terms.begin, ports.members.list_member

        async def begun(group):
            await begin(group)
            terms.append(group)

        async def listed(*args):
            if len(terms) < 2:
                raise FencedError("another coordinator has begun")
            await list_member(*args)

        ports.terms.begin, ports.members.list_member = begun, listed
        return ports

    store.ports = patched
    fields = {"namespace": "ns", "queue": "orders", "group": "workers"}
    fields |= {"member": "near", "address": "127.0.0.1"}
    async with system.running():
        await eventually(lambda: store.assignment)
        await store.events.put(SimpleNamespace(kind="ask", fields=fields))
        await eventually(lambda: len(terms) == 2)
        await store.events.put(SimpleNamespace(kind="ask", fields=fields))
        await eventually(lambda: "near" in store.members)


async def test_a_group_that_is_gone_and_back_between_two_looks_begins_like_a_new_one(system):
    """Without a resource it has no uid; when it was made tells the two apart."""
    system.begin("aaaa", bound="ab")
    store = system.store
    async with system.running() as coordinator:
        await eventually(lambda: store.rebalances and not store.handoffs)
        store.rebalances, store.assignment = [], {}
        store.groups[GROUP] = SimpleNamespace(spec={}, groups=(), born=2)
        coordinator.wake()
        await eventually(lambda: len(system.said("term")) == 2)
        await eventually(lambda: len(store.assignment) == 4)
    assert store.rebalances == [], "the history of the earlier group is not written to this one"


async def test_the_handoff_of_a_partition_that_the_layout_has_no_more_is_over(system):
    system.begin("aaaa", bound="ab", in_flight=1)
    async with system.running() as coordinator:
        await eventually(lambda: len(system.said("pause")) >= 2)
        paused = {PartitionId(1, index) for index, _ in system.said("pause")}
        stays, *_ = sorted({PartitionId(1, index) for index in range(4)} - paused)
        assert system.store.handoffs.keys() == paused
        left = SimpleNamespace(
            all_partitions=lambda: (stays,), succession=Succession, revision=0, next=None,
            partition_count=1, changes=(), partitions=lambda: (stays,), generation=1, retired={},
            last_generation=1,
        )  # fmt: skip
        system.store.layout = SimpleNamespace(layout=left, tombstone=False)
        await eventually(lambda: not system.store.handoffs)
        await eventually(lambda: system.store.assignment.keys() == {stays})
        (group,) = coordinator._groups.values()
        assert not group.worker._runner.running
    assert not system.said("committed")
