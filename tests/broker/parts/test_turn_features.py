"""A Shared group beside other features: pulls, dead letters, times to live, resets, brokers."""

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.core.model import Cause, PartitionId
from partq.resources import group_document, queue_document, resources_of
from partq.testing import eventually
from partq.wire import frames
from tests.broker.ownership.test_failover import kill
from tests.broker.parts.test_part_pulls import Puller, values
from tests.broker.parts.test_turn_shares import SharedScene
from tests.broker.queue_ttl import set_ttl
from tests.broker.rescale.change import ChangeByHand, keys_of, outcome

__all__ = ["set_ttl"]
RESET = "/v1/queues/orders/groups/workers/reset"


@pytest.fixture
def resources():
    return resources_of(
        queue_document("orders", partitions=4),
        group_document("workers", "orders", type="Shared", ack={"maxRedeliveries": 1}),
    )


@pytest.fixture
async def scene(running):
    return await SharedScene.open(running)


async def reset(scene, **body):
    """Move the cursor of partition 1.0; return what the broker says of it."""
    body = {"partitions": ["1.0"], **body}
    status, answer = await scene.running.call("POST", RESET, json=body)
    assert status == 200, answer
    return answer["partitions"]["1.0"]


async def two_that_have(scene, **more):
    """Have m and n take one of two messages each; return both members with their deliveries."""
    m, n = await scene.join("m", **more), await scene.join("n", **more)
    await scene.publish("a0", "a1")
    return m, (await m.deliver())[0], n, (await n.deliver())[0]


async def test_members_that_pull_have_messages_by_themselves(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    assert await n.pull(wait_ms=0) == await m.pull(wait_ms=0) == []
    await scene.publish("a0", "a1", "a2")
    held = await m.pull()
    assert values(held) == ["a0", "a1", "a2"], "nothing waits for a member that does not pull"
    assert await n.ack(held[0]) == "not_delivered", "it is m's"
    assert await m.ack(held[2]) == ""
    assert await m.nack(held[0], delay_ms=0) == ""
    (again,) = await n.pull()
    assert (again["value"], again["cause"], again["redeliveries"]) == ("a0", "nack", 1)
    assert await m.ack_receipt(held[0]) == "not_delivered", "n has it now"
    assert await n.ack_receipt(again) == ""
    assert await m.ack_receipt(held[1]) == ""
    assert scene.consumed.book.cursor == 3


async def test_what_a_silent_member_had_pulled_goes_to_another_one(scene):
    m, n = Puller(scene.running, "m"), Puller(scene.running, "n")
    await scene.publish("a0")
    (held,) = await m.pull()
    assert await n.pull(wait_ms=0) == []
    flows = scene.running.broker.flow_registry
    flows.lose(flows.find("workers", "m"))  # as after 30 s
    (again,) = await n.pull()
    assert (again["value"], again["cause"], again["redeliveries"]) == ("a0", "flow_lost", 1)
    assert await m.ack_receipt(held) == "fenced"
    assert await n.ack_receipt(again) == ""


async def test_a_message_that_fails_too_often_is_a_dead_letter_and_holds_nothing_up(scene):
    n = await scene.join_without_room("n")
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    assert await m.nack(held, [(0, 1)], delay_ms=0) == ""
    again, _ = await m.deliver()
    assert again.redeliveries == [(0, 1)]
    assert await m.nack(again, [(0, 1)], delay_ms=0) == ""
    outbox = scene.consumed.outbox
    await eventually(lambda: outbox.letters, "the dead letter, whose queue does not exist yet")
    (letter,) = outbox.letters
    assert (letter.offset, letter.redeliveries) == (0, 2)
    assert letter.reason == DeadLetterReason.MAX_REDELIVERIES
    assert await m.ack(held, ranges=[(1, 2)]) == ""
    assert scene.consumed.book.cursor == 2
    await n.send(frames.Credit(10, 0))
    await eventually(lambda: len(scene.waiting) == 2, "both wait")
    await scene.publish("a2", "a3")
    assert sorted([*(await m.values(1)), *(await n.values(1))]) == ["a2", "a3"]


async def test_messages_expire_but_for_those_that_a_member_has(scene, set_ttl):
    m = await scene.join("m", credit=1)
    await scene.publish("a0", "a1", "a2")
    held, _ = await m.deliver()
    await set_ttl(0.001)
    book = scene.consumed.book
    await eventually(lambda: book.acked_pairs() == [(1, 3)], "the others expired")
    await set_ttl(3600.0)
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    assert book.cursor == 3
    await m.send(frames.Credit(10, 0))
    await scene.publish("a3")
    assert (await m.deliver())[1] == ["a3"]


async def test_a_message_that_waits_for_its_delay_expires(scene, set_ttl):
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    assert await m.nack(held, [(0, 1)], delay_ms=3_600_000) == ""
    await set_ttl(0.001)
    book = scene.consumed.book
    await eventually(lambda: book.cursor == 1, "it expired")
    assert await m.ack(held, ranges=[(1, 2)]) == ""
    assert (book.cursor, book.in_flight) == (2, 0)


async def test_a_reset_repeats_what_members_have_under_a_higher_token(scene):
    m, held, n, other = await two_that_have(scene, credit=1)
    assert await m.ack(held, ranges=[(held.start, held.stop)]) == ""
    assert (await reset(scene, to="earliest"))["error"]["code"] == "conflict"
    assert (await reset(scene, to="earliest", is_forced=True))["to"] == 0
    found = {}
    for peer in (m, n):
        await peer.send(frames.Credit(1, 0))
        again, some = await peer.deliver()
        assert (again.cause, again.epoch > other.epoch) == (Cause.RESET, True)
        found |= dict.fromkeys(some, (peer, again))
    assert sorted(found) == ["a0", "a1"]
    assert await n.ack(other, ranges=[(other.start, other.stop)]) == "fenced"
    for peer, again in found.values():
        assert await peer.ack(again, ranges=[(again.start, again.stop)]) == ""
    assert scene.consumed.book.cursor == 2


async def test_a_reset_to_the_end_skips_what_members_have(scene):
    m, held, _, _ = await two_that_have(scene)
    assert (await reset(scene, to="latest", is_forced=True))["to"] == 2
    assert await m.ack(held, ranges=[(held.start, held.stop)]) == "fenced"
    await eventually(lambda: len(scene.waiting) == 2, "both wait")
    await scene.publish("a2")
    assert (scene.consumed.book.cursor, scene.consumed.book.in_flight) == (2, 1)


@pytest.mark.parametrize("is_killed", [True, False])
async def test_the_next_broker_repeats_what_members_had_and_nothing_that_was_acknowledged(
    scene, start_broker, is_killed
):
    m, held, n, other = await two_that_have(scene)
    await scene.publish("a2", "a3")
    third, _ = await m.deliver()
    assert await m.ack(third, ranges=[(third.start, third.stop)]) == ""
    assert await n.nack(other, [(other.start, other.stop)], delay_ms=3_600_000) == ""
    if is_killed:
        await kill(scene.running)
        scene.running = await start_broker("orders-0")  # it need not wait for the end of a lease
    else:
        await scene.running.admin("/yield", {"partitions": ["1.0"]})
        scene.running = await start_broker("orders-1")
        await scene.running.admin("/claim", {"partitions": ["1.0"]})
    n = await scene.connect()
    await n.bind("n", "of-n")
    found = {}
    while len(found) < 3:
        again, some = await n.deliver()
        assert (again.cause, again.broker_epoch > held.broker_epoch) == (Cause.BROKER_CHANGE, True)
        found |= dict.fromkeys(some, again.redeliveries)
        assert await n.ack(again, ranges=[(again.start, again.stop)]) == ""
    assert set(found) == {"a0", "a1", "a2", "a3"} - {f"a{third.start}"}
    assert found[f"a{other.start}"] == [(other.start, 1)], "the nack counts"
    assert scene.consumed.book.cursor == 4


async def test_a_new_partition_waits_for_a_message_that_waits_for_its_delay(scene):
    """There is no order to keep, but a group is done with an old partition before a new one."""
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    assert await m.nack(held, [(0, 1)], delay_ms=3_600_000) == ""
    assert await m.ack(held, ranges=[(1, 2)]) == ""
    layout = await ChangeByHand(scene.running).change(5)
    new = scene.running.broker.owned[PartitionId(2, 4)].groups["workers"]
    keys = keys_of((layout, new.partition))
    assert await outcome(scene.producer, new.partition, 0, *keys) == ("stored", 0)
    await eventually(lambda: [hold.messages for hold in new.holds] == [2], "1.0 alone is left")
    await scene.publish("a2")
    assert (await m.deliver())[1] == ["a2"], "1.0 itself goes on"
    assert "error" not in await reset(scene, offset=2, is_forced=True)
    while (found := await m.deliver())[0].generation == 1:
        assert found[1] == ["a2"]
    assert found[1] == keys


async def test_a_status_tells_what_members_have_and_of_one_that_is_elsewhere_nothing(scene):
    m = await scene.join("m", credit=5, priority=2)
    await scene.publish("a0", "a1")
    await m.deliver()
    _, told = await scene.running.call("GET", "/v1/queues/orders/status")
    found = {each["member"]: each for each in told["groups"]["workers"]["members"]}
    assert found["n"] == {"member": "n", "partitions": 4, "state": "Active"}
    here = found["m"]
    assert (here["priority"], here["credit"], here["unacked"]) == (2, 3, 2)
    assert here["turns"] == 4, "it has room, and waits for its turn in every partition"
