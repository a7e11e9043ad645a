"""Messages that could not be processed: given back by the member, or in hand for too long."""

import asyncio

import pytest

from partq.core.cursor.redelivery_rules import NackOrder
from partq.core.model import Cause
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import Gate, open_flow, open_producer, partition_id
from tests.broker.group_rules import without_rules

DAY_MS = 86_400_000


async def follow(running, group, **changes):
    """Change fields of a group's spec, as an operator does, and have the broker follow."""
    configs = running.broker.configs
    stored = await configs.read_group(group)
    spec = {**stored.spec, **changes}
    number = stored.resource_generation + 1
    assert await configs.write_group(group, spec, resource_generation=number)
    await running.broker.refresh()


async def in_free_order(scene):
    nack = {"order": "Free", "delaySeconds": 0.0, "backoff": None}
    await follow(scene.running, "workers", nack=nack)


async def redeliveries(running):
    record = await running.broker.partitions.read_cursor(partition_id(0), "workers")
    return record.redeliveries


def metric(running, cause):
    labels = f'cause="{cause}",group="workers",namespace="default",queue="orders"'
    line = f"partq_messages_taken_back_total{{{labels}}} "
    text = running.broker.metrics.render().decode()
    return next((float(x.removeprefix(line)) for x in text.splitlines() if x.startswith(line)), 0)


# ---- in order -----------------------------------------------------------------------------------


@pytest.mark.req("HND-28", "PUL-20", "PUL-21", "PUL-23", "PUL-04", "PUL-24", "PUL-127")
async def test_a_nack_steps_back_and_says_so(scene):
    """In hand: a, b, c; b is given back."""
    source, held = scene.source, scene.held
    assert await source.nack(held, [(1, 2)], delay_ms=0) == ""
    rewound, _ = await source.expect(frames.Rewound)
    assert (rewound.start, rewound.delivery, rewound.cause) == (1, 1, Cause.NACK)
    again, values = await source.deliver()
    assert (values, again.start, again.delivery) == (["b", "c"], 1, 1)
    assert (again.cause, again.redeliveries) == (Cause.NACK, [(1, 1)])
    assert await redeliveries(scene.running) == {1: 1}
    assert metric(scene.running, "nack") == 1

    assert await source.ack(held, upto=3) == "rewound"
    assert await source.ack(held, ranges=[(2, 3)]) == "", "c was in hand before"
    assert await source.ack(held, upto=1) == "", "a was not given back"
    assert await source.ack(again, upto=2) == ""
    assert (await scene.running.state())["in_flight"] == 0
    assert await redeliveries(scene.running) == {}


async def test_a_nack_before_the_rules_are_read_waits_for_a_second(scene):
    """The default of a minute would hold the partition up although the group asks for less."""
    broker = scene.running.broker
    waiting = broker.owned[partition_id(0)].groups["workers"].book.waiting
    async with without_rules(broker):
        before = broker.clock()
        assert await scene.source.nack(scene.held, [(1, 2)]) == ""
        after = broker.clock()
        assert before + 1 <= waiting.next_due <= after + 1  # the clock of both is the broker's
    assert (await scene.source.deliver())[1] == ["b", "c"]


async def test_no_more_comes_again_than_was_in_flight(running):
    """Neither what was acknowledged, nor anything beyond what the member had room for."""
    await running.assign("m", [0])
    producer = await open_producer(running)
    for start in range(0, 60, 20):
        await producer.publish(*(str(value) for value in range(start, start + 20)))
    flow = await open_flow(running, credit=40)
    held, values = await flow.deliver()
    while len(values) < 40:
        held, more = await flow.deliver()
        values += more
    assert await flow.ack(held, ranges=[(0, 5), (15, 30)]) == ""
    assert await flow.nack(held, [(10, 11)], delay_ms=0, begun=31) == ""
    await flow.find(frames.Rewound)
    await flow.send(frames.Credit(15))
    again = []
    while len(again) < 15:
        _, more = await flow.deliver()
        again += more
    assert again == [str(value) for value in (*range(10, 15), *range(30, 40))]
    assert (await running.state())["in_flight"] == 20, "and those below that were in hand before"


async def test_what_is_behind_waits_with_it(scene):
    assert await scene.source.nack(scene.held, [(1, 2)], delay_ms=DAY_MS) == ""
    await scene.producer.publish("d")
    await scene.source.expect(frames.Rewound)
    assert await scene.source.gets_nothing()
    assert (await scene.running.state())["in_flight"] == 1, "a is, what waits is not"


async def test_counts_are_stored_before_the_message_comes_again(scene):
    """A flush that was under way already does not hold the second nack's count."""
    source, held = scene.source, scene.held
    gate = Gate(scene.running.broker.partitions, "flush")
    nack = (held.generation, held.partition, held.broker_epoch, held.epoch, held.delivery)
    await source.send(frames.Nack(1, *nack, [(1, 2)], 0))
    await gate.reached.wait()
    await source.send(frames.Nack(2, *nack, [(0, 1)], 0))
    await source.expect(frames.Rewound)
    await source.expect(frames.Rewound)
    assert await source.gets_nothing(), "nothing is stored yet"
    gate.opened.set()
    again, values = await source.deliver()
    assert (values, again.redeliveries) == (["a", "b", "c"], [(0, 1), (1, 1)])
    assert await redeliveries(scene.running) == {0: 1, 1: 1}


async def test_a_nack_that_asks_for_too_much_is_refused(scene):
    source, held = scene.source, scene.held
    assert await source.nack(held, [(2, 4)]) == "not_delivered"
    assert await source.nack(held, [(0, 1)], delivery=3) == "rewound"
    assert await source.nack(held, [(0, 1)], delay_ms=DAY_MS + 1) == "bad_request"
    assert await source.nack(held, [(0, 1)], delay_ms=-2) == "bad_request"
    assert await source.nack(held, []) == "bad_request", "it gives nothing back"
    assert await source.nack(held, [(0, 1)], reason="x" * 65) == "bad_request"
    held.epoch -= 1
    assert await source.nack(held, [(0, 1)]) == "fenced"
    assert (await scene.running.state())["in_flight"] == 3
    assert await redeliveries(scene.running) == {}


async def test_what_waits_holds_no_handoff_up_and_goes_on_waiting(scene):
    """The new owner gets it, after the delay, with its count."""
    source, held = scene.source, scene.held
    assert await source.nack(held, [(1, 2)], delay_ms=DAY_MS) == ""
    assert await source.ack(held, upto=1) == ""
    await source.expect(frames.Rewound)
    handoff = await scene.paused()
    assert (await handoff.drain())["is_drained"]
    assert (await handoff.commit())["code"] == ""
    target = await scene.target()
    await target.expect(frames.Assigned)
    assert await target.gets_nothing()
    book = scene.running.broker.owned[partition_id(0)].groups["workers"].book
    assert book.waiting.count(0, 9) == 1

    # A broker that starts anew knows the count; of the delay it knows nothing.
    broker, partition = scene.running.broker, partition_id(0)
    broker.ownership.lose(broker.owned[partition], StoreUnavailableError("test"))
    again, values = await target.deliver()
    assert (values, again.cause, again.redeliveries) == (
        ["b", "c"], Cause.BROKER_CHANGE, [(1, 1)],
    )  # fmt: skip


async def test_a_nack_during_a_commit_comes_too_late(scene):
    held = scene.held
    handoff = await scene.paused(drain_ms=0)
    gate = Gate(scene.running.broker.partitions, "commit")
    committing = asyncio.create_task(handoff.commit(cause="drain_timeout"))
    await gate.reached.wait()
    place = (held.generation, held.partition, held.broker_epoch, held.epoch, held.delivery)
    await scene.source.send(frames.Nack(4, *place, [(1, 2)], 0))
    consumed = scene.running.broker.owned[partition_id(0)].groups["workers"]
    await eventually(lambda: consumed.held_acks, "the nack waits for the outcome")
    gate.opened.set()
    assert (await committing)["code"] == ""
    refused = await scene.source.pick(frames.AckRefused)
    assert (refused.request, refused.code) == (4, "fenced")
    assert await redeliveries(scene.running) == {0: 1}, "of the forced commit"


# ---- in free order ------------------------------------------------------------------------------


@pytest.mark.req("PUL-22", "PUL-25", "PUL-26")
async def test_in_free_order_only_that_message_is_redelivered(scene):
    await in_free_order(scene)
    source, held = scene.source, scene.held
    assert await source.nack(held, [(1, 2)]) == ""
    again, values = await source.deliver()
    assert (values, again.start, again.stop, again.delivery) == (["b"], 1, 2, 0)
    assert (again.cause, again.redeliveries) == (Cause.NACK, [(1, 1)])
    assert metric(scene.running, "nack") == 1, "it came out of its order, which is counted"
    assert await source.ack(held, upto=3) == ""
    assert (await scene.running.state())["in_flight"] == 1, "c was sent before that"
    assert await source.ack(again, ranges=[(1, 2)]) == ""
    assert (await scene.running.state())["in_flight"] == 0


async def test_a_cumulative_ack_leaves_out_what_another_member_has_given_back(scene):
    """Its new member has not got it: that would be lost."""
    await in_free_order(scene)
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=DAY_MS) == ""
    await scene.source.close()
    other = await open_flow(scene.running, "m")
    held, values = await other.deliver()
    assert (values, held.start) == (["b", "c"], 1)
    assert await other.ack(held, upto=3) == ""
    record = await scene.running.broker.partitions.read_cursor(partition_id(0), "workers")
    assert (record.cursor, record.acked) == (0, [(1, 3)])
    assert record.redeliveries == {0: 1}


async def test_in_free_order_the_others_go_on(scene):
    """Also from a broker that holds nothing of the log in memory, and to another flow."""
    await in_free_order(scene)
    broker, partition = scene.running.broker, partition_id(0)
    broker.ownership.lose(broker.owned[partition], StoreUnavailableError("test"))
    held, values = await scene.source.deliver()
    assert values == ["a", "b", "c"]
    assert await scene.source.nack(held, [(0, 1)], delay_ms=DAY_MS) == ""
    assert await scene.source.nack(held, [(1, 2)], delay_ms=0) == ""
    assert (await scene.source.deliver())[1] == ["b"]
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"]
    await scene.source.close()

    other = await open_flow(scene.running, "m")
    lost, values = await other.deliver()
    assert (values, lost.cause) == (["b", "c"], Cause.FLOW_LOST), "a continues waiting"
    assert lost.redeliveries == [(1, 2)]


# ---- in hand for too long -----------------------------------------------------------------------


@pytest.mark.req("PUL-32", "PUL-35", "PUL-36")
async def test_what_was_begun_too_long_ago_is_redelivered(scene):
    """The time runs from the member's word; without it there is no end."""
    rules = {"timeoutSeconds": 0.3, "tickSeconds": 0.25, "backoff": None}
    await follow(scene.running, "workers", ack=rules)
    source, held = scene.source, scene.held
    assert await source.ack(held, ranges=[(1, 2)]) == ""
    await source.begin(held)
    rewound, _ = await source.find(frames.Rewound)
    assert (rewound.start, rewound.cause) == (0, Cause.ACK_TIMEOUT)
    again, values = await source.deliver()
    assert (values, again.cause, again.skip) == (["a", "c"], Cause.ACK_TIMEOUT, [(1, 2)])
    assert again.redeliveries == [(0, 1), (2, 1)]
    assert await redeliveries(scene.running) == {0: 1, 2: 1}
    assert metric(scene.running, "ack_timeout") == 2
    assert await source.ack(held, ranges=[(0, 1)]) == "", "the first copy was still worked on"
    assert (await scene.running.state())["in_flight"] == 1


# ---- by HTTP ------------------------------------------------------------------------------------


class Puller:
    """A member that pulls."""

    def __init__(self, running, token):
        self.running, self.token, self.answer = running, token, None

    async def call(self, path, **body):
        path = f"/v1/queues/orders/groups/workers/{path}"
        return await self.running.call("POST", path, token=self.token, json=body)

    async def messages(self):
        status, body = await self.call(
            "pull", member="m", incarnation="i", wait_ms=10_000, last_answer=self.answer
        )
        assert status == 200, body
        self.answer, self.flow = body["answer"], body["flow"]
        return body["messages"]

    async def nack(self, message, *offsets, **changes):
        names = ("partition", "broker_epoch", "epoch", "delivery")
        item = {name: message[name] for name in names} | {"offsets": offsets, **changes}
        return await self.call("nacks", member="m", flow=self.flow, nacks=[item])


@pytest.fixture
async def puller(running, peers):
    await running.assign("m", [0])
    producer = await peers.open_producer(running)
    await producer.publish("a", "b", "c")
    return Puller(running, peers.CONSUME)


async def test_a_pulling_member_nacks(puller):
    first = await puller.messages()
    status, body = await puller.nack(first[0], 1, delay_ms=0)
    assert (status, body) == (200, {"results": [{"rewound_from": 1}]})
    again = await puller.messages()
    assert [(m["value"], m["cause"], m["redeliveries"]) for m in again] == [
        ("b", "nack", 1), ("c", "nack", 0),
    ]  # fmt: skip
    status, body = await puller.nack(again[0], 1, 2, delay_ms=0, reason="undecodable")
    assert (status, body) == (200, {"results": [{"rewound_from": 1}]})
    assert metric(puller.running, "undecodable") == 2


async def test_a_pulling_member_is_told_what_is_wrong(puller):
    (message, *_) = await puller.messages()
    status, body = await puller.nack(message, 7)
    assert (status, body["results"][0]["error"]["code"]) == (207, "not_delivered")
    status, body = await puller.nack({**message, "partition": "x"}, 0)
    assert (status, body["results"][0]["error"]["code"]) == (207, "bad_request")
    status, body = await puller.nack(message, *range(100_001))
    assert (status, body["error"]["code"]) == (413, "batch_too_large")
    puller.flow += 1
    status, body = await puller.nack(message, 0)
    assert (status, body["error"]["code"]) == (409, "fenced")


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({"offsets": []}, "nacks[0].offsets: got 0 entries, expected 1 or more"),
        ({"offsets": [-1]}, "nacks[0].offsets[0]: got -1, expected 0 or more"),
        ({"offsets": [0], "delay_ms": -1}, "nacks[0].delay_ms: got -1, expected 0 or more"),
    ],
)
async def test_a_pulling_member_that_gives_nothing_back_is_told(puller, item, says):
    (message, *_) = await puller.messages()
    status, body = await puller.nack(message, **item)
    assert (status, body["error"]["code"]) == (400, "bad_json")
    assert says in body["error"]["message"]


async def test_what_was_pulled_is_in_hand(puller):
    rules = {"timeoutSeconds": 0.3, "tickSeconds": 0.25, "backoff": None}
    await follow(puller.running, "workers", ack=rules)
    assert len(await puller.messages()) == 3
    again = await puller.messages()
    assert {(m["cause"], m["redeliveries"]) for m in again} == {("ack_timeout", 1)}


async def test_what_waits_to_be_answered_is_not_in_hand(puller):
    """Redis is slow: the broker looks twice for what is late before the answer may leave."""
    broker = puller.running.broker
    rules = {"timeoutSeconds": 0.3, "tickSeconds": 0.25, "backoff": None}
    await follow(puller.running, "workers", ack=rules)
    held = broker.owned[partition_id(0)].groups["workers"]
    gate = Gate(broker.lease, "renewed")
    pulling = asyncio.create_task(puller.messages())
    await gate.is_reached()
    assert held.book.in_flight == 3
    taken_at = broker.clock()
    await eventually(lambda: held.next_tick > taken_at + 1.0, "the broker has looked")
    assert held.book.redeliveries == {}
    gate.opened.set()
    assert [m["redeliveries"] for m in await pulling] == [0, 0, 0]
    counts = dict.fromkeys(range(3), 1)
    await eventually(lambda: held.book.redeliveries == counts, "each is late")


@pytest.mark.req("PUL-28", "PUL-29")
async def test_the_rules_of_a_group_are_followed(running):
    assert running.broker.config.redelivery["workers"].nack_delay_s == 60
    backoff = {"minSeconds": 2.0, "maxSeconds": 30.0, "multiplier": 3.0}
    await follow(
        running, "workers", nack={"order": "Free", "delaySeconds": 1.0, "backoff": backoff}
    )
    rules = running.broker.config.redelivery["workers"]
    assert rules.order is NackOrder.FREE
    assert [rules.after_nack_s(n) for n in (1, 2, 3, 4)] == [2, 6, 18, 30]
