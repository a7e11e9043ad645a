"""A reset of all partitions after a change of their count: no key's messages out of order."""

import asyncio
from dataclasses import replace

import pytest

from partq.core.model import PartitionId
from partq.core.rescale.resets import new_reset_id
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from tests.broker.conftest import open_flow, open_producer, queue_and_group
from tests.broker.delivery.test_groups import make_again
from tests.broker.rescale.change import ChangeByHand, give, keys_of, outcome

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
RESET = "/v1/queues/orders/groups/workers/reset"


async def test_a_reset_waits_for_a_gate_that_is_being_opened(running, scene, peers):
    """What Redis and memory say of the gate changes in the same order."""
    gate = peers.Gate(running.broker.layout_follower.gatekeeper._seals, "open_gate")
    await ChangeByHand(running).change(5)
    assert await scene.source.ack(scene.held, 3) == ""
    await gate.is_reached()
    resetting = asyncio.create_task(ask(running, to="earliest"))
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: consumed.lock.locked(), "the owner opens it")
    gate.opened.set()
    answers = await resetting
    assert not [each for each in answers.values() if "error" in each], answers
    record = await running.broker.partitions.read_cursor(NEW, "workers")
    assert consumed.gate == record.gate == record.reset
    frame, values = await scene.source.deliver()
    assert (values, frame.cause) == (["a", "b", "c"], 8)


async def ask(running, **body):
    """Reset; return the answers by partition."""
    status, answer = await running.call("POST", RESET, json={"is_forced": True, **body})
    assert status == 200, answer
    return answer["partitions"]


async def changed(running, scene):
    """Make a partition more; all that was published before is acknowledged. Return its group."""
    layout = await ChangeByHand(running).change(5)
    assert await scene.source.ack(scene.held, 3) == ""
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: not consumed.is_gated, "the gate is open")
    producer = await open_producer(running, "q")
    assert await outcome(producer, NEW, 0, *keys_of((layout, NEW))) == ("stored", 0)
    return consumed


async def test_successors_wait_again_until_what_is_repeated_is_acknowledged(running, scene):
    consumed = await changed(running, scene)
    answers = await ask(running, to="earliest")
    assert list(answers) == ["1.0", "1.1", "1.2", "1.3", "2.4"]
    assert not [each for each in answers.values() if "error" in each]
    record = await running.broker.partitions.read_cursor(NEW, "workers")
    before = await running.broker.partitions.read_cursor(OLD, "workers")
    assert (consumed.gate, before.gate, before.reset) == (record.gate, "1", record.reset)
    assert record.gate == record.reset
    frame, values = await scene.source.deliver()
    assert (frame.generation, values, frame.cause) == (1, ["a", "b", "c"], 8)
    assert consumed.is_gated
    assert await scene.source.ack(frame, 3) == ""
    await eventually(lambda: not consumed.is_gated, "the gate is open again")


async def test_a_reset_whose_caller_dies_holds_a_gate_for_a_while(running, scene, clock):
    """What follows waits for the caller to reach the others; 30 seconds later it has died."""
    consumed = await changed(running, scene)
    (now_ms,) = (await running.broker.store.read_clocks()).values()
    reset = new_reset_id(now_ms, "r7", 2)
    await ask(running, to="earliest", partitions=["2.4"], reset=reset)
    await eventually(
        lambda: (
            [each.predecessor for each in consumed.holds if each.is_awaiting_reset]
            == [PartitionId(1, index) for index in range(4)]
        ),
        "all of its predecessors are waited for",
    )
    assert consumed.gate == reset
    clock.ahead_s += 31
    await eventually(lambda: not consumed.is_gated, "the usual rule counts: they are passed")


@pytest.fixture
def looks(running, monkeypatch):
    """The resets that hold gates, as they are judged; empty: none does."""
    found = []
    gatekeeper = running.broker.layout_follower.gatekeeper
    judge = gatekeeper._judge

    def look(consumed, reset, *rest):
        found.append(reset)
        judge(consumed, reset, *rest)

    monkeypatch.setattr(gatekeeper, "_judge", look)
    return found


async def is_watched(running, consumed):
    """Wait until the reset that holds a gate is seen: its time counts from then on."""
    gatekeeper = running.broker.layout_follower.gatekeeper

    def is_seen():
        watch = gatekeeper._watches.get(consumed)
        return watch is not None and watch.gate == consumed.gate

    await eventually(is_seen, "the gatekeeper has seen the reset")


async def test_a_silent_server_of_a_predecessor_delays_no_look_at_gates(
    running, scene, clock, looks, monkeypatch
):
    """A reset that it does not let end holds its own gate alone."""
    consumed = await changed(running, scene)
    failed = asyncio.Event()

    async def fail(*args):
        failed.set()
        raise StoreUnavailableError("the server of 1.0 does not answer")

    (now_ms,) = (await running.broker.store.read_clocks()).values()
    reset = new_reset_id(now_ms, "r7", 2)
    await ask(running, to="earliest", partitions=["2.4"], reset=reset)
    await is_watched(running, consumed)
    with monkeypatch.context() as patch:
        patch.setattr(running.broker.layout_follower.gatekeeper._seals, "end_reset", fail)
        clock.ahead_s += 31
        await eventually(failed.is_set, "the reset could not be ended")
        looks.clear()
        await eventually(lambda: len(looks) >= 3, "the gate is looked at all the same")
        assert set(looks) == {reset}
    await eventually(lambda: not consumed.is_gated, "the server answers again")


async def test_a_reset_that_holds_a_gate_for_long_is_ended_once(
    running, scene, clock, looks, monkeypatch
):
    """It is complete; the gate waits for messages, maybe for hours, and is looked at all along."""
    consumed = await changed(running, scene)
    ended = []

    async def end(partition, *_):
        ended.append(partition)
        return True

    monkeypatch.setattr(running.broker.layout_follower.gatekeeper._seals, "end_reset", end)
    answers = await ask(running, to="earliest")
    assert not [each for each in answers.values() if "error" in each], answers
    await is_watched(running, consumed)
    clock.ahead_s += 31
    await eventually(lambda: looks[-3:] == ["", "", ""], "no reset holds the gate any more")
    assert ended == [PartitionId(1, index) for index in range(4)]
    assert consumed.is_gated


async def test_late_steps_of_a_reset_are_refused_once_a_gate_is_open_that_it_held(
    running, scene, clock
):
    """Also where Redis's clock was set back, and in predecessors of predecessors."""
    await ChangeByHand(running).change(5)
    assert await scene.source.ack(scene.held, 3) == ""
    layout = await ChangeByHand(running).change(10)
    last = next(p for p, each in layout.lineage.items() if NEW in each and OLD not in each)
    consumed = running.broker.owned[last].groups["workers"]
    await eventually(lambda: not consumed.is_gated, "nothing is before it")
    (now_ms,) = (await running.broker.store.read_clocks()).values()
    reset = new_reset_id(now_ms + 60_000, "r7", 3)
    await ask(running, to="earliest", partitions=[str(last)], reset=reset)
    assert consumed.gate == reset
    await is_watched(running, consumed)
    clock.ahead_s += 31
    await eventually(lambda: not consumed.is_gated, "its caller is taken for gone")
    late = await ask(running, to="earliest", partitions=["1.0", "1.1", "2.4"], reset=reset)
    for answer in late.values():
        assert "it was ended, as it took too long" in answer["error"]["message"]
    assert (await running.broker.partitions.read_cursor(OLD, "workers")).cursor == 3


async def test_late_steps_of_a_reset_are_refused_once_another_one_holds_its_gate(running, scene):
    """Else a predecessor would be repeated behind what follows it, whose gate is open by then."""
    consumed = await changed(running, scene)
    (now_ms,) = (await running.broker.store.read_clocks()).values()
    first = new_reset_id(now_ms, "r1", 2)
    for partition in ("2.4", "2.4", "1.3"):
        answers = await ask(running, to="earliest", partitions=[partition], reset=first)
        assert "error" not in answers[partition], "a repeat does not end it"
    answers = await ask(running, to="earliest")
    assert not [each for each in answers.values() if "error" in each], answers
    frame, _ = await scene.source.deliver()
    assert await scene.source.ack(frame, 3) == ""
    await eventually(lambda: not consumed.is_gated, "the second one is done with")
    late = await ask(running, to="earliest", partitions=["1.0", "1.1"], reset=first)
    for answer in late.values():
        assert "another one began" in answer["error"]["message"]
    assert (await running.broker.partitions.read_cursor(OLD, "workers")).cursor == 3


async def reset_by_steps(running, scene, name):
    """Reset all, the newest first, under an id; acknowledge what is repeated. Return the id."""
    (now_ms,) = (await running.broker.store.read_clocks()).values()
    reset = new_reset_id(now_ms, name, 2)
    for partitions in (["2.4"], ["1.0", "1.1", "1.2", "1.3"]):
        answers = await ask(running, to="earliest", partitions=partitions, reset=reset)
        assert not [each for each in answers.values() if "error" in each], answers
    frame, values = await scene.source.deliver()
    assert (frame.generation, values, frame.cause) == (1, ["a", "b", "c"], 8)
    assert await scene.source.ack(frame, 3) == ""
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: not consumed.is_gated, "what is repeated is acknowledged")
    return reset


async def test_a_late_repeat_of_a_step_changes_nothing(running, scene):
    """Its gate is open, and nobody had to end it: a predecessor would be repeated behind it."""
    await changed(running, scene)
    reset = await reset_by_steps(running, scene, "r1")
    partitions, broker = ["1.0", "2.4"], running.broker

    async def records():
        return [
            await broker.partitions.read_cursor(PartitionId.parse(name), "workers")
            for name in partitions
        ]

    await eventually(lambda: broker.owned[OLD].groups["workers"].is_drained, "acks are stored")
    before, flow = await records(), broker.owned[OLD].groups["workers"].flow
    assert flow is not None
    late = await ask(running, to="earliest", partitions=partitions, reset=reset)
    assert await records() == before
    assert [late[name]["epoch"] for name in partitions] == [each.epoch for each in before]
    assert late["1.0"]["to"] == broker.owned[OLD].groups["workers"].book.cursor == 3
    assert broker.owned[OLD].groups["workers"].flow is flow, "its member keeps it"
    # One that names the epoch from before its step, and is not forced, is answered the same.
    epochs = {"1.0": before[0].epoch - 1}
    body = {"to": "earliest", "partitions": ["1.0"], "reset": reset, "epochs": epochs}
    _, answer = await running.call("POST", RESET, json=body)
    assert answer["partitions"]["1.0"] == late["1.0"]


async def test_late_steps_of_a_reset_are_refused_once_another_one_is_through(running, scene):
    """The first one was through as well, so nobody had to end it."""
    await changed(running, scene)
    first = await reset_by_steps(running, scene, "r1")
    await reset_by_steps(running, scene, "r2")
    late = await ask(running, to="earliest", partitions=["1.0", "2.4"], reset=first)
    for answer in late.values():
        assert "another one began" in answer["error"]["message"]
    assert (await running.broker.partitions.read_cursor(OLD, "workers")).cursor == 3


async def test_what_others_wait_for_is_not_moved_before_them(running, scene):
    """A member is connected to the new partition, and the reset is not forced."""
    consumed = await changed(running, scene)
    answers = await ask(running, to="earliest", epochs={"2.4": consumed.epoch - 1})
    assert answers["2.4"]["error"]["code"] == "conflict"
    for index in range(4):
        assert "follows it" in answers[f"1.{index}"]["error"]["message"]
    assert (await running.broker.partitions.read_cursor(OLD, "workers")).cursor == 3


async def test_a_change_that_the_broker_has_not_read_yet_is_followed(running, scene, monkeypatch):
    """A predecessor refuses a reset by the layout before; then it begins again, by the new one."""
    rescaler = ChangeByHand(running)
    await changed(running, scene)
    old = running.broker.config
    await rescaler.change(6)
    new = running.broker.config
    monkeypatch.setattr(running.broker, "_config", old)
    assert old.layout.generation < new.layout.generation
    answers = await ask(running, to="earliest")
    assert not [each for each in answers.values() if "error" in each], answers
    assert list(answers) == ["1.0", "1.1", "1.2", "1.3", "2.4", "3.5"]


async def test_a_reset_from_before_the_first_change_is_made_by_the_new_layout(
    running, scene, peers
):
    """A step that comes behind the seal would repeat a partition beside what follows it."""
    assert await scene.source.ack(scene.held, 3) == ""
    gate = peers.Gate(running.broker.partitions, "reset")
    resetting = asyncio.create_task(ask(running, to="earliest"))
    await gate.is_reached()
    layout = await ChangeByHand(running).change(5)
    consumed = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: not consumed.is_gated, "all before it is acknowledged")
    producer = await open_producer(running, "q")
    keys = keys_of((layout, NEW))
    assert await outcome(producer, NEW, 0, *keys) == ("stored", 0)
    gate.opened.set()
    answers = await resetting
    assert not [each for each in answers.values() if "error" in each], answers
    assert list(answers) == ["1.0", "1.1", "1.2", "1.3", "2.4"]
    assert consumed.is_gated
    frame, values = await scene.source.deliver()
    assert (frame.generation, values, frame.cause) == (1, ["a", "b", "c"], 8)
    assert await scene.source.ack(frame, 3) == ""
    await eventually(lambda: not consumed.is_gated, "what is repeated is acknowledged")


@pytest.mark.parametrize("resources", [queue_and_group(partitions=1)])
async def test_a_reset_to_an_offset_is_not_repeated_by_a_new_layout(running, peers):
    """Offsets count per partition: its caller knew the only one that there was."""
    gate = peers.Gate(running.broker.partitions, "reset")
    resetting = asyncio.create_task(ask(running, offset=0))
    await gate.is_reached()
    await ChangeByHand(running).change(2)
    gate.opened.set()
    answers = await resetting
    assert {name: each["error"]["code"] for name, each in answers.items()} == {
        "1.0": "stale_generation"
    }


async def test_over_two_brokers_each_key_is_repeated_in_order(running, start_broker, scene):
    """The broker that is asked tells the other one of which reset its call is a part."""
    layout = await ChangeByHand(running).change(5)
    await running.admin("/yield", {"partitions": ["2.4"]})
    other = await start_broker("orders-1")
    await other.admin("/claim", {"partitions": ["2.4"]})
    await give(other, "m", NEW)
    flow, other_flow = scene.source, await open_flow(other)
    consumed = other.broker.owned[NEW].groups["workers"]
    assert await flow.ack(scene.held, 3) == ""
    await eventually(lambda: not consumed.is_gated, "there is nothing before it")
    keys = keys_of((layout, NEW))
    assert (await outcome(await open_producer(other, "q"), NEW, 0, *keys))[0] == "stored"
    assert await other_flow.take(3) == keys
    await running.broker.claims.refresh()
    answers = await ask(running, to="earliest")
    assert not [each for each in answers.values() if "error" in each], answers
    frame, values = await flow.deliver()
    assert (frame.cause, values) == (8, ["a", "b", "c"])
    assert (consumed.is_gated, consumed.book.in_flight) == (True, 0)
    assert await flow.ack(frame, 3) == ""
    frame, values = await other_flow.deliver()
    assert (frame.cause, values) == (8, keys)


async def test_a_reset_moves_nothing_of_a_group_that_was_created_again_meanwhile(
    running, scene, peers
):
    """It names no epoch, and the new group may stand where the old one did."""
    gate = peers.Gate(running.broker.store, "read_clocks")
    resetting = asyncio.create_task(ask(running, to="latest"))
    await gate.is_reached()
    before = running.broker.owned[OLD].groups["workers"].born
    await make_again(running)

    def is_new():
        found = [owned.groups.get("workers") for owned in running.broker.owned.values()]
        return all(each is not None and each.born > before for each in found)

    await eventually(is_new, "the broker serves the new group")
    gate.opened.set()
    answers = await resetting
    assert {each["error"]["code"] for each in answers.values()} == {"unknown_group"}
    assert (await running.broker.partitions.read_cursor(OLD, "workers")).cursor == 0


async def test_a_broker_that_knows_no_changes_gets_its_part_as_before_them(
    running, start_broker, monkeypatch
):
    """It would refuse the id of the reset; the next owner, which may seal, fences its steps."""
    await running.admin("/yield", {"partitions": ["1.3"]})
    other = await start_broker("orders-1")
    await other.admin("/claim", {"partitions": ["1.3"]})
    claims = running.broker.claims
    await claims.refresh()
    earlier = {
        name: replace(each, features=frozenset()) if name == "orders-1" else each
        for name, each in claims.observer.leases.items()
    }
    monkeypatch.setattr(claims.observer, "leases", earlier)
    answers = await ask(running, to="earliest")
    assert list(answers) == ["1.0", "1.1", "1.2", "1.3"]
    records = {
        name: await running.broker.partitions.read_cursor(PartitionId.parse(name), "workers")
        for name in answers
    }
    assert {name for name, each in records.items() if each.reset} == {"1.0", "1.1", "1.2"}
    assert not [each for each in answers.values() if "error" in each], answers


async def test_one_partition_alone_is_reset_beside_the_others(running, scene):
    consumed = await changed(running, scene)
    await ask(running, to="earliest", partitions=["1.0"])
    assert not consumed.is_gated
    await ask(running, to="earliest", partitions=["2.4"])
    assert not consumed.is_gated


@pytest.mark.parametrize("path", [RESET, "/v1/queues/orders/browse"])
async def test_a_partition_that_is_being_prepared_is_unknown_to_callers(running, scene, path):
    await ChangeByHand(running).prepare(5)
    assert NEW in running.broker.owned
    body = {"partitions": [str(NEW)], **({"to": "latest"} if path == RESET else {})}
    status, answer = await running.call("POST", path, json=body)
    assert (status, answer["error"]["code"]) == (404, "unknown_partition")
