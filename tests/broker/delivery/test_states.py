"""States of keys in frames: they count with their acks, and reads see all acks before them."""

from partq.broker.api.routes import flow as flow_route
from partq.core.model import PartitionId
from partq.core.records import lacking_states
from partq.store.key_states import KeyStates
from partq.store.records.leases import Leases
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import Gate, open_flow
from tests.broker.delivery.keyed import follow
from tests.broker.delivery.test_late_writes import Late

P = PartitionId(1, 0)


async def ask_state(flow, token, key="k", **changes):
    """Ask for the state of a key; return it, or the code of the refusal."""
    fields = {
        "generation": token.generation,
        "partition": token.partition,
        "broker_epoch": token.broker_epoch,
        "epoch": token.epoch,
        **changes,
    }
    await flow.send(frames.ReadState(7, key=key, **fields))
    answer = await flow.pick((frames.State, frames.StateRefused))
    assert answer.request == 7
    return answer.code if isinstance(answer, frames.StateRefused) else answer.state


async def stored(running, key="k"):
    return await KeyStates(running.store, running.broker.keys).read(P, "workers", key)


async def test_a_read_sees_acks_that_are_not_stored_yet(running, scene):
    assert await ask_state(scene.source, scene.held) is None
    gate = Gate(running.broker.partitions, "flush")
    held = scene.held
    place = (held.generation, held.partition, held.broker_epoch, held.epoch, held.delivery)
    await scene.source.send(frames.Ack(1, *place, ranges=[(0, 1)], state_key="k", state=b"1"))
    await gate.is_reached()
    assert await ask_state(scene.source, scene.held) == b"1"
    assert await stored(running) is None
    gate.opened.set()
    await scene.source.pick((frames.AckConfirmed,))
    assert await stored(running) == b"1"
    assert await ask_state(scene.source, scene.held) == b"1"
    assert await scene.source.ack(scene.held, ranges=[(1, 2)], state_key="k") == ""
    assert await ask_state(scene.source, scene.held) is None


async def test_a_write_without_an_answer_leaves_no_state_that_is_older(running, scene):
    """It arrives late, after the next one: nothing of it counts."""
    late = Late(running.store, "flush_cursor")
    ack = scene.source.ack
    assert await ack(scene.held, ranges=[(0, 1)], state_key="k", state=b"1") == ""
    assert await ack(scene.held, ranges=[(1, 2)], state_key="k", state=b"2") == ""
    await late.arrive()
    assert await stored(running) == b"2"


async def test_an_ack_under_an_older_token_leaves_no_state(running, scene):
    older = scene.held
    await scene.source.close()
    member = await open_flow(running, "m")
    held, _ = await member.deliver()
    assert held.epoch > older.epoch
    refused = await member.ack(older, ranges=[(0, 1)], state_key="k", state=b"old")
    assert refused == "fenced"
    assert await ask_state(member, older) == "fenced"
    assert await ask_state(member, held) is None
    assert await member.ack(held, ranges=[(0, 1)], state_key="k", state=b"new") == ""
    assert await stored(running) == b"new"


async def test_acks_that_cannot_have_a_state_are_refused_as_a_whole(running, scene):
    ack = scene.source.ack
    for wrong in (
        {"upto": 1},
        {"ranges": [(0, 2)]},
        {"ranges": [(0, 1), (1, 2)]},
        {"ranges": [(0, 1)], "state": bytes(65_537)},
        {"ranges": [(0, 1)], "state_key": "k" * 1025},
    ):
        fields = {"state_key": "k", "state": b"1", **wrong}
        assert await ack(scene.held, **fields) == "bad_request"
    assert await ask_state(scene.source, scene.held, key="k" * 1025) == "bad_request"
    record = await running.broker.partitions.read_cursor(P, "workers")
    assert (record.cursor, record.acked, record.state_count) == (0, [], 0)


async def test_beside_a_broker_that_does_not_know_states_they_are_refused(
    running, scene, monkeypatch
):
    older = Leases(running.store, running.broker.keys)
    with monkeypatch.context() as patch:
        patch.setattr("partq.store.records.leases.LEASE_FEATURES", ("rescale", "lanes"))
        await older.renew("orders-9", "i", 600.0, "http://orders-9")
    claims = running.broker.claims
    await eventually(lambda: "orders-9" in claims.seen_living(), "the older broker is seen")
    ack = scene.source.ack
    with_state = {"ranges": [(0, 1)], "state_key": "k", "state": b"1"}
    assert await ack(scene.held, **with_state) == "unavailable"
    assert await ask_state(scene.source, scene.held) == "unavailable"
    await older.release("orders-9", "i")
    await eventually(lambda: "orders-9" not in claims.seen_living(), "it has gone")
    # The broker itself may have renewed its lease while it was said to know less.
    leases = running.broker.ack_handler.states._leases
    await eventually(lambda: not lacking_states(leases()), "all know states")
    assert await ack(scene.held, **with_state) == ""


async def test_a_handoff_commits_the_states_that_came_before(running, scene):
    handoff = await scene.paused()
    assert await scene.source.ack(scene.held, ranges=[(0, 3)]) == ""
    await scene.producer.publish("d")
    assert (await handoff.commit())["code"] == ""
    other = await open_flow(running, "n")
    held, values = await other.deliver()
    assert values == ["d"]
    assert await ask_state(other, held) is None
    assert await other.ack(held, ranges=[(3, 4)], state_key="k", state=b"4") == ""
    assert await stored(running) == b"4"


async def test_states_outlive_an_order_that_has_none(running, scene):
    ack, held = scene.source.ack, scene.held
    assert await ack(held, ranges=[(0, 1)], state_key="k", state=b"1") == ""
    await follow(running, nack={"order": "Free"})
    assert await ask_state(scene.source, held) == "bad_request"
    assert await ack(held, ranges=[(1, 2)], state_key="k", state=b"2") == "bad_request"
    assert await ack(held, ranges=[(1, 2)]) == ""
    assert await stored(running) == b"1"
    await follow(running, nack={"order": "Ordered"})
    assert await ask_state(scene.source, held) == b"1", "under the same token"
    assert await ack(held, ranges=[(2, 3)], state_key="k", state=b"3") == ""
    assert await stored(running) == b"3"


async def test_reads_of_a_flow_that_wait_for_the_store_are_bounded(running, scene, monkeypatch):
    monkeypatch.setattr(flow_route, "MAX_OPEN_READS", 3)
    read_state, seen = running.broker.ack_handler.read_state, []

    def counted(flow, frame, answer):
        seen.append(frame.request)
        read_state(flow, frame, answer)

    monkeypatch.setattr(running.broker.ack_handler, "read_state", counted)
    gate = Gate(running.broker.ack_handler.states.store, "read")
    held = scene.held
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    for request in range(8):
        await scene.source.send(frames.ReadState(request, *place, key="k"))
    await eventually(lambda: len(seen) == 3, "as many are read as may wait")
    await running.state()
    assert seen == [0, 1, 2]
    gate.opened.set()
    answers = [(await scene.source.pick((frames.State,))).request for _ in range(8)]
    assert answers == list(range(8))


async def test_acks_that_wait_for_a_look_at_the_store_count_as_not_stored(
    running, scene, monkeypatch
):
    """Else states of any number would wait in memory while the store is slow."""
    await follow(running, ack={"maxStates": 1})
    held = scene.held
    assert await scene.source.ack(held, ranges=[(0, 1)], state_key="k", state=b"1") == ""
    handler = running.broker.ack_handler.states
    monkeypatch.setattr("partq.broker.delivery.key_states.MAX_UNSTORED_BYTES", 1)
    gate = Gate(handler.store, "count_without")
    place = (held.generation, held.partition, held.broker_epoch, held.epoch, held.delivery)
    await scene.source.send(frames.Ack(1, *place, ranges=[(1, 2)], state_key="l", state=b"1"))
    await gate.is_reached()
    assert handler.is_full
    gate.opened.set()
    await scene.source.pick((frames.AckRefused,))
    assert not handler.is_full
