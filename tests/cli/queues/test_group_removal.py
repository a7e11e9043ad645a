"""`partq groups remove` beside real brokers, Redis and coordinator."""

import asyncio
import json

from partq import Consumer, Message, Producer
from partq.cli.hosting.block_watch import BlockWatch
from partq.embedded.data_dir import read_state
from partq.embedded.provision import provision
from partq.resources import group_document, queue_document, resources_of
from partq.store.connection import Store
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares

COUNT = 20
WAIT_S = 60.0


def queue_in(directory, *groups, brokers=1):
    return LocalBroker(
        groups=groups, broker_count=brokers, lease_ttl_s=10.0, data_dir=directory / "data"
    )


async def publish(broker):
    token = broker.tokens.produce
    async with Producer(broker.url, queue="orders", token=token) as producer:
        # As dead letters of another queue: what has not their header is not dropped.
        headers = {"partq-dead-letter-queue": "source"}
        messages = [Message(f"key-{number}", b"v", headers) for number in range(COUNT)]
        await (await producer.send_many(messages))


async def groups_of(partq):
    status, out, err = await partq("groups", "--json")
    assert status == 0, err
    return [each["group"] for each in json.loads(out)]


async def test_a_group_is_removed_and_the_queue_is_free_of_it(tmp_path, partq):
    async with queue_in(tmp_path, "workers", "audit", brokers=2) as broker:
        await even_shares(broker.queue)
        await publish(broker)
        await it_is_refused(broker, partq)
        await it_is_shown(partq)
        await it_is_removed(partq)
        await so_is_the_last_one(partq)


async def it_is_refused(broker, partq):
    status, _, err = await partq("groups", "remove", "nobody", "--yes")
    assert (status, "queue orders has audit, workers; nothing of this" in err) == (1, True), err
    status, _, err = await partq("groups", "remove", "audit")
    assert (status, "cannot ask: no terminal; give --yes, or --dry-run" in err) == (
        2,
        True,
    ), err
    assert (await partq("groups", "remove", "audit", "--json"))[0] == 2
    status, _, err = await partq("groups", "--queue", "orders", "remove", "audit", "--yes")
    assert (status, "expected it behind: partq groups remove --queue" in err) == (2, True), err
    async with Consumer(
        broker.url, queue="orders", group="audit", token=broker.tokens.consume, member="reader",
        handle_signals=False,
    ) as consumer:  # fmt: skip
        await anext(consumer)
        status, _, err = await partq("groups", "remove", "audit", "--yes")
    assert (status, "member reader is connected; stop it first" in err) == (1, True), err
    assert await groups_of(partq) == ["audit", "workers"]


async def it_is_shown(partq):
    status, out, _ = await partq("groups", "remove", "audit", "--dry-run")
    assert status == 0
    assert out == "group audit of orders: in 4 partitions, 20 messages not acknowledged\n"
    _, out, _ = await partq("groups", "remove", "audit", "--dry-run", "--json")
    shown = {"is_removed": False, "partitions": 4, "lag": 20, "dead_letters": 0}
    assert json.loads(out) == {"group": "audit", **shown}
    assert await groups_of(partq) == ["audit", "workers"]


async def it_is_removed(partq):
    """The member that has just gone is not connected: nobody waits for it."""
    status, out, err = await partq("groups", "remove", "audit", "--yes")
    assert (status, out.splitlines()[1:]) == (0, ["group audit is removed"]), err
    assert err.startswith("if the FILE of `partq dev up` has the ConsumerGroup audit, take it out")
    assert await groups_of(partq) == ["workers"]
    assert (await partq("groups", "remove", "audit", "--yes"))[0] == 1


async def so_is_the_last_one(partq):
    status, _, err = await partq("dead-letters", "drop", "--yes")
    assert (status, "`partq groups remove` removes it" in err) == (1, True), err
    status, out, err = await partq("groups", "remove", "workers", "--yes", "--json")
    told = {"is_removed": True, "partitions": 4, "lag": 20, "dead_letters": 0}
    assert (status, json.loads(out)) == (0, {"group": "workers", **told}), err
    assert "has no group now: it keeps what is stored" in err
    assert await groups_of(partq) == []
    # At once: the command ends when every broker has forgotten the group.
    status, out, err = await partq("dead-letters", "drop", "--yes")
    assert (status, out) == (0, "20 dead letters are dropped\n"), err


async def test_the_group_that_was_made_again_while_it_asked_stays(tmp_path, partq, monkeypatch):
    """Another administrator has removed the one that was shown, and a start has made a new one."""
    async with queue_in(tmp_path, "workers", "audit") as broker:
        await publish(broker)

        async def make_again():
            assert (await partq("groups", "remove", "audit", "--yes"))[0] == 0
            resources = resources_of(
                queue_document("orders", partitions=4), group_document("audit", "orders")
            )
            store = await Store.open(broker.runtime.redis_url)
            try:
                uid = broker.queue.uid
                await provision(store, resources.queues[0], resources, uid=uid)
            finally:
                await store.close()
            return True

        loop = asyncio.get_running_loop()

        def may(question, *, as_json):
            return asyncio.run_coroutine_threadsafe(make_again(), loop).result(WAIT_S)

        monkeypatch.setattr("partq.cli.queues.group_removal._may", may)
        status, out, err = await partq("groups", "remove", "audit")
        assert (status, out.splitlines()[1:]) == (0, ["group audit is removed"]), err

        async def is_there():
            return await groups_of(partq) == ["audit", "workers"]

        await eventually(is_there, "brokers know the new group")


async def test_without_a_coordinator_it_says_who_is_missing_and_a_repeat_ends_it(tmp_path, partq):
    async with queue_in(tmp_path, "workers") as broker:
        await publish(broker)
        (coordinator,) = broker.runtime.coordinators
        await coordinator.stop()
        status, _, err = await partq("groups", "remove", "workers", "--yes", "--wait", "0")
        assert (status, "4 partitions have it still; the queue's coordinator" in err) == (1, True)
        assert await groups_of(partq) == []
        await coordinator.start()
        status, out, err = await partq("groups", "remove", "workers", "--yes")
        # The coordinator may have been faster.
        assert (status, out[-8:]) == (0, "removed\n") or "nothing of this one" in err
        status, _, err = await partq("groups", "remove", "workers", "--yes")
        assert (status, "nothing of this one" in err) == (1, True), err


async def test_the_next_start_makes_what_its_file_has_and_keeps_nothing_else(tmp_path, partq):
    async with queue_in(tmp_path, "workers", "audit") as broker:
        await publish(broker)
        watch = asyncio.create_task(BlockWatch().run(broker.runtime))
        try:
            for group in ("workers", "audit"):
                status, _, err = await partq("groups", "remove", group, "--yes")
                assert status == 0, err
            await eventually(
                lambda: not read_state(tmp_path / "data")[0].groups,
                "the commands learn of it",
            )
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
    async with queue_in(tmp_path, "audit") as broker:
        assert broker.queue.groups == ("audit",)
        status, out, _ = await partq("groups", "--json")
        assert [(each["group"], each["lag"]) for each in json.loads(out)] == [("audit", COUNT)]
