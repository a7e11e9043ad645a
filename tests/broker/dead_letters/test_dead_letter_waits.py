"""A dead-letter queue that takes nothing: what dies meanwhile holds nobody up."""

import asyncio

import pytest

from partq.broker.dead_letters import forwarder, remote_queue
from partq.core.dead_letters import DeadLetterReason
from partq.core.model import PartitionId
from partq.embedded.provision import provision
from partq.store.keys import Keys
from partq.store.records.leases import Leases
from partq.testing import eventually
from partq.wire import frames
from tests.broker.conftest import open_flow
from tests.broker.dead_letters.test_dead_letters import (
    TARGET,
    TARGET_UID,
    consumed,
    fail,
    publish,
    resources,
    start_target,
    target,
)

__all__ = ["resources", "start_target", "target"]


@pytest.fixture
def patience(monkeypatch):
    """A failed step is not repeated within the test."""
    monkeypatch.setattr(forwarder, "FIRST_WAIT_S", 3600.0)
    monkeypatch.setattr(forwarder, "LONGEST_WAIT_S", 3600.0)


async def two_die(running, is_tried, what):
    """Let two messages die, each once the dead letter before was tried; the third one comes."""
    await running.assign("m", [0])
    await publish(running, "poison", "too", "good")
    for offset in (0, 1):
        await fail(running, offset=offset)
        await fail(running, offset=offset)
        await eventually(
            lambda moved=offset + 1: len(consumed(running).outbox.letters) == moved, "moved"
        )
        await eventually(is_tried, what)
    flow = await open_flow(running)
    assert await flow.take(1) == ["good"]


async def test_what_dies_while_the_target_is_away_is_moved_at_once(running, patience):
    """Until it is moved nothing is delivered, and the repeat of a failed send may be far off."""
    await two_die(running, lambda: consumed(running).outbox.trouble, "a send that has failed")


async def test_a_move_that_is_refused_is_tried_again_at_a_pace(running, patience):
    """While a commit or a reset is under way; the broker serves everybody else meanwhile."""
    await running.assign("m", [0])
    await publish(running, "poison", "too")
    letter_forwarder, refused = running.broker.dead_letters, consumed(running)
    tries = []
    move = letter_forwarder._move

    async def count(consumed):
        tries.append(consumed)
        if len(tries) == 100:
            consumed.is_resetting = False  # else nothing else would ever run
        await move(consumed)

    letter_forwarder._move = count
    refused.is_resetting = True
    letter_forwarder.schedule(refused, [0], DeadLetterReason.MAX_REDELIVERIES)
    await eventually(lambda: refused.outbox.trouble, "it is refused")
    assert (len(tries), refused.is_resetting) == (1, True)
    refused.is_resetting = False
    letter_forwarder.schedule(refused, [1], DeadLetterReason.MAX_REDELIVERIES)
    await eventually(lambda: len(refused.outbox.letters) == 2, "the next one wakes it")
    assert len(tries) == 2


@pytest.fixture
async def silent_target(store, key_prefix, resources, monkeypatch):
    """A broker of the dead-letter queue that has stopped: calls arrive, and it answers none.

    Returns the calls that have arrived.
    """
    monkeypatch.setattr(remote_queue, "CALL_TIMEOUT_S", 3600.0)  # nobody gives up within the test
    calls = []

    async def take(reader, writer):
        calls.append(await reader.readuntil(b"\r\n"))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    await provision(store, resources.queues[1], resources, uid=TARGET_UID)
    leases = Leases(store, Keys(key_prefix, "default", TARGET, TARGET_UID))
    await leases.renew("silent", "x", 3.0, f"http://{host}:{port}")
    await leases.peer_token("peer")
    for index in range(2):
        await leases.record_owner(PartitionId(1, index), "silent")
    yield calls
    server.close()


async def test_what_dies_while_a_letter_is_on_its_way_is_moved_at_once(running, silent_target):
    """A call that nobody answers takes many seconds: what dies meanwhile does not wait."""
    await two_die(running, lambda: silent_target, "a call that is not answered")
    assert len(silent_target) == 1


async def test_a_dead_letter_is_taken_out_though_acks_never_cease(running, target):
    """A flush is always under way: the one that says that the message is done with is enough."""
    await running.assign("m", [0])
    await publish(running, "poison", *["good"] * 50)
    partitions, to = running.broker.partitions, running.broker.dead_letters.target
    left = list(range(1, 51))
    is_open = asyncio.Event()

    def ack_next():
        held = consumed(running)
        if left and held.outbox.letters:
            first = left.pop(0)
            token = (*held.partition, held.broker_epoch, held.epoch, held.book.number)
            frame = frames.Ack(first, *token, -1, [(first, first + 1)])
            running.broker.ack_handler.ack(held.flow, frame, lambda error: None)

    async def send(*args, send=to.send):
        await is_open.wait()
        is_new = await send(*args)
        ack_next()
        return is_new

    async def flush(*args, flush=partitions.flush, **kwargs):
        ack_next()
        await flush(*args, **kwargs)

    to.send = send
    await fail(running)
    await fail(running)
    flow = await open_flow(running)
    assert await flow.take(50) == ["good"] * 50
    partitions.flush = flush
    is_open.set()
    await eventually(lambda: not consumed(running).outbox.letters, "it is taken out")
    assert left, "not before the acks have ended"
