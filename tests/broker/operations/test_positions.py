"""Positions in logs, and cursors that a reader without members moves to them."""

import asyncio

import pytest

from partq.core.model import BrokerId, Cause

POSITIONS = "/v1/queues/orders/positions"
CURSORS = "/v1/queues/orders/groups/workers/cursors"


@pytest.fixture
def find(running, peers):
    async def find(status=200, *, at=running, token=peers.CONSUME, **body):
        got, answer = await at.call("POST", POSITIONS, json=body, token=token)
        assert got == status, answer
        return answer if status != 200 else answer["partitions"]

    return find


@pytest.fixture
def advance(running, peers):
    """Move the cursor of partition 1.0, unless the body says otherwise; return its answer."""

    async def advance(offset=0, epoch=0, *, at=running, **body):
        position = {"offset": offset, "append_broker_epoch": epoch}
        body = {"positions": {"1.0": position}, **body}
        got, answer = await at.call("POST", CURSORS, json=body, token=peers.CONSUME)
        if got != 200:
            return got, answer["error"]["code"]
        (answer,) = answer["partitions"].values()
        return (answer["error"]["code"] if "error" in answer
                else (answer["cursor"], answer["is_moved"]))  # fmt: skip

    return advance


@pytest.fixture
def record(running, peers):
    async def record():
        return await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")

    return record


# ---- positions ----------------------------------------------------------------------------------


async def test_every_way_to_ask_for_a_position(running, producer, find, advance):
    await producer.publish("a", "b", "c")
    await producer.publish("d")
    epoch = (await running.state())["broker_epoch"]
    bounds = {"first": 0, "end": 4}
    assert await find(to="latest") == {
        "1.0": {"offset": 4, "append_broker_epoch": epoch, **bounds},
        **{f"1.{n}": {"offset": 0, "append_broker_epoch": 0, "first": 0, "end": 0}
           for n in (1, 2, 3)},
    }  # fmt: skip
    one = {"partitions": ["1.0"]}
    below = {"append_broker_epoch": epoch, **bounds}
    start = {"offset": 0, "append_broker_epoch": 0, **bounds}
    assert await find(to="earliest", **one) == {"1.0": start}
    assert await find(at_ms=0, **one) == {"1.0": start}
    assert await find(at_ms=2**50, **one) == {"1.0": {"offset": 4, **below}}
    assert await find(group="workers", **one) == {"1.0": start}
    assert await advance(2, epoch) == (2, True)
    assert await find(group="workers", **one) == {"1.0": {"offset": 2, **below}}
    assert await find(offsets={"1.0": 3}) == {"1.0": {"offset": 3, **below}}
    assert await find(offsets={"1.0": 9}) == {
        "1.0": {"offset": 9, "append_broker_epoch": 0, **bounds}
    }


async def test_what_was_trimmed_up_to_the_position_can_still_be_checked(
    running, producer, find, advance, peers
):
    await producer.publish("a", "b")
    await producer.publish("c")
    epoch = (await running.state())["broker_epoch"]
    assert await advance(2, epoch) == (2, True)
    place = {"offset": 2, "append_broker_epoch": epoch, "first": 2, "end": 3}

    async def trimmed():
        return (await find(to="earliest", partitions=["1.0"]))["1.0"] == place

    await peers.eventually(trimmed, "it is trimmed, and known who appended what went last")
    assert await advance(2, epoch - 1) == "rolled_back"


async def test_any_broker_can_be_asked(start_broker, find, producer, peers):
    await producer.publish("a")
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: all(map(other.broker.claims.owner_url, other.broker.config.layout.partitions())),
        "it knows who owns what",
    )
    assert (await find(at=other, to="latest"))["1.0"]["offset"] == 1


WRONG = {
    "nowhere": {},
    "two places": {"to": "earliest", "at_ms": 1},
    "no such place": {"to": "yesterday"},
    "a negative offset": {"offsets": {"1.0": -1}},
    "no offset of a partition that is named": {"offsets": {"1.0": 1}, "partitions": ["1.1"]},
    "a time that never comes": {"at_ms": 2**60},
    "no name": {"to": "latest", "partitions": ["x"]},
    "more than there is": {"to": "latest", "is_forced": True},
}


async def test_positions_that_make_no_sense_are_refused(find, peers):
    for case, body in WRONG.items():
        if case.startswith("no offset"):
            assert (await find(**body))["1.1"]["error"]["code"] == "bad_request"
            continue
        answer = await find(400, **body)
        assert answer["error"]["code"].startswith("bad_"), case
    assert (await find(404, offsets={"1.9": 0}))["error"]["code"] == "unknown_partition"
    await find(403, to="latest", token=peers.PRODUCE)


async def test_the_cursors_of_a_group_that_is_not_there(find, start_broker, peers):
    """Whoever owns the partition, the answer names the groups, but to who may know of all alone."""
    other = await start_broker("orders-1")
    partitions = other.broker.config.layout.partitions()
    await peers.eventually(
        lambda: all(map(other.broker.claims.owner_url, partitions)), "it knows who owns what"
    )
    for token, told in ((peers.ADMIN, "has workers"), (peers.CONSUME, "does not have it")):
        rows = await find(group="nobody", token=token)
        rows |= {f"by way of {other}": each for each in
                 (await find(at=other, group="nobody", token=token)).values()}  # fmt: skip
        assert {(row["error"]["code"], row["error"]["message"]) for row in rows.values()} == {(
            "unknown_group",
            f"group nobody: queue orders {told}; create a ConsumerGroup of this name",
        )}  # fmt: skip


async def test_a_broker_that_lost_the_partition_says_nothing_of_it(
    running, producer, find, advance, peers
):
    await producer.publish("a")
    partition = peers.partition_id(0)
    seen = await running.broker.partitions.read(partition)
    await running.broker.partitions.claim(
        partition, BrokerId("another"), "i", expected=seen.broker_epoch, affirmed=seen.affirmed
    )
    assert (await find(to="latest", partitions=["1.0"]))["1.0"]["error"]["code"] == "not_owner"
    assert partition not in running.broker.owned


# ---- cursors ------------------------------------------------------------------------------------


async def test_a_cursor_goes_forward_and_a_repeat_changes_nothing(
    running, producer, advance, record
):
    await producer.publish("a", "b", "c")
    epoch = (await running.state())["broker_epoch"]
    before = await record()
    assert await advance(2, epoch) == (2, True)
    after = await record()
    assert (after.cursor, after.epoch, after.acked) == (2, before.epoch, [])
    assert await advance(2, epoch) == (2, False)
    assert await advance(1, epoch) == (2, False), "never back"
    assert await record() == after
    assert await advance(3) == (3, True), "who knows no epoch is believed"


async def test_a_cursor_that_is_moved_passes_what_the_log_misses(running, producer, advance, peers):
    """What is missing lay below, or is missed again."""
    await producer.publish("a", "b", "c")
    consumed = running.broker.owned[peers.partition_id(0)].groups["workers"]
    consumed.missing = "message 1 is not in the log"
    assert await advance(0) == (0, False)
    assert consumed.missing, "nothing was passed"
    assert await advance(2) == (2, True)
    assert consumed.missing == ""
    await running.assign("m", [0])
    flow = await peers.open_flow(running, "m")
    assert (await flow.deliver())[1] == ["c"]


async def test_positions_that_the_store_does_not_have_move_nothing(
    running, producer, advance, record
):
    await producer.publish("a", "b", "c")
    epoch = (await running.state())["broker_epoch"]
    assert await advance(4, epoch) == "rolled_back"
    assert await advance(2, epoch + 1) == "rolled_back"
    assert await advance(2, 1) == "rolled_back"
    assert (await record()).cursor == 0


async def test_a_member_that_is_connected_moves_its_cursor_itself(scene, advance, record, peers):
    running = scene.running
    epoch = (await running.state())["broker_epoch"]
    assert await advance(2, epoch) == "conflict"
    assert (await record()).cursor == 0
    await scene.source.close()
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    assert await advance(2, epoch) == (2, True)
    again = await peers.open_flow(running, "m", "later")
    frame, values = await again.deliver()
    assert (values, frame.start) == (["c"], 2)
    assert await again.ack(frame, 3) == ""


async def test_a_bind_that_is_under_way_is_not_overtaken(running, producer, advance, record, peers):
    """Whoever is first holds the other up: the member, then, has the partition."""
    await running.assign("m", [0])
    await producer.publish("a", "b")
    gate = peers.Gate(running.broker.partitions, "bind")
    flow = asyncio.create_task(peers.open_flow(running, "m"))
    await gate.reached.wait()
    moving = asyncio.create_task(advance(2))
    gate.opened.set()
    assert await moving == "conflict"
    assert (await (await flow).deliver())[1] == ["a", "b"]
    assert (await record()).cursor == 0


async def test_a_bind_that_comes_meanwhile_begins_behind_the_position(
    running, producer, advance, peers
):
    await running.assign("m", [0])
    await producer.publish("a", "b", "c")
    gate = peers.Gate(running.broker.log, "read_positions")
    moving = asyncio.create_task(advance(2))
    await gate.reached.wait()
    flow = await peers.open_flow(running, "m")
    gate.opened.set()
    assert await moving == (2, True)
    assert (await flow.deliver())[1] == ["c"]


async def test_two_committers_end_at_the_higher_position(running, producer, advance, record):
    """In whatever order they come: that of the lower one finds itself overtaken, or not."""
    for _ in range(10):
        await producer.publish(*"abcde")
    answers = await asyncio.gather(*(advance(offset) for offset in (10, 50, 30, 20, 40, 50)))
    assert max(cursor for cursor, _ in answers) == 50
    assert all(cursor >= offset for (cursor, _), offset in
               zip(answers, (10, 50, 30, 20, 40, 50), strict=True))  # fmt: skip
    assert (await record()).cursor == 50


async def test_what_was_acknowledged_one_by_one_above_counts(scene, advance, record, peers):
    """a, b and c are in hand, c is acknowledged; with a and b done the cursor is behind c."""
    assert await scene.source.ack(scene.held, ranges=[(2, 3)]) == ""
    await scene.source.close()
    running = scene.running
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    assert await advance(1) == (1, True)
    assert (await record()).acked == [(2, 3)]
    assert await advance(2) == (3, True)
    assert (await record()).acked == []


async def test_what_waited_to_come_again_is_done_with_too(scene, advance, record, peers):
    """b was given back, for a day; its count goes with it."""
    assert await scene.source.nack(scene.held, [(1, 2)], delay_ms=86_400_000) == ""
    await scene.source.close()
    running = scene.running
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")

    async def counted():
        return set((await record()).redeliveries) == {0, 1}

    await peers.eventually(counted, "a was lost with its flow")
    assert await advance(2) == (2, True)
    assert (await record()).redeliveries == {}
    flow = await peers.open_flow(running, "m", "later")
    frame, values = await flow.deliver()
    assert (values, frame.cause) == (["c"], Cause.NACK), "it came behind b, and not yet again"


async def test_what_was_to_become_a_dead_letter_is_none(scene, advance, record, peers):
    """The reader has it: it is not to come a second time, by another road."""
    await scene.source.close()
    running = scene.running
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    consumed = running.broker.owned[peers.partition_id(0)].groups["workers"]
    gate = peers.Gate(running.broker.dead_letters, "_step")
    running.broker.dead_letters.schedule(consumed, [0], 1)
    await gate.reached.wait()
    assert await advance(2) == (2, True)
    gate.opened.set()
    await peers.eventually(lambda: not consumed.outbox.scheduled, "it is let go of")
    assert (await record()).outbox == []
    flow = await peers.open_flow(running, "m", "later")
    assert (await flow.deliver())[1] == ["c"]


async def test_it_is_answered_once_it_is_stored(running, producer, advance, record, peers):
    await producer.publish("a", "b")
    gate = peers.Gate(running.broker.partitions, "flush")
    moving = asyncio.create_task(advance(2))
    await gate.reached.wait()
    again = asyncio.create_task(advance(2))
    assert (await record()).cursor == 0
    assert not moving.done()
    gate.opened.set()
    assert await moving == (2, True)
    assert await again == (2, False)
    assert (await record()).cursor == 2


async def test_a_store_that_does_not_answer_leaves_a_repeat(
    running, producer, advance, record, peers, monkeypatch
):
    monkeypatch.setattr("partq.broker.operations.positions.STORE_TIMEOUT_S", 0.05)
    await producer.publish("a", "b")
    gate = peers.Gate(running.broker.partitions, "flush")
    assert await advance(2) == "unavailable"
    gate.opened.set()
    monkeypatch.setattr("partq.broker.operations.positions.STORE_TIMEOUT_S", 5.0)
    assert await advance(2) == (2, False)
    assert (await record()).cursor == 2


async def test_a_partition_that_is_lost_meanwhile_is_moved_by_a_repeat(
    running, producer, advance, record, peers
):
    await producer.publish("a", "b")
    partition = peers.partition_id(0)
    gate = peers.Gate(running.broker.partitions, "flush")
    moving = asyncio.create_task(advance(2))
    await gate.reached.wait()
    seen = await running.broker.partitions.read(partition)
    await running.broker.partitions.claim(
        partition, BrokerId("another"), "i", expected=seen.broker_epoch, affirmed=seen.affirmed
    )
    gate.opened.set()
    assert await moving == "fenced"
    assert (await record()).cursor == 0

    async def repeated():
        return await advance(2) in {(2, True), (2, False)}

    await peers.eventually(repeated, "it is claimed again, and the cursor is there")
    assert (await record()).cursor == 2


async def test_cursors_that_make_no_sense_are_refused(advance, running, peers):
    position = {"offset": 0, "append_broker_epoch": 0}
    for body in (
        {"positions": {}},
        {"positions": {"x": position}},
        {"positions": {"1.0": {"offset": -1}}},
        {"positions": {"1.0": {"offset": 2**54}}},
        {"positions": {"1.0": {}}},
        {"positions": {"1.0": position}, "partitions": ["1.1"]},
        {"positions": {"1.0": position}, "partitions": ["1.0", "1.0"]},
        {"positions": [position]},
    ):
        status, code = await advance(**body)
        assert (status, code.startswith("bad_")) == (400, True), body
    assert await advance(positions={"1.9": position}) == (404, "unknown_partition")
    path = CURSORS.replace("workers", "nobody")
    body = {"positions": {"1.0": position}}
    status, answer = await running.call("POST", path, json=body)
    assert (status, answer["error"]["code"]) == (404, "unknown_group")
    refused, _ = await running.call("POST", CURSORS, json=body, token=peers.OTHER_GROUP)
    assert refused == 403


async def test_a_pulling_member_is_a_member(running, producer, advance, peers):
    await running.assign("m", [0])
    await producer.publish("a")
    pull = {"member": "m", "incarnation": "x", "wait_ms": 0}
    path = "/v1/queues/orders/groups/workers/pull"
    status, _ = await running.call("POST", path, json=pull, token=peers.CONSUME)
    assert status == 200
    assert await advance(1) == "conflict"
