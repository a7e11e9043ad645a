"""Dead letters of a broker whose Redis has a replica that may take over with less."""

import os
import signal
from contextlib import contextmanager

import pytest

from partq.store.keys import Keys
from partq.testing import eventually
from tests.broker.conftest import UID, Gate
from tests.broker.dead_letters.test_dead_letters import (  # noqa: F401  # fixtures
    P,
    consumed,
    fail,
    publish,
    resources,
)
from tests.failover import FailoverPair


@pytest.fixture
async def redis_server(tmp_path_factory):
    """The address of the pair stands for the session's server."""
    async with FailoverPair().started(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@contextmanager
def frozen(server):
    """Have a server take nothing; its master continues counting it as one of its replicas."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def test_a_dead_letter_is_sent_once_a_replica_has_its_number(
    redis_server, running, store, key_prefix
):
    """A failover that forgets the number draws it again, and the target takes another message
    under it for a repeat. That holds for a broker that finds the letter in the record, too.
    """
    await running.assign("m", [0])
    await publish(running, "poison")
    key = Keys(key_prefix, "default", "orders", UID).cursor(P, "workers")
    sending = Gate(running.broker.dead_letters.target, "send")

    async def is_stored():
        return await store.read("HGET", key, "outbox")

    def is_unconfirmed():
        trouble = consumed(running).outbox.trouble if P in running.broker.owned else None
        return trouble is not None and "no replica has it" in trouble.message

    await fail(running)
    with frozen(redis_server.replica):
        await fail(running)
        await eventually(is_stored, "the master has the letter")
        await eventually(lambda: sending.reached.is_set() or is_unconfirmed(), "it is moved")
        assert not sending.reached.is_set()
        first = consumed(running)
        running.broker.ownership.drop_all()
        await eventually(
            lambda: P in running.broker.owned and consumed(running).outbox.letters,
            "the record is read again",
        )
        assert consumed(running) is not first
        await eventually(lambda: sending.reached.is_set() or is_unconfirmed(), "it is found")
        assert not sending.reached.is_set()
    await eventually(sending.reached.is_set, "it is sent")
    assert not consumed(running).outbox.is_in_doubt
