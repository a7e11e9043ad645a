"""A Redis that was made a replica of another one, and continues answering who is connected."""

import pytest

from partq.core.model import BrokerId
from partq.errors import StoreUnavailableError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.leases import Leases
from partq.store.server import Channel
from tests.failover import FailoverPair


@pytest.fixture
async def pair(redis_program, tmp_path):
    async with FailoverPair(redis_program).started(tmp_path) as pair:
        yield pair


@pytest.fixture
async def pair_store(pair, key_prefix):
    store = await Store.open(pair.url, prefix=key_prefix, timeout_s=60.0)
    yield store
    await store.close()


async def run_id(store, channel):
    """Return which run of a server a channel leads to; that of events blocks for a moment."""
    if channel is Channel.EVENTS:
        await store.read("XREAD", "BLOCK", 1, "STREAMS", "none", "$", channel=channel, wait_s=1)
    text = (await store.read("INFO", "server", channel=channel)).decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)["run_id"]


async def test_a_demoted_server_is_left_at_once_on_all_channels(pair, pair_store):
    """Nobody closes the connections to it, and it refuses every script for ever."""
    leases = Leases(pair_store, Keys(pair_store.prefix, "ns", "q", "uid"))
    await leases.renew(BrokerId("b"), "i", 3.0, "u")
    before = {channel: await run_id(pair_store, channel) for channel in Channel}
    restarts = []
    pair_store.on_restart.append(lambda is_lost: restarts.append(is_lost("k")))

    await pair.switch_over()
    with pytest.raises(StoreUnavailableError, match="read only replica") as caught:
        await leases.renew(BrokerId("b"), "i", 3.0, "u")
    assert caught.value.is_outcome_known, "a replica has written nothing"
    # The next call of any channel meets the server that is the master now, whoever is the first.
    with pytest.raises(StoreUnavailableError, match="restarted or replaced"):
        await pair_store.read("PING")
    after = {channel: await run_id(pair_store, channel) for channel in Channel}
    assert len(set(after.values())) == 1
    assert after[Channel.BULK] not in before.values()
    assert (pair_store.run_epoch, restarts) == (1, [True])
    await leases.renew(BrokerId("b"), "i", 3.0, "u")


async def test_an_address_that_leads_to_a_replica_is_asked_again(pair, pair_store):
    """What it answers to a read may be old, and every write is refused."""
    leases = Leases(pair_store, Keys(pair_store.prefix, "ns", "q", "uid"))
    await leases.renew(BrokerId("b"), "i", 3.0, "u")
    await pair.switch_over(follows=False)
    with pytest.raises(StoreUnavailableError, match="read only replica"):
        await leases.renew(BrokerId("b"), "i", 3.0, "u")
    with pytest.raises(StoreUnavailableError, match="is a replica") as caught:
        await pair_store.read("PING")
    assert caught.value.is_outcome_known
    with pytest.raises(StoreUnavailableError, match="is a replica"):
        await Store.open(pair.url, timeout_s=60.0)
    pair.follow()
    with pytest.raises(StoreUnavailableError, match="restarted or replaced"):
        await pair_store.read("PING")
    await leases.renew(BrokerId("b"), "i", 3.0, "u")
    assert await run_id(pair_store, Channel.CONTROL) == await run_id(pair_store, Channel.BULK)
