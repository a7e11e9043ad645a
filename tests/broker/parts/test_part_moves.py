"""Partition 1.0 of a KeyShared group, whose members speak frames: who gets what, and moves."""

import pytest

from partq.core.model import Cause
from partq.core.parts.part_owners import PartMove
from partq.store.records.part_records import PartRecords
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import CONSUME, connect_as, open_producer
from tests.broker.delivery.keyed import KEY_ORDER, KeyedPeer, follow
from tests.broker.delivery.test_groups import make_again
from tests.broker.ownership.test_failover import kill

SLOTS = {"a": 11, "b": 5000, "c": 9000, "d": 13_000}
"""Of the keys, which are the first letters of texts: one of each of the four parts."""
PART = 4096
"""Slots of a part."""
DAY_MS = 86_400_000


class SharePeer(KeyedPeer):
    """A member's flow in a group of type KeyShared."""

    async def lanes(self):
        """Return the next slots that it has; frames before them are dropped."""
        lanes, _ = await self.find(frames.Lanes)
        self.epoch = lanes.epoch
        return lanes.lanes


class Shared:
    """A group of type KeyShared, on partition 1.0 in four parts."""

    def __init__(self, running):
        self.running = running
        self.attempt = 0

    @classmethod
    async def open(cls, running, **nack):
        await follow(running, nack={**KEY_ORDER, **nack}, keyShared={"parts": 4})
        scene = cls(running)
        await eventually(scene.knows_parts, "the broker knows the type")
        scene.producer = await open_producer(running)
        return scene

    async def knows_parts(self):
        return "parts" in await self.running.state()

    async def publish(self, *values):
        messages = [batch.encode_message(batch.Message(v[0], v.encode())) for v in values]
        data = batch.encode(messages, [SLOTS[value[0]] for value in values])
        await self.producer.send(frames.Publish(1, 1, 0, self.producer.due[0]), data)
        await self.producer.expect(frames.Published)
        self.producer.due[0] += len(values)

    async def join(self, member, *, has_parts=True):
        path = "/v1/queues/orders/groups/workers/flow"
        peer = await connect_as(SharePeer, self.running, path, CONSUME)
        await peer.bind(member, f"of-{member}")
        if has_parts:
            await peer.lanes()
        return peer

    async def move(self, *moves, drain_ms=60_000, attempt=0, epoch=0):
        """Commit (part, source, target, why it is forced, if it is).

        Return the code of each, empty: it has passed.
        """
        state = await self.running.state()
        commits = []
        for part, source, target, *cause in moves:
            self.attempt += 1
            commits.append(
                {
                    "partition": "1.0",
                    "broker_epoch": state["broker_epoch"],
                    "epoch": epoch or state["epoch"],
                    "attempt": attempt or self.attempt,
                    "source": source,
                    "target": target,
                    "part": part,
                    "drain_ms": drain_ms,
                    "cause": "".join(cause),
                }
            )
        results = await self.running.admin("/groups/workers/parts", {"commits": commits})
        return [each["error"]["code"] if "error" in each else "" for each in results]

    async def give(self, **parts):
        """Give parts that nobody has to members."""
        moves = [(part, "", member) for member, found in parts.items() for part in found]
        assert set(await self.move(*moves)) == {""}

    @property
    def consumed(self):
        (owned,) = [o for name, o in self.running.broker.owned.items() if name.index == 0]
        return owned.groups["workers"]


@pytest.fixture
async def scene(running):
    return await Shared.open(running)


@pytest.mark.req("PUL-101", "PUL-125", "PUL-U08")
async def test_each_member_gets_the_keys_of_its_parts(scene):
    m = await scene.join("m", has_parts=False)
    await scene.give(m=[0, 1], n=[2, 3])
    n = await scene.join("n", has_parts=False)
    assigned, _ = await m.expect(frames.Assigned)
    assert (assigned.mode, assigned.cursor) == (frames.KEYED, 0)
    assert (await m.lanes(), await n.lanes()) == ([(0, 2 * PART)], [(2 * PART, 4 * PART)])
    await scene.publish("a0", "c0", "b0", "d0", "a1")
    to_m, values = await m.deliver()
    assert (values, to_m.mask) == (["a0", "b0", "a1"], bytes([0b10101]))
    to_n, values = await n.deliver()
    assert values == ["c0", "d0"]
    assert to_n.epoch > to_m.epoch
    assert await n.ack(to_n, ranges=[(0, 5)]) == "not_delivered", "the others are m's"
    assert await m.ack(to_m, ranges=[(0, 1), (2, 3), (4, 5)]) == ""
    assert scene.consumed.book.cursor == 5
    parts = (await scene.running.state())["parts"]
    assert (parts["members"], parts["bound"], parts["of"]) == (
        ["m", "n"],
        [True, True],
        [0, 0, 1, 1],
    )


async def test_keys_of_which_nothing_is_held_move_at_once(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0")
    held, _ = await m.deliver()
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    assert await scene.move((1, "m", "n")) == [""]
    assert (await m.lanes(), await n.lanes()) == ([(0, PART)], [(PART, 4 * PART)])
    await scene.publish("b1", "a0")
    found, values = await n.deliver()
    assert (values, found.epoch) == (["b1"], n.epoch)
    assert found.epoch > held.epoch
    assert (await m.deliver())[1] == ["a0"]


async def test_a_key_that_moves_to_a_member_bound_before_has_a_later_epoch_there(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("c0")
    held, _ = await n.deliver()
    assert await n.ack(held, ranges=[(0, 1)]) == ""
    assert await scene.move((2, "n", "m")) == [""]
    await m.lanes()
    await scene.publish("c1")
    found, values = await m.deliver()
    assert values == ["c1"]
    assert found.epoch > held.epoch


@pytest.mark.req("PUL-U07")
async def test_keys_in_flight_stay_until_they_are_done_and_the_rest_is_asked_back(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0", "a0", "b1", "c0")
    held, _ = await m.deliver()
    assert (await n.deliver())[1] == ["c0"]
    assert await scene.move((1, "m", "n")) == [""]
    asked = await m.asked()
    assert asked.lanes == [(SLOTS["b"], SLOTS["b"] + 1)]
    await n.lanes()
    assert (await scene.running.state())["parts"]["draining"] == [0, 1, 0, 0]
    await m.give_back(asked, (2, 3))
    assert await n.gets_nothing()
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    _, values = await n.deliver()
    assert values == ["b1"]
    assert await m.ack(held, ranges=[(1, 2)]) == "", "under the epoch of before"


async def test_a_key_that_is_held_for_too_long_is_taken_by_force_alone(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0", "a0", "b1")
    held, _ = await m.deliver()
    assert await scene.move((1, "m", "n"), drain_ms=0) == [""]
    await n.lanes()
    again, values = await n.deliver()
    assert (values, again.cause, again.redeliveries) == (["b0"], Cause.FORCED_COMMIT, [(0, 1)])
    assert await m.ack(held, ranges=[(0, 1)]) == "not_delivered"
    assert await m.ack(held, ranges=[(1, 2)]) == ""
    assert await n.ack(again, ranges=[(0, 1)]) == "", "what has failed goes alone"
    rest, values = await n.deliver()
    assert (values, rest.cause) == (["b1"], Cause.FORCED_COMMIT)
    assert await n.ack(rest, ranges=[(2, 3)]) == ""
    assert scene.consumed.book.cursor == 3


async def test_a_member_that_has_lost_its_last_part_is_revoked_once_it_holds_nothing(scene):
    await scene.give(m=[0], n=[1, 2, 3])
    m, _ = await scene.join("m"), await scene.join("n")
    await scene.publish("a0")
    held, _ = await m.deliver()
    assert await scene.move((0, "m", "n")) == [""]
    assert await m.lanes() == []
    await m.give_back(await m.asked())
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    revoked, _ = await m.find(frames.Revoked)
    assert revoked.cause == Cause.NONE
    assert (await scene.running.state())["parts"]["bound"] == [True]


async def test_each_part_of_a_call_is_judged_on_its_own_and_a_repeat_is_answered_alike(scene):
    await scene.give(m=[0, 1], n=[2])
    moves = (0, "n", "m"), (1, "m", "n"), (3, "", "n")
    assert await scene.move(*moves, attempt=99) == ["attempt_refused", "", ""]
    assert await scene.move(*moves, attempt=99) == ["attempt_refused", "", ""]
    assert await scene.move((1, "n", "m"), attempt=98) == ["attempt_refused"]
    assert (await scene.running.state())["parts"]["of"] == [0, 1, 1, 1]


async def test_a_late_call_gives_nothing_of_a_group_that_was_created_again(scene):
    """Nobody has its parts yet, so all else fits."""
    seen, running = (await scene.running.state())["epoch"], scene.running
    await make_again(running)

    def is_new():
        found = [owned.groups.get("workers") for owned in running.broker.owned.values()]
        return all(each is not None and each.born > seen for each in found)

    await eventually(is_new, "the broker serves the new group")
    assert await scene.move((0, "", "m"), epoch=seen) == ["attempt_refused"]
    assert await scene.move((0, "", "m")) == [""]


async def test_a_call_of_an_earlier_broker_epoch_is_refused_as_a_whole(scene):
    commit = {"partition": "1.0", "broker_epoch": 1, "epoch": 0, "attempt": 1, "source": "",
              "target": "m", "part": 0, "drain_ms": 0}  # fmt: skip
    (result,) = await scene.running.admin("/groups/workers/parts", {"commits": [commit]})
    assert result["error"]["code"] == "fenced"


async def test_what_a_lost_member_had_comes_again_and_waits_for_who_has_its_parts(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("a0", "c0")
    await m.deliver()
    await m.close()
    await eventually(lambda: len(scene.consumed.holders()) == 1, "m is lost")
    assert (await n.deliver())[1] == ["c0"]
    assert (await scene.running.state())["parts"]["bound"] == [False, True]
    assert await scene.move((0, "m", "n")) == [""]
    await n.lanes()
    again, values = await n.deliver()
    assert (values, again.redeliveries, again.cause) == (["a0"], [(0, 1)], Cause.FLOW_LOST)
    assert await n.ack(again, ranges=[(0, 1)]) == ""
    await scene.publish("a1")
    assert await n.values(1) == ["a1"]


async def test_a_failed_message_holds_its_key_up_wherever_it_moves(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0", "a0", "b1")
    held, _ = await m.deliver()
    assert await m.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    await m.give_back(await m.asked(), (2, 3))
    assert await scene.move((1, "m", "n")) == [""]
    await n.lanes()
    assert await n.gets_nothing()
    status, answer = await scene.running.call(
        "POST", "/v1/queues/orders/groups/workers/keys/release", json={"slot": SLOTS["b"]}
    )
    assert (status, answer["partitions"]["1.0"]) == (200, {"is_released": True})
    again, values = await n.deliver()
    assert (values, again.redeliveries) == (["b0"], [(0, 1)])
    assert await n.ack(again, ranges=[(0, 1)]) == ""
    assert await n.values(1) == ["b1"]


async def test_a_failed_message_comes_again_though_its_member_has_no_part_any_more(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0")
    held, _ = await m.deliver()
    assert await scene.move((0, "m", "n"), (1, "m", "n")) == ["", ""]
    await n.lanes()
    assert await m.nack(held, [(0, 1)], delay_ms=50) == ""
    again, values = await n.deliver()
    assert (values, again.redeliveries) == (["b0"], [(0, 1)])


async def test_the_next_broker_goes_on_with_the_recorded_parts(scene, start_broker):
    await scene.give(m=[0, 1], n=[2, 3])
    m = await scene.join("m")
    await scene.publish("a0", "c0")
    await m.deliver()
    assert await scene.move((1, "m", "n")) == [""]
    other = await start_broker("orders-1")
    await kill(scene.running)
    scene.running = other
    m, n = await scene.join("m", has_parts=False), await scene.join("n", has_parts=False)
    assert (await m.lanes(), await n.lanes()) == ([(0, PART)], [(PART, 4 * PART)])
    again, values = await m.deliver()
    assert (values, again.cause) == (["a0"], Cause.BROKER_CHANGE)
    assert (await n.deliver())[1] == ["c0"]


async def test_a_reset_brings_everything_back_to_the_members_that_have_it(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("a0", "c0")
    held, _ = await m.deliver()
    assert await m.ack(held, ranges=[(0, 1)]) == ""
    body = {"to": "earliest", "partitions": ["1.0"]}
    path = "/v1/queues/orders/groups/workers/reset"
    _, shown = await scene.running.call("POST", path, json={**body, "is_dry_run": True})
    assert shown["partitions"]["1.0"]["members"] == ["m", "n"]
    _, refused = await scene.running.call("POST", path, json=body)
    assert refused["partitions"]["1.0"]["error"]["code"] == "conflict"
    _, answer = await scene.running.call("POST", path, json={**body, "is_forced": True})
    assert answer["partitions"]["1.0"]["to"] == 0
    await m.lanes()
    again, values = await m.deliver()
    assert (values, again.cause) == (["a0"], Cause.RESET)
    await n.lanes()
    assert (await n.deliver())[1] == ["c0"]


async def test_parts_are_given_after_a_reset_that_met_nobody(scene):
    path = "/v1/queues/orders/groups/workers/reset"
    body = {"to": "earliest", "partitions": ["1.0"], "is_forced": True}
    await scene.publish("a0")
    _, answer = await scene.running.call("POST", path, json=body)
    assert answer["partitions"]["1.0"]["to"] == 0
    await scene.give(m=[0, 1, 2, 3])
    m = await scene.join("m")
    assert (await m.deliver())[1] == ["a0"]


async def test_further_moves_of_a_part_do_not_put_off_the_force(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0")
    await m.deliver()
    shares, now = scene.consumed.shares, scene.running.broker.clock()
    assert await scene.move((1, "m", "n"), drain_ms=600_000) == [""]
    assert await scene.move((1, "n", "o"), drain_ms=3_600_000) == [""]
    assert not shares.force_due(now + 599)
    assert shares.force_due(now + 3000)
    assert await scene.move((1, "o", "n")) == [""]
    await scene.running.broker.cursor_writer.store(scene.consumed, has_changed=True)
    assert [(await n.lanes())[0][0] for _ in range(3)] == [PART, 2 * PART, PART]
    again, values = await n.deliver()
    assert (values, again.cause) == (["b0"], Cause.FORCED_COMMIT)


async def test_a_part_that_comes_back_has_the_whole_time_when_it_moves_again(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    m = await scene.join("m")
    await scene.publish("b0")
    await m.deliver()
    shares, now = scene.consumed.shares, scene.running.broker.clock()
    assert await scene.move((1, "m", "n"), drain_ms=600_000) == [""]
    assert await scene.move((1, "n", "m")) == [""]
    assert await scene.move((1, "m", "n"), drain_ms=3_600_000) == [""]
    assert not shares.force_due(now + 3000)


async def test_a_record_that_differs_from_what_the_broker_knows_is_read_again(scene):
    await scene.give(m=[0, 1], n=[2, 3])
    broker, consumed = scene.running.broker, scene.consumed
    await PartRecords(broker.store, broker.keys).commit_parts(
        consumed.partition,
        "workers",
        broker_epoch=consumed.broker_epoch,
        born=consumed.born,
        count=4,
        epoch=consumed.epoch,
        moves=[PartMove(1, "m", 50, "n")],
    )
    assert await scene.move((1, "m", "o"), attempt=60) == ["fenced"]

    async def knows_it():
        _, state = await scene.running.call("GET", "/admin/v1/queues/orders/state")
        row = state["partitions"].get("1.0")
        return row is not None and row["groups"]["workers"]["parts"]["of"] == [0, 1, 1, 1]

    await eventually(knows_it, "the partition is claimed again")
    assert await scene.move((1, "n", "o"), attempt=61) == [""]


async def test_members_without_parts_that_finish_slowly_do_not_keep_new_ones_out(
    scene, monkeypatch
):
    monkeypatch.setattr("partq.broker.parts.partition_shares.MAX_SHARE", 1, raising=False)
    await scene.give(m=[0, 1])
    m = await scene.join("m")
    n = await scene.join("n", has_parts=False)
    await scene.publish("a0")
    await m.deliver()
    assert await scene.move((0, "m", "n"), (1, "m", "n")) == ["", ""]
    revoked, _ = await m.find(frames.Revoked)
    assert revoked.cause == Cause.FORCED_COMMIT
    await n.lanes()
    again, values = await n.deliver()
    assert (values, again.cause, again.redeliveries) == (["a0"], Cause.FORCED_COMMIT, [(0, 1)])
