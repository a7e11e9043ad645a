"""Partition 1.0 of a Shared group, whose members speak frames: any gets any message, in turns."""

import pytest

from partq.broker.delivery.flow import Flow
from partq.core.model import Cause
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import CONSUME, connect_as, open_producer
from tests.broker.delivery.keyed import KeyedPeer, follow, publish
from tests.broker.delivery.test_groups import make_again

FREE = {"order": "Free", "delaySeconds": 0.0, "backoff": None}


class TurnPeer(KeyedPeer):
    """A member's flow in a group of type Shared."""

    async def bind(self, member="m", incarnation="i", *, credit=1000, **more):
        await super().bind(member, incarnation, credit=credit, **{"takes_turns": True, **more})


class SharedScene:
    """A group of type Shared, on partition 1.0."""

    def __init__(self, running):
        self.running = running

    @classmethod
    async def open(cls, running, **changes):
        await follow(running, type="Shared", nack={**FREE, **changes.pop("nack", {})}, **changes)
        scene = cls(running)
        await eventually(lambda: scene.consumed.keys is not scene.consumed.lanes, "the type")
        scene.producer = await open_producer(running)
        return scene

    async def publish(self, *values):
        await publish(self.producer, *values)

    async def connect(self):
        path = "/v1/queues/orders/groups/workers/flow"
        return await connect_as(TurnPeer, self.running, path, CONSUME)

    async def join(self, member, **more):
        peer = await self.connect()
        await peer.bind(member, f"of-{member}", **more)
        peer.assigned = await self.assigned(peer)
        name = peer.member = member
        await eventually(lambda: name in self.waiting, "it waits for its turn")
        return peer

    @property
    def waiting(self):
        return [flow.member for flow in self.consumed.shares._turns]

    async def join_without_room(self, member):
        """Have a first member join whose one place is taken, by a message of another partition."""
        peer = await self.join(member, credit=1)
        await self.producer.publish("other", partition=1)
        _, values = await peer.deliver()
        assert values == ["other"]
        return peer

    async def assigned(self, peer):
        while True:
            assigned, _ = await peer.find(frames.Assigned)
            if assigned.partition == 0:
                return assigned

    @property
    def consumed(self):
        (owned,) = [o for name, o in self.running.broker.owned.items() if name.index == 0]
        return owned.groups["workers"]


@pytest.fixture
async def scene(running):
    return await SharedScene.open(running)


@pytest.mark.req("PUL-99", "PUL-121")
async def test_members_get_windows_in_turns_of_partitions_that_nobody_gave_them(scene):
    m, n = await scene.join("m"), await scene.join("n")
    assert (m.assigned.mode, n.assigned.mode) == (frames.SHARED, frames.SHARED)
    await scene.publish("a0", "a1", "a2", "a3")
    _, to_m = await m.deliver()
    _, to_n = await n.deliver()
    assert sorted([*to_m, *to_n]) == ["a0", "a1", "a2", "a3"]
    assert (len(to_m), len(to_n)) == (2, 2), "one batch is shared out"


async def test_members_take_turns_over_all_partitions_and_get_whole_batches_while_there_are_enough(
    scene, monkeypatch
):
    m, n = await scene.join("m"), await scene.join("n")
    groups = [each.groups["workers"] for each in scene.running.broker.owned.values()]
    partitions = sorted(groups, key=lambda each: each.partition)[:3]
    for each in partitions:
        await eventually(lambda each=each: len(each.shares.waiting) == 2, "both wait")
    with monkeypatch.context() as held_up:
        held_up.setattr(Flow, "notice", lambda flow, consumed: None)
        for index, key in enumerate("abc"):
            values = [f"{key}{number}" for number in range(4)]
            await scene.producer.publish(*values, partition=index)
    for each in partitions:
        each.wake()
    assert await m.values(4) == ["a0", "a1", "a2", "a3"]
    assert await n.values(4) == ["b0", "b1", "b2", "b3"]
    assert (await m.values(2), await n.values(2)) == (["c0", "c1"], ["c2", "c3"])


async def test_what_a_partition_may_not_send_for_now_is_not_there_for_those_that_wait(
    scene, monkeypatch
):
    """Else one member would be sent a whole batch, as if there was as much for the others."""
    m, n = await scene.join("m"), await scene.join("n")
    groups = [each.groups["workers"] for each in scene.running.broker.owned.values()]
    (other,) = [each for each in groups if each.partition.index == 1]
    await eventually(lambda: len(other.shares.waiting) == 2, "both wait there, too")
    with monkeypatch.context() as held_up:
        held_up.setattr(Flow, "notice", lambda flow, consumed: None)
        await scene.producer.publish(*"123456", partition=1)
        other.shares.wake()
        assert other.shares._order.open_messages == 6
        other.missing = "its queue for dead letters is gone"
    await eventually(lambda: other.shares._order.open_messages == 0, "a look has counted again")
    await scene.publish("a0", "a1", "a2", "a3")
    assert (await m.values(2), await n.values(2)) == (["a0", "a1"], ["a2", "a3"])


async def test_who_has_no_room_is_passed_over_and_gets_more_once_it_has(scene):
    m, n = await scene.join("m", credit=1), await scene.join("n")
    await scene.publish("a0", "a1")
    _, to_m = await m.deliver()
    await n.values(1)
    await scene.publish("a2")
    await scene.publish("a3")
    assert await n.values(2) == ["a2", "a3"]
    await m.send(frames.Credit(10, 0))
    await eventually(lambda: len(scene.waiting) == 2, "both wait")
    await scene.publish("a4", "a5")
    assert (len(to_m), len(await m.values(1))) == (1, 1)


@pytest.mark.req("PUL-22")
async def test_an_ack_counts_for_what_the_member_has_and_a_cumulative_one_not_at_all(scene):
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("a0", "a1")
    to_m, values = await m.deliver()
    to_n, _ = await n.deliver()
    assert await m.ack(to_m, upto=to_m.stop) == "bad_request"
    assert await n.ack(to_n, ranges=[(0, 2)]) == "not_delivered", "one of them is m's"
    assert scene.consumed.book.acked_pairs() or scene.consumed.book.cursor
    assert await m.ack(to_m, ranges=[(to_m.start, to_m.stop)]) == ""
    assert (scene.consumed.book.cursor, values) == (2, [f"a{to_m.start}"])


@pytest.mark.req("PUL-123")
async def test_what_a_lost_member_had_goes_to_the_others_at_once_under_a_higher_token(scene):
    m = await scene.join("m")
    await scene.publish("a0", "a1", "a2")
    held, _ = await m.deliver()
    assert held.stop == 3
    n = await scene.join("n")
    await m.close()
    found = {}
    while len(found) < 3:
        again, values = await n.deliver()
        assert again.cause == Cause.FLOW_LOST
        assert again.epoch > held.epoch
        found |= dict(zip(values, [again.redeliveries] * len(values), strict=True))
    assert found == {"a0": [(0, 1)], "a1": [], "a2": []}


async def test_members_of_a_group_that_is_created_again_get_its_messages(scene):
    """No coordinator gives them anything: their flows are here when the new group comes."""
    m = await scene.join("m")
    await make_again(scene.running)
    await scene.running.broker.refresh()
    again = await scene.assigned(m)
    assert again.epoch > m.assigned.epoch
    await scene.publish("a")
    assert (await m.deliver())[1] == ["a"]


async def test_a_token_goes_up_though_a_message_goes_to_an_older_member(scene):
    """The member that was lost may still write: a store refuses what has a lower token."""
    n = await scene.join("n", credit=1)
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    await n.deliver()
    held, _ = await m.deliver()
    await m.close()
    await n.send(frames.Credit(10, 0))
    again, _ = await n.deliver()
    assert (again.start, again.cause) == (held.start, Cause.FLOW_LOST)
    assert again.epoch > held.epoch > n.assigned.epoch
    assert await n.ack(again, ranges=[(again.start, again.stop)]) == ""


async def test_what_a_leaving_member_returns_does_not_count(scene):
    n = await scene.join_without_room("n")
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    await m.send(frames.Leave())
    await m.give_back(await m.asked(), (1, 2))
    await n.send(frames.Credit(10, 0))
    again, values = await n.deliver()
    assert (values, again.redeliveries, again.cause) == (["a1"], [], Cause.NONE)
    await scene.publish("a2")
    assert await n.values(1) == ["a2"], "nothing new for a member that leaves"
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    while (revoked := (await m.find(frames.Revoked))[0]).partition:
        pass
    assert revoked.cause == Cause.NONE


@pytest.mark.req("PUL-25")
async def test_a_nack_concerns_one_message_and_the_others_go_on(scene):
    m = await scene.join("m")
    await scene.publish("a0", "a1", "a2")
    held, _ = await m.deliver()
    assert await m.nack(held, [(0, 1)], delay_ms=0) == ""
    again, values = await m.deliver()
    assert (values, again.cause, again.redeliveries) == (["a0"], Cause.NACK, [(0, 1)])
    assert await m.ack(held, ranges=[(0, 1)]) == "not_delivered", "the copy that was given back"
    assert await m.ack(held, ranges=[(1, 3)]) == ""
    assert await m.ack(again, ranges=[(0, 1)]) == ""
    assert scene.consumed.book.cursor == 3


@pytest.mark.req("PUL-63", "PUL-124")
async def test_members_of_a_lower_priority_get_messages_only_when_the_others_have_no_room(scene):
    low = await scene.join("n", priority=3)
    high = await scene.join("m", credit=2)
    await scene.publish("a0")
    assert await high.values(1) == ["a0"]
    await eventually(lambda: "m" in scene.waiting, "it waits for its next turn")
    await scene.publish("a1")
    assert await high.values(1) == ["a1"]
    await scene.publish("a2")
    assert await low.values(1) == ["a2"]
    await high.send(frames.Credit(1, 0))
    await eventually(lambda: "m" in scene.waiting, "it waits for its next turn")
    await scene.publish("a3")
    assert await high.values(1) == ["a3"]


async def test_a_member_that_is_paused_is_passed_over_and_its_messages_go_to_others(scene):
    n = await scene.join_without_room("n")
    m = await scene.join("m")
    await scene.publish("a0", "a1")
    held, _ = await m.deliver()
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await m.send(frames.Withhold(*place, is_on=True))
    asked = await m.asked()
    await n.send(frames.Credit(10, 0))
    await m.give_back(asked, (0, 2))
    assert await n.values(2) == ["a0", "a1"]
    await scene.publish("a2")
    assert await n.values(1) == ["a2"]


async def test_a_client_that_does_not_know_the_type_is_told_to_be_updated(scene):
    peer = await scene.connect()
    await peer.send(frames.Bind("m", "i", 10, takes_lanes=True))
    refused, _ = await peer.find(frames.Failed)
    assert refused.code == "upgrade_required"
    assert "Shared" in refused.message


async def test_a_client_that_asks_for_sessions_is_told_to_be_a_consumer(scene):
    peer = await scene.connect()
    await peer.send(frames.Bind("m", "i", 10, takes_lanes=True, takes_sessions=True))
    refused, _ = await peer.find(frames.Failed)
    assert refused.code == "bad_request"
    assert "use a Consumer" in refused.message


async def test_a_seek_and_a_state_are_refused_and_say_why(scene):
    m = await scene.join("m")
    await scene.publish("a0")
    held, _ = await m.deliver()
    place = (held.generation, held.partition, held.broker_epoch, held.epoch)
    await m.send(frames.Seek(5, *place, to="earliest"))
    refused = await m.pick((frames.Sought, frames.SeekRefused))
    assert (refused.code, "type Shared" in refused.message) == ("conflict", True)
    assert await m.ack(held, ranges=[(0, 1)], state_key="a", state=b"x") == "bad_request"


async def test_a_member_that_no_share_is_left_for_gets_one_once_another_has_gone(
    scene, monkeypatch
):
    monkeypatch.setattr("partq.broker.parts.turn_shares.MAX_SHARE", 1)
    m = await scene.join("m")
    n = await scene.connect()
    await n.bind("n", "of-n")
    await scene.publish("a0")
    held, _ = await m.deliver()
    assert [share.member for share in scene.consumed.holders()] == ["m"]
    m.cut()
    assigned = await scene.assigned(n)
    assert assigned.epoch > held.epoch
    assert await n.values(1) == ["a0"]


async def test_nothing_is_kept_of_a_member_that_has_gone(scene):
    m, n = await scene.join("m"), await scene.join("n")
    m.cut()
    await eventually(lambda: len(scene.consumed.holders()) == 1, "m is lost")
    assert scene.waiting == ["n"]
    await scene.publish("a0", "a1")
    assert await n.values(2) == ["a0", "a1"]
