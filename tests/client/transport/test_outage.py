"""What a client says of a broker that does not serve it: once as it begins, once as it ends."""

import asyncio
import logging

import pytest

from partq import PartqError, Producer
from partq.client.transport import broker_connection
from partq.client.transport.outage import UNLISTED_S, Outage
from partq.errors import MemberInUseError, MemberRefusedError, NotListedError, UnavailableError
from partq.testing import eventually
from partq.wire import frames
from tests.client.conftest import Clock
from tests.client.member import WAIT_S, Member, bound

IN_USE = frames.Failed(MemberInUseError.code, "incarnation x holds a living flow", 1)


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_broker_that_is_away_and_back_is_one_warning_each(
    peer, member, caplog, stored_batch
):
    flow = await bound(peer, stored_batch, b"a")
    await member.next()
    for _ in range(3):
        await flow.drop()
        flow = await peer.raw_flow()  # a connection, but no welcome
    await flow.send(frames.Bound("broker-0", 1, 60_000))
    await eventually(lambda: any("serves again" in line for line in warnings(caplog)))
    about = [line for line in warnings(caplog) if peer.url in line]
    assert len(about) == 2, about
    assert about[0].count(peer.url) == 1, "once is enough"


async def test_a_broker_that_never_welcomes_is_left_for_a_new_connection(peer, monkeypatch):
    monkeypatch.setattr(broker_connection, "CALL_TIMEOUT_S", 0.05)
    async with asyncio.timeout(WAIT_S), Member(peer).consumer:
        silent = await peer.raw_flow()
        await peer.raw_flow()
        await silent.closed()


async def test_a_producer_says_it_once_too(peer, caplog):
    async with Producer(peer.url, queue="orders") as producer:
        broker = await peer.producer()
        for _ in range(3):
            await broker.drop()
            broker = await peer.raw_producer()
        await broker.send(frames.ProducerWelcome("broker-0", 60_000, 10_000, 5))
        await eventually(lambda: any("serves again" in line for line in warnings(caplog)))
        await producer.flush()
    assert len(warnings(caplog)) == 2


async def test_a_name_in_use_is_told_at_once_and_an_error_in_the_end(peer, caplog):
    member = Member(peer, connect_timeout_s=0.3)
    async with asyncio.timeout(WAIT_S), member.consumer:
        waiting = asyncio.create_task(member.next())

        async def refuse():
            while True:
                await (await peer.raw_flow()).send(IN_USE)

        refusing = asyncio.create_task(refuse())
        await eventually(lambda: warnings(caplog))
        assert "holds a living flow" in warnings(caplog)[0]
        with pytest.raises(MemberInUseError, match="holds a living flow"):
            await waiting
        refusing.cancel()
    assert len([line for line in warnings(caplog) if "living flow" in line]) == 1


async def test_a_refused_member_ends_with_the_words(peer):
    """What somebody else has to change is not waited for without end."""
    words = "pod p of shop (app=x) does not match app=y"
    member = Member(peer, connect_timeout_s=0.3)
    async with asyncio.timeout(WAIT_S), member.consumer:
        waiting = asyncio.create_task(member.next())

        async def refuse():
            while True:
                failed = frames.Failed(MemberRefusedError.code, words, 1)
                await (await peer.raw_flow()).send(failed)

        refusing = asyncio.create_task(refuse())
        with pytest.raises(MemberRefusedError, match="does not match app=y"):
            await waiting
        refusing.cancel()


async def test_a_name_that_becomes_free_in_time_is_no_error(peer, stored_batch):
    member = Member(peer)
    async with asyncio.timeout(WAIT_S), member.consumer:
        await (await peer.raw_flow()).send(IN_USE)
        await bound(peer, stored_batch, b"a")
        assert (await member.next()).value == b"a"


def test_a_refused_member_is_told_within_5_s(caplog):
    clock = Clock()
    outage = Outage("http://h:1", clock)
    words = "pod p is not a member of workers: its labels do not match"
    outage.note(NotListedError(words))
    assert not warnings(caplog), "it has just started"
    clock.now += UNLISTED_S
    outage.note(NotListedError(words))
    clock.now += 1
    outage.note(NotListedError(words))
    (line,) = warnings(caplog)
    assert words in line
    assert UNLISTED_S + 1.5 < 5, "with the time between two tries"


def test_the_reason_of_a_refusal_does_not_begin_the_waiting_again(caplog):
    """It comes a moment after the member was found not to be listed."""
    clock = Clock()
    outage = Outage("http://h:1", clock)
    outage.note(NotListedError("not listed yet"))
    clock.now += 2.5
    outage.note(MemberRefusedError("its labels do not match"))
    clock.now += 1
    assert outage.note(MemberRefusedError("its labels do not match")) == 3.5
    (line,) = warnings(caplog)
    assert "its labels do not match" in line


def test_each_kind_of_failure_is_told_once(caplog):
    outage = Outage("http://h:1", Clock())
    errors: list[PartqError] = [UnavailableError("cannot connect"), MemberInUseError("in use")]
    for error in errors * 3:
        outage.note(error)
    assert len(warnings(caplog)) == 2
    outage.end()
    outage.end()
    assert len(warnings(caplog)) == 3
