"""Where the brokers of another queue are found, when it takes dead letters."""

import pytest
from aiohttp import web

from partq.broker.dead_letters.remote_queue import RemoteQueues
from partq.broker.peers.peer_client import PeerClient
from partq.core.model import PartitionId
from partq.embedded.provision import provision
from partq.errors import OutcomeUnknownError, StaleGenerationError, UnavailableError
from partq.store.keys import Keys
from partq.store.records.leases import Leases
from tests.broker.conftest import UID
from tests.broker.dead_letters.test_dead_letters import TARGET, TARGET_UID, resources

__all__ = ["resources"]
STORED = '{"is_stored_before": false, "offset": 0}'
STALE = '{"error": {"code": "stale_generation", "message": "the slot has moved"}}'
REFUSED = '{"error": {"code": "unavailable", "message": "no longer mine"}}'


class Taker:
    """A server in the place of a broker of the dead-letter queue."""

    def __init__(self):
        self.answer = STORED
        self.answers = []
        """Of the next calls, before `answer`."""
        self.calls = 0

    async def take(self, _):
        self.calls += 1
        answer = self.answers.pop(0) if self.answers else self.answer
        return web.Response(text=answer, content_type="application/json")


@pytest.fixture
async def takers(store, key_prefix, resources):
    """Two brokers of the dead-letter queue, the first of which owns its partitions."""
    await provision(store, resources.queues[1], resources, uid=TARGET_UID)
    leases = Leases(store, Keys(key_prefix, "default", TARGET, TARGET_UID))
    await leases.peer_token("peer")
    takers, runners = {}, []
    for name in ("a", "b"):
        takers[name] = Taker()
        app = web.Application()
        app.router.add_post("/{path:.*}", takers[name].take)
        runners.append(web.AppRunner(app))
        await runners[-1].setup()
        await web.TCPSite(runners[-1], "127.0.0.1", 0).start()
        await leases.renew(name, "x", 3600.0, f"http://127.0.0.1:{runners[-1].addresses[0][1]}")
    await give(leases, "a")
    yield leases, takers["a"], takers["b"]
    for runner in runners:
        await runner.cleanup()


async def give(leases, name):
    for index in range(2):
        await leases.record_owner(PartitionId(1, index), name)


@pytest.mark.parametrize(
    ("answer", "error"),
    [(REFUSED, UnavailableError), ("<html>", OutcomeUnknownError)],
    ids=["refused", "no answer"],
)
async def test_after_a_failure_the_owner_is_looked_up(store, key_prefix, takers, answer, error):
    """Not before: a dead letter reads nothing of the store that the last one has read."""
    leases, before, after = takers
    async with PeerClient() as peers:
        targets = RemoteQueues(store, Keys(key_prefix, "default", "orders", UID), peers)
        assert await targets.send(TARGET, 0, b"x", "p", 0)
        await give(leases, "b")
        assert await targets.send(TARGET, 0, b"x", "p", 1)
        assert (before.calls, after.calls) == (2, 0)
        before.answer = answer
        with pytest.raises(error):
            await targets.send(TARGET, 0, b"x", "p", 2)
        assert await targets.send(TARGET, 0, b"x", "p", 2)
    assert (before.calls, after.calls) == (3, 1)


async def test_a_letter_follows_its_slot_to_another_partition(store, key_prefix, takers):
    """The layout is read again at once: nothing is wrong with the queue."""
    _, before, _ = takers
    async with PeerClient() as peers:
        targets = RemoteQueues(store, Keys(key_prefix, "default", "orders", UID), peers)
        assert await targets.send(TARGET, 0, b"x", "p", 0)
        before.answers = [STALE, STORED]
        assert await targets.send(TARGET, 0, b"x", "p", 1)
        assert before.calls == 3
        before.answers = [STALE, STALE]
        with pytest.raises(StaleGenerationError):
            await targets.send(TARGET, 0, b"x", "p", 2)
