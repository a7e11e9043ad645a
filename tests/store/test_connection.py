"""The store's connections: shared round trips, lost answers, restarts, a full Redis."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from partq.core.group.records import HandoffRecord
from partq.core.model import BrokerId, PartitionId
from partq.errors import QuotaExceededError, SettingsError, StoreUnavailableError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.lua import FULL_MARK, load_scripts
from partq.store.records.configs import Configs
from partq.store.records.handoffs import Handoffs
from partq.store.records.layout.layouts import Layouts
from partq.store.records.leases import Leases
from partq.store.records.log import AppendBatch, Log
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions
from partq.store.records.pins import Pins
from partq.store.server import Channel
from partq.testing import eventually
from tests.store.answering import until_answered
from tests.store.record import born, write

SCRIPTS = Path(load_scripts.__code__.co_filename).parent / "scripts"


def give_up_after(store, timeout_s):
    """Set the time that an answer may take: short only while the server is known to be silent."""
    (node,) = store.nodes()
    node._timeout_s = timeout_s
    for connection in node._connections.values():
        connection.timeout_s = timeout_s


# ---- opening ------------------------------------------------------------------------------------


async def test_info(store):
    info = await store.info()
    assert len(info.run_id) == 40
    assert info.version[0] in "678"
    assert (info.appendonly, info.appendfsync) == (True, "always")
    assert (info.eviction_policy, info.maxmemory_bytes) == ("noeviction", 0)
    assert info.used_memory_bytes > 0
    assert not info.is_nearly_full


@pytest.mark.parametrize("url", ["http://127.0.0.1", "redis://:secret@127.0.0.1:x/0"])
async def test_a_bad_url_is_a_setting_and_does_not_spread_the_password(url):
    with pytest.raises(SettingsError) as caught:
        await Store.open(url, timeout_s=60.0)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "end",
    [
        "/0?ssl_ca_certs=/etc/passwd",
        "/0?connection_class=x",
        "/?path=/tmp/socket",
        "?password=hunter2",
        "?db=1&db=2",
        "?db=one",
        "?ssl_cert_reqs=maybe",
        "?max_connections=1",
        "?hunter2=1",
        "?db",
        "/hunter2",
        "/0#hunter2",
    ],
)
async def test_a_url_asks_for_nothing_but_what_is_known(own_server, end):
    """Parameters are no arguments of the client library; what was got is not repeated."""
    with pytest.raises(SettingsError) as caught:
        await Store.open(own_server.url.removesuffix("/0") + end)
    assert "the URL of Redis" in caught.value.message
    assert "expected" in caught.value.message
    assert "/etc" not in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("end", ["", "/", "/0", "/1?db=0", "?db=0&ssl_check_hostname=true"])
async def test_a_url_with_what_is_known_opens(own_server, end):
    if "ssl" in end:
        end = end.partition("&")[0]
    await (await Store.open(own_server.url.removesuffix("/0") + end)).close()


async def test_nobody_listens(own_server):
    own_server.stop()
    with pytest.raises(StoreUnavailableError) as caught:
        await Store.open(own_server.url, timeout_s=60.0)
    assert caught.value.is_outcome_known


async def test_a_server_that_evicts_messages_is_refused(own_server, own_store):
    await own_store.read("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(SettingsError, match="noeviction"):
        await Store.open(own_server.url, timeout_s=60.0)


async def test_a_server_that_forbids_config_is_taken(own_server, own_store):
    await own_store.read("ACL", "SETUSER", "default", "-config")
    store = await Store.open(own_server.url, timeout_s=60.0)
    assert (await store.info()).appendfsync == ""
    await store.close()


async def handoffs_of(store, keys):
    """Return the handoffs of a queue whose group `g` is on record."""
    await Configs(store, keys).write_group("g", {}, resource_generation=1)
    return Handoffs(store, keys)


# ---- calls --------------------------------------------------------------------------------------


async def test_calls_that_wait_share_a_round_trip(store, keys):
    handoffs = await handoffs_of(store, keys)
    await handoffs.draw_attempt("g")
    before = await commands_and_reads(store)
    drawn = await asyncio.gather(*[handoffs.draw_attempt("g") for _ in range(200)])
    after = await commands_and_reads(store)
    assert drawn == sorted(set(drawn))
    assert after[0] - before[0] >= 200
    if before[1] is not None:  # Redis 6.2 does not count them
        assert after[1] - before[1] < 100


async def commands_and_reads(store):
    """How many commands the servers have seen, and how often they read from a socket."""
    commands, reads = 0, 0
    for node in store.nodes():
        text = (await node.read(["INFO", "stats"])).decode()
        stats = dict(line.split(":") for line in text.splitlines() if ":" in line)
        commands += int(stats["total_commands_processed"])
        counted = stats.get("total_reads_processed")
        reads = None if counted is None or reads is None else reads + int(counted)
    return commands, reads


async def test_forgotten_scripts_are_loaded_again_and_run_once(store, keys):
    partitions, handoffs = Partitions(store, keys), await handoffs_of(store, keys)
    ids = [PartitionId(1, index) for index in range(20)]
    await asyncio.gather(*[partitions.create(partition) for partition in ids])
    for node in store.nodes():
        await node.read(["SCRIPT", "FLUSH"])
    claims = await asyncio.gather(
        *[partitions.claim(partition, BrokerId("b"), "i", expected=0) for partition in ids],
        *[handoffs.draw_attempt("g") for _ in range(3)],
    )
    assert len(claims) == 23


async def test_an_error_of_one_call_is_not_its_neighbours(store, keys):
    partitions, partition = Partitions(store, keys), PartitionId(1, 0)
    await store.read("SET", keys.meta(PartitionId(1, 1)), "not a hash")
    outcomes = await asyncio.gather(
        partitions.create(partition),
        store.run("yield_partition", [keys.meta(PartitionId(1, 1))], [1, ""]),
        partitions.create(PartitionId(1, 2)),
        return_exceptions=True,
    )
    assert (outcomes[0], outcomes[2]) == (None, None)
    assert isinstance(outcomes[1], StoreUnavailableError)
    assert not outcomes[1].is_outcome_known


async def test_a_call_that_was_given_up_disturbs_no_other(store, keys):
    handoffs = await handoffs_of(store, keys)
    given_up = [asyncio.create_task(handoffs.draw_attempt("g")) for _ in range(10)]
    await asyncio.sleep(0)
    for task in given_up[::2]:
        task.cancel()
    drawn = [await task for task in given_up[1::2]]
    assert drawn == sorted(set(drawn))
    assert await handoffs.draw_attempt("g") > drawn[-1]


async def test_whoever_closes_can_be_cancelled_meanwhile(redis_server, key_prefix):
    """Else a task that closes its store on the way would live on."""
    store = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=60.0)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await store.close()


async def test_closing_fails_the_calls_without_an_answer(redis_server, key_prefix):
    store = await Store.open(redis_server.url, prefix=key_prefix, timeout_s=60.0)
    waiting = asyncio.create_task(
        store.read(
            "XREAD", "BLOCK", 60_000, "STREAMS", "none", "$", channel=Channel.EVENTS, wait_s=60
        )
    )
    await store.read("PING")
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await waiting
    with pytest.raises(StoreUnavailableError) as caught:
        await store.read("PING")
    assert caught.value.is_outcome_known


async def test_no_answer_in_time(own_server, key_prefix):
    store = await Store.open(own_server.url, prefix=key_prefix, timeout_s=60.0)
    await store.run("write_fields", ["k"], [1, "f", "v"])
    os.kill(own_server.pid, signal.SIGSTOP)
    give_up_after(store, 0.2)
    with pytest.raises(StoreUnavailableError) as caught:
        await store.run("write_fields", ["k"], [1, "f", "v"])
    assert not caught.value.is_outcome_known
    with pytest.raises(StoreUnavailableError) as caught:
        await store.run("write_fields", ["k"], [1, "f", "v"])
    assert caught.value.is_outcome_known  # it was never sent: no connection
    os.kill(own_server.pid, signal.SIGCONT)
    give_up_after(store, 60.0)
    await until_answered(lambda: store.read("PING"))
    assert store.run_epoch == 0
    await store.close()


async def test_what_was_not_sent_when_a_call_was_given_up_is_never_sent(own_server, key_prefix):
    """A connection that is closed gracefully continues sending: the call is carried out later."""
    store = await Store.open(own_server.url, prefix=key_prefix, timeout_s=60.0)
    await store.run("write_fields", ["k"], [1, "f", "v"])
    os.kill(own_server.pid, signal.SIGSTOP)
    give_up_after(store, 0.5)
    larger_than_the_buffers = b"x" * 100_000_000
    with pytest.raises(StoreUnavailableError) as caught:
        await store.run("write_fields", ["k"], [1, "late", larger_than_the_buffers])
    assert not caught.value.is_outcome_known
    os.kill(own_server.pid, signal.SIGCONT)
    await store.close()
    watcher = await Store.open(own_server.url, timeout_s=60.0)

    async def is_alone():
        return len((await watcher.read("CLIENT", "LIST")).splitlines()) == 1

    await eventually(is_alone, "the server has seen the end of the connections")
    assert await watcher.read("HGETALL", "k") == [b"f", b"v"]
    await watcher.close()


# ---- restarts -----------------------------------------------------------------------------------


async def test_a_restart_is_noticed_before_anything_is_sent(own_server, own_store, tmp_path):
    keys = Keys(own_store.prefix, "ns", "q", "uid")
    handoffs = await handoffs_of(own_store, keys)
    drawn = await handoffs.draw_attempt("g")
    seen = []
    own_store.on_restart.append(lambda is_lost: seen.append((own_store.run_epoch, is_lost("k"))))
    own_server.kill()
    with pytest.raises(StoreUnavailableError):
        await handoffs.draw_attempt("g")
    with pytest.raises(StoreUnavailableError) as caught:
        await handoffs.draw_attempt("g")
    assert caught.value.is_outcome_known  # the connection was refused
    own_server.start(tmp_path)
    with pytest.raises(StoreUnavailableError, match="restarted") as caught:
        await handoffs.draw_attempt("g")
    assert caught.value.is_outcome_known
    assert own_store.run_epoch == 1
    assert seen == [(1, True)]
    assert await handoffs.draw_attempt("g") > drawn
    await own_store.read("PING")  # another channel: the same restart is not noticed twice
    assert seen == [(1, True)]


async def test_a_lost_connection_to_the_same_run_is_no_restart(own_server, own_store):
    handoffs = await handoffs_of(own_store, Keys(own_store.prefix, "ns", "q", "uid"))
    drawn = await handoffs.draw_attempt("g")
    other = await Store.open(own_server.url, timeout_s=60.0)
    await other.read("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert await until_answered(lambda: handoffs.draw_attempt("g")) > drawn
    assert own_store.run_epoch == 0
    await other.close()


@pytest.mark.req("PUL-18", "PUL-91")
async def test_what_was_confirmed_survives_kill_9(own_server, own_store, tmp_path):
    partitions = Partitions(own_store, Keys(own_store.prefix, "ns", "q", "uid"))
    partition = PartitionId(1, 0)
    await partitions.create(partition)
    claim = await partitions.claim(partition, BrokerId("b"), "i", expected=0)
    own_server.kill()
    own_server.start(tmp_path)
    await until_answered(lambda: own_store.read("PING"))
    assert (await partitions.read(partition)).broker_epoch == claim.broker_epoch


# ---- a full Redis -------------------------------------------------------------------------------

GROWS = {
    "add_event", "adopt_ids", "append_batches", "create_queue", "register_life",
}  # fmt: skip
"""Scripts that a full Redis refuses: they make something new."""
READS = {
    "find_bytes", "find_time", "read_due", "read_positions", "read_scheduled", "read_times",
    "read_waiting",
}  # fmt: skip
"""Scripts that write nothing."""


def test_every_script_says_whether_it_passes_when_redis_is_full():
    marked = {file.stem for file in SCRIPTS.iterdir() if FULL_MARK in file.read_text()}
    everything = {file.stem for file in SCRIPTS.iterdir()}
    assert marked == everything - GROWS - READS


async def test_a_full_redis_refuses_messages_and_serves_the_rest(own_server, own_store):
    keys = Keys(own_store.prefix, "ns", "q", "uid")
    partitions, log = Partitions(own_store, keys), Log(own_store, keys)
    pins = Pins(own_store, keys)
    partition = PartitionId(1, 0)
    await partitions.create(partition)
    await partitions.add_group(partition, "g", start="Earliest")
    epoch = (await partitions.claim(partition, BrokerId("b"), "i", expected=0)).broker_epoch
    call = {"broker_epoch": epoch, "room_bytes": None}
    batch = AppendBatch("p", 0, 10, b"x" * 100)
    await log.append(partition, number=0, expected=0, batches=[batch], **call)

    handoffs = await handoffs_of(own_store, keys)
    await own_store.read("CONFIG", "SET", "maxmemory", 1)
    info = await own_store.info()
    assert info.is_nearly_full
    assert info.is_scarce
    with pytest.raises(QuotaExceededError):
        await log.append(partition, number=1, expected=10, batches=[batch], **call)
    with pytest.raises(QuotaExceededError):
        await Layouts(own_store, keys).create_queue({1: 2})

    members, leases = Members(own_store, keys), Leases(own_store, keys)
    attempt = await handoffs.draw_attempt("g")
    await handoffs.record("g", partition, HandoffRecord(None, "m", attempt, "Committing", 0))
    state = {"acked": [], "redeliveries": {}}
    began = await born(partitions, partition, "g")
    await partitions.commit(
        partition, "g", **write(began), broker_epoch=epoch, source=None, epoch=began,
        attempt=attempt, target="m", cause=0, cursor=0, **state,
    )  # fmt: skip
    await partitions.bind(
        partition, "g", **write(began), member="m", incarnation="x", broker_epoch=epoch
    )
    held = (await partitions.read_cursor(partition, "g")).epoch
    await partitions.reset(partition, "g", **write(began), broker_epoch=epoch, epoch=held, offset=5)
    assert await pins.set(partition, "reader", 7, broker_epoch=epoch) == (7, 0)
    assert (await log.find_time(partition, 0), (await log.read_times(partition, [10]))[1]) == (
        0,
        [None],
    )
    await pins.remove(partition, "reader", broker_epoch=epoch)
    await partitions.flush(partition, "g", **write(began), broker_epoch=epoch, cursor=10, **state)
    assert (await log.trim(partition, broker_epoch=epoch)).first == 10
    await leases.renew("b", "i", 3.0, "u")
    await leases.record_owner(partition, BrokerId("b"))
    await leases.release("b", "i")
    await members.mark_lost("g", "m")
    await Configs(own_store, keys).write_queue({"groups": ["g"]}, resource_generation=1)
    await partitions.yield_(partition, broker_epoch=epoch, successor=None)
    expected = (await partitions.read(partition)).broker_epoch
    await partitions.claim(partition, BrokerId("b"), "i", expected=expected)
    await partitions.remove_group(partition, "g", born=began)
