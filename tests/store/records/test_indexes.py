"""Leases, layouts, assignments, members, handoffs, events: plans and indexes."""

import asyncio
import json

import pytest

from partq.coordinator.group.queue_observation import lost_since
from partq.core.group.records import (
    MAX_PAST_MOVES,
    MAX_REBALANCES,
    AssignmentEntry,
    HandoffRecord,
    MemberRecord,
    PastMove,
    RebalanceRecord,
    RecordedMoves,
    WaitingMove,
)
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.records import LeaseRecord
from partq.errors import FencedError, UnknownGroupError, UnknownQueueError
from partq.store.records.assignments import Assignments
from partq.store.records.configs import Configs
from partq.store.records.events import Events
from partq.store.records.groups import Terms
from partq.store.records.handoffs import Handoffs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.leases import Leases
from partq.store.records.members import Members
from partq.store.records.rebalances import Rebalances

GROUP = "workers"
P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


@pytest.fixture
async def group(store, keys):
    """Return the name of a group that is on record."""
    await Configs(store, keys).write_group(GROUP, {}, resource_generation=1)
    return GROUP


# ---- leases -------------------------------------------------------------------------------------


async def test_every_renewal_changes_the_counter(store, keys):
    leases = Leases(store, keys)
    counters = [await leases.renew("b-0", "x", 3.0, "http://b-0") for _ in range(5)]
    assert counters == sorted(set(counters))
    await leases.renew("b:1", "y", 2.5, "http://b:1")
    found = await leases.read()
    assert found.leases["b-0"] == LeaseRecord(
        "x",
        counters[-1],
        3.0,
        "http://b-0",
        frozenset(["rescale", "lanes", "states", "parts", "sessions", "turns"]),
    )
    assert found.leases["b:1"].ttl_s == 2.5


async def test_features_are_those_of_the_incarnation_that_wrote_them(store, keys):
    """An earlier version, which took the name over, writes none, and reads leases as they were."""
    leases = Leases(store, keys)
    await leases.renew("b-0", "new", 3.0, "u")
    text = await store.read("HGET", keys.brokers(), "lease:b-0")
    assert json.loads(text) == {"incarnation": "new", "ttl_s": 3.0, "url": "u"}
    old = text.replace(b"new", b"old").decode()
    await store.run("write_fields", [keys.brokers()], [1, "lease:b-0", old])
    assert (await leases.read()).leases["b-0"].features == frozenset()


async def test_a_later_incarnation_takes_the_name_over(store, keys):
    old, new = Leases(store, keys), Leases(store, keys)
    await old.renew("b-0", "old", 3.0, "u")
    await new.renew("b-0", "new", 3.0, "u")
    with pytest.raises(FencedError):
        await old.renew("b-0", "old", 3.0, "u")
    await old.release("b-0", "old")
    assert (await new.read()).leases["b-0"].incarnation == "new"


async def test_a_released_lease_is_gone_and_does_not_come_back(store, keys):
    old, new = Leases(store, keys), Leases(store, keys)
    await old.renew("b-0", "old", 3.0, "u")
    await new.renew("b-0", "new", 3.0, "u")
    await new.release("b-0", "new")
    assert (await new.read()).leases == {}
    with pytest.raises(FencedError):
        await old.renew("b-0", "old", 3.0, "u")


async def test_a_late_sum_of_all_logs_does_not_replace_a_later_one(store, keys):
    """Brokers would take it for news, and grant room that is not there any more."""
    leases = Leases(store, keys)
    sums = ((1, 10), (2, 500), (1, 10), (2, 20))
    written = [await leases.write_usage(*each) for each in sums]
    assert written == [True, True, False, False]
    assert await leases.read_usage() == (2, 500)
    await leases.write_usage(3, 30)
    assert await leases.read_usage() == (3, 30)


async def test_a_store_that_forgot_takes_the_living_incarnation(store, keys, clock_passes):
    old, new = Leases(store, keys), Leases(store, keys)
    await old.renew("b-0", "old", 3.0, "u")
    forgotten = await store.read("HGETALL", keys.brokers())
    counter = await new.renew("b-0", "new", 3.0, "u")
    await store.read("HSET", keys.brokers(), *forgotten)
    await clock_passes(counter)
    assert await new.renew("b-0", "new", 3.0, "u") > counter
    with pytest.raises(FencedError):
        await old.renew("b-0", "old", 3.0, "u")


async def test_owners_are_an_index(store, keys):
    leases = Leases(store, keys)
    await leases.record_owner(P0, "b-0")
    await leases.record_owner(P1, "b-1")
    await leases.record_owner(P0, "b-1")
    assert (await leases.read()).owners == {P0: "b-1", P1: "b-1"}
    await leases.record_owner(P0, None)
    assert (await leases.read()).owners == {P1: "b-1"}


# ---- layouts ------------------------------------------------------------------------------------


async def test_a_queue_is_made_once(store, keys):
    layouts = Layouts(store, keys)
    with pytest.raises(UnknownQueueError):
        await layouts.read()
    made = await layouts.create_queue({1: 16})
    assert made.layout == Layout.first(16)
    assert not made.tombstone
    assert await layouts.create_queue({1: 99}) == made == await layouts.read()
    await layouts.bury()
    assert (await layouts.read()).tombstone


# ---- assignments, members, handoffs, rebalances -------------------------------------------------


async def test_assignments_are_written_in_part(store, keys, group):
    assignments = Assignments(store, keys)
    assert await assignments.read(group) == {}
    many = {PartitionId(1, n): AssignmentEntry("m:0 é", n, "Ready") for n in range(1500)}
    await assignments.write(group, many)
    change = {P1: AssignmentEntry(None, 2**53, "Unassigned")}
    await assignments.write(group, change)
    assert await assignments.read(group) == {**many, **change}
    assert await assignments.read("other") == {}


@pytest.mark.req("FAIL-13")
async def test_a_lost_member_is_lost_since_the_first_mark(store, keys, group, clock_passes):
    members = Members(store, keys)
    await members.list_member(group, "m:0", "10.0.0.1")
    await members.list_member(group, "m:1", "10.0.0.2")
    lost_at_ms = await members.mark_lost(group, "m:0")
    await clock_passes(lost_at_ms)
    assert await members.mark_lost(group, "m:0") == lost_at_ms
    await members.list_member(group, "m:0", "10.0.0.9")
    found = await members.read(group)
    assert found.members == {
        "m:0": MemberRecord("10.0.0.9", lost_at_ms),
        "m:1": MemberRecord("10.0.0.2", None),
    }
    assert found.now_ms > lost_at_ms
    await members.clear_lost(group, "m:0")
    assert (await members.read(group)).members["m:0"].lost_at_ms is None
    assert await members.mark_lost(group, "m:0") > lost_at_ms
    await members.unlist(group, "m:0")
    await members.list_member(group, "m:0", "10.0.0.1")
    assert (await members.read(group)).members["m:0"].lost_at_ms is None


async def test_who_inherits_is_kept_until_it_is_forgotten(store, keys, group):
    members = Members(store, keys)
    await members.list_member(group, "m:0", "10.0.0.1")
    await members.pair(group, "m:0", "m:1")
    await members.pair(group, "m:0", "m:2")
    await members.pair(group, "gone", "m:3")
    found = await members.read(group)
    assert found.replacements == {"m:0": "m:2", "gone": "m:3"}
    assert found.members == {"m:0": MemberRecord("10.0.0.1", None)}
    await members.unlist(group, "m:0")
    await members.unpair(group, "gone")
    assert (await members.read(group)).replacements == {"m:0": "m:2"}, (
        "it goes when nothing is left"
    )


async def test_a_member_may_be_lost_that_is_not_listed(store, keys, group):
    """It has registered a partition, or what listed it was among the last writes that were lost."""
    members = Members(store, keys)
    await members.list_member(group, "listed", "10.0.0.1")
    await members.mark_lost(group, "listed")
    lost_at_ms = await members.mark_lost(group, "m:0")
    found = await members.read(group)
    assert found.lost_unlisted == {"m:0": lost_at_ms}
    assert lost_since(found).keys() == {"listed", "m:0"}
    await members.unlist(group, "m:0")
    assert (await members.read(group)).lost_unlisted == {}


async def test_a_loss_noted_before_the_clock_was_set_back_is_noted_anew(store, keys, group):
    members = Members(store, keys)
    await members.list_member(group, "m:0", "10.0.0.1")
    now_ms = (await members.read(group)).now_ms
    to_come = (1, "lost:m:0", now_ms + 60_000, "")
    await store.run("write_fields", [keys.members(group), keys.group_config(group)], to_come)
    lost_at_ms = await members.mark_lost(group, "m:0")
    assert now_ms <= lost_at_ms < now_ms + 60_000
    assert (await members.read(group)).members["m:0"].lost_at_ms == lost_at_ms


async def test_handoffs_are_kept_until_removed(store, keys, group):
    handoffs = Handoffs(store, keys)
    record = HandoffRecord("m-0", None, 5, "Draining", 1_700_000_000_000)
    await handoffs.record(group, P0, record)
    await handoffs.record(group, P1, record)
    await handoffs.draw_attempt(group)
    assert await handoffs.read(group) == {P0: record, P1: record}
    await handoffs.remove(group, P0)
    await handoffs.remove(group, P0)
    assert await handoffs.read(group) == {P1: record}


@pytest.mark.req("FAIL-10")
async def test_attempts_never_repeat_whatever_the_store_forgets(store, keys, group, clock_passes):
    handoffs = Handoffs(store, keys)
    drawn = [await handoffs.draw_attempt(group) for _ in range(3)]
    await store.read("DEL", keys.handoffs(group))
    await clock_passes(max(drawn))
    drawn += [await handoffs.draw_attempt(group) for _ in range(3)]
    await store.read("HSET", keys.handoffs(group), "last_attempt", 2**53 - 2)
    drawn.append(await handoffs.draw_attempt(group))
    assert drawn == sorted(set(drawn))
    assert drawn[-1] == 2**53 - 1


async def test_the_last_rebalances_are_kept(store, keys, group):
    rebalances = Rebalances(store, keys)
    assert await rebalances.read(group) == []
    all_of_them = [RebalanceRecord("join", n, 0, 1, 2, 3) for n in range(MAX_REBALANCES + 5)]
    await rebalances.write(group, all_of_them)
    assert await rebalances.read(group) == all_of_them[5:]


async def test_the_moves_of_each_partition_are_kept_and_those_that_wait(store, keys, group):
    rebalances = Rebalances(store, keys)
    assert await rebalances.read_moves(group) == RecordedMoves()
    moves = [
        PastMove(
            at_ms=number,
            source="a",
            target=None,
            attempt=number,
            trigger="member_lost",
            evidence="delay_over",
            forced="source_lost",
            pause_ms=None,
        )
        for number in range(MAX_PAST_MOVES + 2)
    ]
    held = WaitingMove(target="b", limit="maxMovesPerMinute", since_ms=1, until_ms=None)
    await rebalances.write(group, [RebalanceRecord("join", 1, 0, 1, 2, 3)])
    await rebalances.write_moves(group, {P0: moves}, {P1: held})
    kept = {P0: moves[-MAX_PAST_MOVES:]}
    assert await rebalances.read_moves(group) == RecordedMoves(past=kept, waiting={P1: held})
    await rebalances.write_moves(group, {P1: moves[:1]}, None)
    found = await rebalances.read_moves(group)
    assert found == RecordedMoves(past={**kept, P1: moves[:1]}, waiting={P1: held})
    await rebalances.write_moves(group, {}, {})
    assert await rebalances.read_waiting(group) == {}
    assert len(await rebalances.read(group)) == 1


async def test_nothing_of_a_group_comes_back_that_was_taken_off_the_record(store, keys, group):
    await Members(store, keys).list_member(group, "m", "10.0.0.1")
    await Assignments(store, keys).write(group, {P0: AssignmentEntry("m", 1, "Ready")})
    configs = Configs(store, keys)
    await configs.erase_group(group, born=(await configs.read_group(group)).born)
    late = [
        Assignments(store, keys).write(group, {P0: AssignmentEntry("m", 1, "Ready")}),
        Members(store, keys).list_member(group, "m", "10.0.0.1"),
        Members(store, keys).mark_lost(group, "m"),
        Handoffs(store, keys).draw_attempt(group),
        Handoffs(store, keys).record(group, P0, HandoffRecord("m", None, 5, "Draining", 0)),
        Rebalances(store, keys).write(group, [RebalanceRecord("join", 1, 0, 1, 2, 3)]),
    ]
    for write in late:
        with pytest.raises(UnknownGroupError, match="workers of queue ns/orders"):
            await write
    assert await store.read("EXISTS", *keys.of_group(group)) == 0


async def test_a_coordinator_that_was_replaced_writes_over_nothing(store, keys, group):
    """Late or not, and whatever it has read: the term of the one after it is above its own."""

    def writes(terms, name):
        return [
            lambda: Assignments(store, keys, terms).write(
                group, {P0: AssignmentEntry(name, 1, "Ready")}
            ),
            lambda: Members(store, keys, terms).list_member(group, "m", name),
            lambda: Members(store, keys, terms).mark_lost(group, "m"),
            lambda: Members(store, keys, terms).pair(group, "m", name),
            lambda: Members(store, keys, terms).unlist(group, "m"),
            lambda: Handoffs(store, keys, terms).draw_attempt(group),
            lambda: Handoffs(store, keys, terms).record(
                group, P0, HandoffRecord(name, None, 5, "Draining", 0)
            ),
            lambda: Handoffs(store, keys, terms).remove(group, P0),
            lambda: Rebalances(store, keys, terms).write(
                group, [RebalanceRecord(name, 1, 0, 1, 2, 3)]
            ),
            lambda: Rebalances(store, keys, terms).write_moves(group, {P0: []}, {}),
        ]

    async def stored():
        return [await store.read("HGETALL", key) for key in sorted(keys.of_group(group))]

    first, second = Terms(store, keys), Terms(store, keys)
    for terms in (first, second):
        await terms.begin(group)
        for write in writes(terms, "new"):
            await write()
    before = await stored()
    for write in writes(first, "old"):
        with pytest.raises(FencedError, match="another coordinator has begun"):
            await write()
    assert await stored() == before
    await writes(None, "of an earlier version")[0]()
    await first.begin(group)  # it leads again
    await writes(first, "old")[0]()
    assert (await Assignments(store, keys).read(group))[P0].member == "old"
    with pytest.raises(FencedError):
        await writes(second, "new")[0]()


async def test_a_coordinator_has_a_term_before_it_writes_anything(store, keys, group, monkeypatch):
    """Members ask to be listed before its first look, and that call may arrive late, too."""
    run, calls = store.run, []

    async def recorded(*call, **options):
        calls.append(call)
        return await run(*call, **options)

    monkeypatch.setattr(store, "run", recorded)
    await Members(store, keys, Terms(store, keys)).list_member(group, "m", "10.0.0.1")
    successor = Terms(store, keys)
    await successor.begin(group)
    await Members(store, keys, successor).unlist(group, "m")
    (late,) = [call for call in calls if call[1][0] == keys.members(group)][:1]
    assert await run(*late) == -1
    assert await store.read("HGETALL", keys.members(group)) == []


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
async def test_a_term_ends_with_the_group_that_it_was_begun_for(store, keys, group, ahead_ms):
    """A late write names it once the group was created again, before and after its first term."""
    config, configs, old = keys.group_config(group), Configs(store, keys), Terms(store, keys)
    await old.begin(group)
    if ahead_ms:  # Redis's clock was ahead then: the terms of the next group are lower
        term = [1, "coordinator_term", await old.named(group) + ahead_ms]
        await store.run("write_fields", [config], term)
        await old.begin(group)
    await configs.erase_group(group, born=(await configs.read_group(group)).born)
    await configs.write_group(group, {}, resource_generation=1)
    new = Terms(store, keys)
    for _ in range(2):
        late = [
            Members(store, keys, old).list_member(group, "m", "10.0.0.1"),
            Members(store, keys, old).mark_lost(group, "m"),
            Handoffs(store, keys, old).draw_attempt(group),
        ]
        for write in late:
            with pytest.raises(FencedError, match="another coordinator has begun"):
                await write
        assert await store.read("EXISTS", keys.members(group), keys.handoffs(group)) == 0
        await new.begin(group)
    await Members(store, keys, new).list_member(group, "m", "10.0.0.2")


async def test_terms_that_are_forgotten_within_a_millisecond_do_not_come_back(store, keys, group):
    config, coordinators, calls = keys.group_config(group), [], []
    for _ in range(50):
        coordinators.append(Terms(store, keys))
        calls.append(coordinators[-1].begin(group))
        calls.append(store.run("write_fields", [config], [0, "coordinator_term"]))
    await asyncio.gather(*calls)
    assert len({await terms.named(group) for terms in coordinators}) == len(coordinators)


@pytest.mark.req("FAIL-10")
async def test_terms_grow_whatever_the_store_forgets(store, keys, group, clock_passes):
    one, other = Terms(store, keys), Terms(store, keys)
    await one.begin(group)
    key = keys.group_config(group)
    await store.run("write_fields", [key], [0, "coordinator_term"])
    await clock_passes(await one.named(group) // 1000)
    await other.begin(group)
    assert await other.named(group) > await one.named(group)
    with pytest.raises(UnknownGroupError):
        await one.begin("nobody")


# ---- events -------------------------------------------------------------------------------------


async def test_events_wake_who_waits(store, keys):
    events = Events(store, keys)
    await events.add("before")
    last_id, found = await events.wait("", 5.0)
    assert found == []
    waiting = asyncio.create_task(events.wait(last_id, 5.0))
    await events.add("bound", group=GROUP, epoch=7)
    last_id, (event,) = await waiting
    assert event.kind == "bound"
    assert event.fields == {
        "namespace": "ns",
        "queue": "orders",
        "group": GROUP,
        "epoch": "7",
    }
    assert await events.wait(last_id, 0.01) == (last_id, [])


async def test_waiting_holds_up_no_other_call(store, keys, group):
    events = Events(store, keys)
    last_id, _ = await events.wait("", 5.0)
    waiting = asyncio.create_task(events.wait(last_id, 30.0))
    for _ in range(10):
        await Handoffs(store, keys).draw_attempt(group)
    assert not waiting.done()
    await events.add("end")
    _, found = await waiting
    assert [event.kind for event in found] == ["end"]


async def test_the_stream_of_events_is_capped(store, keys):
    events = Events(store, keys)
    await asyncio.gather(*[events.add("one") for _ in range(11_000)])
    assert await store.read("XLEN", keys.events()) < 10_500
