"""Dead letters that an application asks for, and what it says of them as it gives messages back."""

# ruff: noqa: F811  # fixtures of another module

import asyncio
import json
import re

import pytest

from partq import Consumer
from partq.broker.operations.gauges import render_metrics
from partq.core.dead_letters import DESCRIPTION_HEADER, HEADER_PREFIX, REASON_HEADER
from partq.errors import FencedError, MessageTooLargeError, UnavailableError
from partq.store.keys import Keys
from partq.testing import eventually
from partq.wire import frames
from tests.broker.api.routes.test_pull import Member, token_of
from tests.broker.conftest import CONSUME, UID, open_flow
from tests.broker.dead_letters.test_dead_letters import (  # noqa: F401  # fixtures
    P,
    consumed,
    nack_of,
    publish,
    resources,
    run,
    start_target,
    stored,
    target,
)

WAIT_S = 60.0
REASON = HEADER_PREFIX + "reason"


def asked_of(header, *offsets, reason="bad_address", description="no such city", **more):
    ranges = [(offset, offset + 1) for offset in offsets]
    place = (1, header.partition, header.broker_epoch, header.epoch, header.delivery)
    asked = {"makes_dead_letters": True, "description": description, **more}
    return frames.Nack(7, *place, ranges, reason=reason, **asked)


@pytest.fixture
async def flow(running):
    """A flow that has three messages of its partition in flight."""
    await running.assign("m", [0])
    await publish(running, "a", "b", "c")
    flow = await open_flow(running)
    await flow.expect(frames.Assigned)
    flow.header, _ = await flow.deliver()
    return flow


@pytest.fixture
async def consumer(running):
    """A consumer in the program of the application, which has messages of its partition."""
    await running.assign("m", [0])
    await publish(running, "a", "b", "c")
    consumer = Consumer(
        running.url,
        queue="orders",
        group="workers",
        token=CONSUME,
        member="m",
        handle_signals=False,
        leave_timeout_s=0.05,
    )
    async with asyncio.timeout(WAIT_S), consumer:
        yield consumer


@pytest.mark.req("AZR-13")
async def test_a_consumer_makes_a_dead_letter_and_the_others_go_on(
    running, target, stored, consumer, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    first = await anext(consumer)
    await consumer.dead_letter(first, reason="bad_address", description="no such city: Ør\nline 2")
    second = await anext(consumer)
    assert (second.value, second.redeliveries) == (b"b", 0), "nothing is redelivered"
    await consumer.ack(second)
    await consumer.ack(await anext(consumer), confirmed=True)
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert dead.value == b"a"
    assert dead.headers[REASON] == "application"
    assert dead.headers[REASON_HEADER] == "bad_address"
    assert dead.headers[DESCRIPTION_HEADER] == "no such city: Ør\nline 2"
    assert dead.headers["partq-dead-letter-redeliveries"] == "0"
    await eventually(lambda: consumed(running).book.cursor == 3, "the group has done with all")
    assert consumer.stats().nacked == 1

    lines = (await run(target, "list")).stdout
    assert "bad_address: no such city: Ør" in lines
    (listed,) = json.loads((await run(target, "list", "--json")).stdout)["messages"]
    assert listed["headers"][REASON_HEADER] == "bad_address"


async def test_all_of_a_batch_become_dead_letters(running, target, stored, consumer):
    batch = await anext(consumer.batches())
    await consumer.dead_letter(batch, reason="old_schema")

    async def has_all():
        return len(await stored()) == 3

    await eventually(has_all, "the dead letters")
    dead = await stored()
    assert [each.value for each in dead] == [b"a", b"b", b"c"]
    assert {each.headers[REASON_HEADER] for each in dead} == {"old_schema"}
    assert not any(DESCRIPTION_HEADER in each.headers for each in dead)


async def test_the_last_nack_says_why_a_message_became_a_dead_letter(
    running, target, stored, consumer
):
    first = await anext(consumer)
    await consumer.nack(first, delay_s=0, reason="database_down")
    again = await anext(consumer)
    assert (again.value, again.redeliveries) == (b"a", 1)
    await consumer.nack(again, delay_s=0, reason="bad_address")
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert (dead.headers[REASON], dead.headers[REASON_HEADER]) == ("maxRedeliveries", "bad_address")


async def test_a_nack_without_a_reason_takes_the_earlier_one_back(
    running, target, stored, consumer
):
    await consumer.nack(await anext(consumer), delay_s=0, reason="database_down")
    await consumer.nack(await anext(consumer), delay_s=0)
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert REASON_HEADER not in dead.headers


async def test_a_reason_of_an_application_is_no_label_of_a_metric(running, flow):
    await flow.send(asked_of(flow.header, 0, makes_dead_letters=False))
    await flow.expect(frames.Rewound)
    await flow.expect(frames.AckConfirmed)
    text = render_metrics(running.broker).decode()
    assert re.search(r'taken_back_total{.*cause="nack".*} 1.0', text)
    assert "bad_address" not in text


async def test_what_was_asked_for_outlives_the_broker_before_it_is_sent(
    running, start_target, stored, flow
):
    """The queue of dead letters comes late, after another claim of the partition."""
    await flow.send(asked_of(flow.header, 1))
    await flow.expect(frames.AckConfirmed)
    first = consumed(running)
    assert [letter.offset for letter in first.outbox.letters] == [1]
    running.broker.ownership.drop_all()
    await eventually(
        lambda: P in running.broker.owned and consumed(running).outbox.letters, "it is read again"
    )
    assert consumed(running) is not first
    await start_target()
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert dead.value == b"b"
    assert dead.headers[REASON] == "application"
    assert dead.headers[DESCRIPTION_HEADER] == "no such city"


async def test_nothing_is_left_in_redis_of_a_note_whose_letter_is_sent(
    running, target, stored, flow, store, key_prefix
):
    await flow.send(asked_of(flow.header, 0, 1))
    await flow.expect(frames.AckConfirmed)
    await eventually(lambda: not consumed(running).outbox.letters, "both are sent")
    key = Keys(key_prefix, "default", "orders", UID).cursor(P, "workers")
    fields = await store.read("HKEYS", key)
    assert not [name for name in fields if name.startswith(b"note:")]


async def test_without_room_the_message_is_given_back(running, flow, monkeypatch):
    monkeypatch.setattr("partq.broker.partition.outbox.MAX_WAITING", 1)
    await flow.send(asked_of(flow.header, 0))
    await flow.expect(frames.AckConfirmed)
    await flow.send(asked_of(flow.header, 1, 2, delay_ms=0))
    await flow.expect(frames.Rewound)
    refused, _ = await flow.expect(frames.AckRefused)
    assert refused.code == UnavailableError.code
    assert "were given back and are redelivered" in refused.message
    assert consumed(running).book.redeliveries == {1: 1, 2: 1}


async def test_a_reset_before_they_are_stored_tells_who_waits(running, flow):
    """Between the frame and the script; the message is delivered again, wherever the cursor is."""
    outbox = consumed(running).outbox
    answers = []
    running.broker.dead_letters._spawn = lambda work, _: work.close()  # the task never runs
    await flow.send(asked_of(flow.header, 0))
    await eventually(lambda: outbox.waits, "it is asked for")
    outbox.waits.append(([0], answers.append))
    consumed(running).begin_at(0, [])
    refused, _ = await flow.expect(frames.AckRefused)
    assert refused.code == FencedError.code
    assert "nothing is stored of them" in refused.message
    assert len(answers) == 1
    assert not outbox.scheduled
    assert not outbox.asked_for


async def test_a_lost_partition_tells_who_waits(running, flow):
    answers = []
    held = consumed(running)
    held.outbox.waits.append(([0], answers.append))
    running.broker.ownership.drop_all()
    (refusal,) = answers
    assert refusal.code == FencedError.code


async def test_what_the_group_has_done_with_is_no_dead_letter(running, flow):
    await flow.send(frames.Ack(1, 1, 0, flow.header.broker_epoch, flow.header.epoch, 0, 1))
    await flow.expect(frames.AckConfirmed)
    await flow.send(asked_of(flow.header, 0))
    await flow.expect(frames.AckConfirmed)
    assert consumed(running).outbox.letters == []


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        ({"reason": "x" * 65}, "bad_request", "of 65 characters; expected at most 64 printable"),
        ({"reason": "a\nb"}, "bad_request", "printable"),
        ({"description": "x" * 1025}, "bad_request", "description of 1025 characters"),
        ({"reason": frames.UNDECODABLE}, "bad_request", "one of the application"),
        ({"offset": 9}, "not_delivered", "dead letter up to 10; delivered up to 3"),
        ({"epoch": 1}, "fenced", "has ended"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_happens(running, flow, asked, code, words):
    offset = asked.pop("offset", 0)
    frame = asked_of(flow.header, offset, **{k: v for k, v in asked.items() if k != "epoch"})
    if "epoch" in asked:
        frame.epoch = asked["epoch"]
    await flow.send(frame)
    refused, _ = await flow.expect(frames.AckRefused)
    assert refused.code == code
    assert words in refused.message
    assert consumed(running).book.in_flight == 3
    assert not consumed(running).outbox.has_work


async def test_a_description_that_the_queue_finds_too_long_is_left_out(
    running, target, stored, consumer, caplog
):
    limit = 1024
    send = running.broker.dead_letters.target.send

    async def send_small(queue, slot, data, *rest):
        if len(data) > limit:
            raise MessageTooLargeError(f"a message of {len(data)} bytes; the queue takes {limit}")
        return await send(queue, slot, data, *rest)

    running.broker.dead_letters.target.send = send_small
    await consumer.dead_letter(await anext(consumer), reason="long", description="x" * 1024)
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert dead.headers[REASON_HEADER] == "long"
    assert DESCRIPTION_HEADER not in dead.headers
    assert "the description of the application at offset 0 is left out" in caplog.text


async def test_a_pulling_member_makes_dead_letters(running, target, stored):
    await running.assign("m", [0])
    await publish(running, "a", "b")
    member = Member(running, CONSUME)
    first, _ = await member.messages()
    asked = {"makes_dead_letters": True, "reason": "bad", "description": "text"}
    nack = {**token_of(first), "offsets": [first["offset"]], **asked}
    body = {"member": "m", "flow": member.flow, "nacks": [nack]}
    path = "/v1/queues/orders/groups/workers/nacks"
    answer = await running.call("POST", path, token=CONSUME, json=body)
    assert answer == (200, {"results": [{}]})
    await eventually(stored, "the dead letter")
    (dead,) = await stored()
    assert (dead.value, dead.headers[REASON_HEADER]) == (b"a", "bad")
