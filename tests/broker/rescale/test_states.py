"""States of keys in a change of the partition count: they are where the next message is."""

import base64

from partq.core.model import PartitionId
from partq.errors import StoreUnavailableError
from partq.store.key_states import KeyStates
from partq.testing import eventually
from tests.broker.rescale.change import ChangeByHand, keys_for_five

OLD, NEW = PartitionId(1, 0), PartitionId(2, 4)
GROUP = "/v1/queues/orders/groups/workers"


async def changed(running, scene):
    """Leave two states, and make a partition more; return the key that moves and the other one."""
    moving, staying = keys_for_five(running.broker.config.layout)
    for offset, key in enumerate((moving, staying)):
        acked = await scene.source.ack(
            scene.held, ranges=[(offset, offset + 1)], state_key=key, state=key.encode()
        )
        assert acked == ""
    await ChangeByHand(running).change(5)
    return moving, staying


async def states_of(running, partition):
    states = KeyStates(running.store, running.broker.keys)
    return {k: s async for part in states.scan(partition, "workers") for k, s in part.items()}


async def told(running, key):
    """Return the state that any broker tells of a key."""
    _, answer = await running.call("GET", f"{GROUP}/state?key={key}")
    return base64.b64decode(answer["state"])


async def test_states_follow_their_slots_before_the_gate_opens(running, scene):
    moving, staying = await changed(running, scene)
    assert await states_of(running, NEW) == {}
    assert await told(running, moving) == moving.encode()
    consumed = running.broker.owned[NEW].groups["workers"]
    assert consumed.is_gated
    newer = {"state_key": moving, "state": b"newer"}
    assert await scene.source.ack(scene.held, ranges=[(2, 3)], **newer) == ""
    await eventually(lambda: not consumed.is_gated, "the gate is open")
    assert await states_of(running, NEW) == {moving: b"newer"}
    assert consumed.states.stored_count == 1

    async def are_gone():
        return await states_of(running, OLD) == {staying: staying.encode()}

    await eventually(are_gone, "the predecessor has them no more")
    assert [await told(running, key) for key in (moving, staying)] == [b"newer", staying.encode()]
    record = await running.broker.partitions.read(OLD)
    assert record.state_bytes == 2 * len(staying)


async def test_a_try_that_failed_leaves_nothing_behind(running, scene):
    """A state that was carried over, and removed in the predecessor since, is not there."""
    moving, _ = await changed(running, scene)
    consumed = running.broker.owned[NEW].groups["workers"]
    mover = running.broker.layout_follower.gatekeeper._state_mover
    await mover.carry(consumed, running.broker.config.layout.predecessors(NEW))
    assert await states_of(running, NEW) == {moving: moving.encode()}
    assert await scene.source.ack(scene.held, ranges=[(2, 3)], state_key=moving) == ""
    await eventually(lambda: not consumed.is_gated, "the gate is open")
    assert await states_of(running, NEW) == {}


async def test_a_reset_that_would_part_states_from_older_messages_is_refused(running, scene):
    moving, _ = await changed(running, scene)
    consumed = running.broker.owned[NEW].groups["workers"]
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    await eventually(lambda: not consumed.is_gated, "the gate is open")

    async def reset(**body):
        everywhere = {"to": "earliest", "is_forced": True, **body}
        _, answer = await running.call("POST", f"{GROUP}/reset", json=everywhere)
        codes = (each.get("error", {}).get("code") for each in answer["partitions"].values())
        return [code for code in codes if code]

    before = consumed.epoch
    assert sorted(set(await reset())) == ["conflict", "kept_states"]
    assert (consumed.epoch, await states_of(running, NEW)) == (before, {moving: moving.encode()})
    assert await reset(clears_states=True) == []
    assert consumed.states.stored_count == 0
    assert [await states_of(running, each) for each in (OLD, NEW)] == [{}, {}]


async def test_a_removal_that_failed_is_repeated(running, scene, monkeypatch):
    moving, staying = await changed(running, scene)
    mover = running.broker.layout_follower.gatekeeper._state_mover
    remove, calls = mover._store.remove_moved, []

    async def fail_first(*given, **more):
        calls.append(given)
        if len(calls) == 1:
            raise StoreUnavailableError("no answer")
        await remove(*given, **more)

    monkeypatch.setattr(mover._store, "remove_moved", fail_first)
    monkeypatch.setattr("partq.broker.rescale.state_mover.FIRST_RETRY_S", 0.01)
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""

    async def are_gone():
        return await states_of(running, OLD) == {staying: staying.encode()}

    await eventually(are_gone, "the predecessor has them no more")
    assert len(calls) == 2
    assert await states_of(running, NEW) == {moving: moving.encode()}


async def test_a_predecessor_alone_is_not_reset_below_states_that_have_moved(running, scene):
    await changed(running, scene)
    consumed = running.broker.owned[NEW].groups["workers"]
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    await eventually(lambda: not consumed.is_gated, "the gate is open")
    body = {"to": "earliest", "is_forced": True, "partitions": [str(OLD)]}

    async def reset():
        _, answer = await running.call("POST", f"{GROUP}/reset", json=body)
        return answer["partitions"][str(OLD)]

    before = running.broker.owned[OLD].groups["workers"].epoch
    error = (await reset())["error"]
    assert (error["code"], "to 2.4 with their states" in error["message"]) == ("kept_states", True)
    assert running.broker.owned[OLD].groups["workers"].epoch == before
    body["to"] = "latest"
    assert "error" not in await reset(), "nothing is repeated"


async def test_a_reset_of_all_that_keeps_states_holds_no_partition(running, scene):
    """One successor has states, and another one has none: that one is not moved before it."""
    await changed(running, scene)
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    new = running.broker.owned[NEW].groups["workers"]
    await eventually(lambda: not new.is_gated, "the gate is open")
    await ChangeByHand(running).change(6)
    later = [
        owned.groups["workers"]
        for name, owned in running.broker.owned.items()
        if name.generation == 3
    ]
    assert later
    before = {each.partition: (each.gate, each.epoch) for each in later}
    body = {"to": "earliest", "is_forced": True}
    _, answer = await running.call("POST", f"{GROUP}/reset", json=body)
    codes = {name: each["error"]["code"] for name, each in answer["partitions"].items()}
    assert codes[str(NEW)] == "kept_states"
    assert all(code in ("kept_states", "conflict") for code in codes.values())
    assert {each.partition: (each.gate, each.epoch) for each in later} == before
