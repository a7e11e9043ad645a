"""Writes of a book that Redis carries out long after the broker gave them up, or during others."""

import asyncio

import pytest

from partq.core.dead_letters import Reason
from partq.errors import StoreUnavailableError
from tests.broker.conftest import Gate, eventually, partition_id

P = partition_id(0)
RESET = "/v1/queues/orders/groups/workers/reset"


class Late:
    """The next call of a script: its caller gets no answer, and its packets arrive when told."""

    def __init__(self, store, script):
        self._store, self._script = store, script
        self._run, self._call = store.run, None
        store.run = self._pass

    async def _pass(self, script, keys, args=(), **options):
        if script != self._script or self._call is not None:
            return await self._run(script, keys, args, **options)
        self._call = (script, keys, args)
        raise StoreUnavailableError("no answer", is_outcome_known=False)

    async def arrive(self):
        """Have Redis carry the call out."""
        assert self._call is not None, f"{self._script} was not called"
        return await self._run(*self._call)


async def record(running):
    return await running.broker.partitions.read_cursor(P, "workers")


def subscription(running):
    return running.broker.owned[P].groups["workers"]


async def settled(running):
    await running.broker.flusher.settle(subscription(running))
    return await record(running)


@pytest.mark.req("SOL-07")
async def test_a_late_flush_does_not_undo_a_newer_one(running, scene):
    late = Late(running.store, "flush_cursor")
    assert await scene.source.ack(scene.held, 1) == ""
    assert await scene.source.ack(scene.held, 3) == ""
    await late.arrive()
    assert (await record(running)).cursor == 3


async def test_a_late_flush_does_not_undo_a_reset(running, scene):
    late = Late(running.store, "flush_cursor")
    assert await scene.source.ack(scene.held, 3) == ""
    await reset(running, to="earliest")
    await late.arrive()
    stored = await record(running)
    assert (stored.cursor, stored.acked) == (0, [])


async def test_a_late_flush_of_the_source_does_not_undo_a_commit(running, scene):
    late = Late(running.store, "flush_cursor")
    assert await scene.source.ack(scene.held, 1) == ""
    assert await scene.source.ack(scene.held, 3) == ""
    handoff = await scene.paused()
    assert (await handoff.commit())["code"] == ""
    await late.arrive()
    stored = await record(running)
    assert (stored.member, stored.cursor) == ("n", 3)


async def test_a_late_bind_does_not_end_the_token_of_a_newer_one(running, scene, peers):
    await scene.source.close()
    await eventually(lambda: subscription(running).flow is None, "the flow is gone")
    late = Late(running.store, "bind_member")
    flow = await running.broker.binder.bind(
        group="workers", member="m", incarnation="j", address="127.0.0.1", kind="flow", credit=1
    )
    with pytest.raises(StoreUnavailableError):
        await running.broker.binder.take_up(flow)
    running.broker.binder.lose(flow)
    await peers.open_flow(running, "m", "k")
    await eventually(lambda: subscription(running).flow is not None, "bound")
    await late.arrive()
    stored = await record(running)
    assert (stored.epoch, stored.incarnation) == (subscription(running).epoch, "k")


async def reset(running, **body):
    status, answer = await running.call(
        "POST", RESET, json={"partitions": ["1.0"], "is_forced": True, **body}
    )
    assert status == 200
    assert "error" not in answer["partitions"]["1.0"], answer
    return answer["partitions"]["1.0"]


# ---- what changes a book by itself, while something else moves it -------------------------------


def expire_all(running):
    """Have the front of the partition outlive its time to live, as a look at it does."""
    subscribed = subscription(running)
    running.broker.expiry._expire(subscribed, subscribed.book.position + 3)


async def test_nothing_expires_while_a_reset_is_under_way(running, scene):
    await scene.source.close()
    await eventually(lambda: subscription(running).flow is None, "the flow is gone")
    held = HeldAnswer(running.broker.partitions, "reset")
    moving = asyncio.create_task(reset(running, to="latest"))
    await held.reached.wait()
    expire_all(running)
    held.opened.set()
    assert (await moving)["to"] == 3
    assert (await settled(running)).cursor == 3
    held = HeldAnswer(running.broker.partitions, "reset")
    moving = asyncio.create_task(reset(running, to="earliest"))
    await held.reached.wait()
    expire_all(running)
    subscription(running).is_dirty = True
    running.broker.flusher.notice(subscription(running))
    held.opened.set()
    assert (await moving)["to"] == 0
    assert (await settled(running)).cursor == 0


async def test_nothing_expires_while_a_commit_is_under_way(running, scene):
    await scene.source.close()
    await eventually(lambda: subscription(running).flow is None, "the flow is gone")
    handoff = await scene.handoff()
    gate = Gate(running.broker.partitions, "commit")
    committing = asyncio.create_task(handoff.commit(cause="source_unbound"))
    await gate.reached.wait()
    expire_all(running)
    assert subscription(running).book.cursor == 0, "the commit stores the book as it is"
    gate.opened.set()
    assert (await committing)["code"] == ""
    assert subscription(running).book.cursor == 0
    expire_all(running)
    assert (await settled(running)).cursor == 3


class HeldAnswer:
    """The next call of a method goes through at once, and is answered when the test says so."""

    def __init__(self, target, name):
        self._target, self._name, self._call = target, name, getattr(target, name)
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        setattr(target, name, self._pass)

    async def _pass(self, *args, **kwargs):
        setattr(self._target, self._name, self._call)
        answer = await self._call(*args, **kwargs)
        self.reached.set()
        await self.opened.wait()
        return answer


@pytest.mark.parametrize("name", ["commit", "reset"])
async def test_no_dead_letter_is_moved_while_a_commit_or_a_reset_is_under_way(running, scene, name):
    await scene.source.close()
    await eventually(lambda: subscription(running).flow is None, "the flow is gone")
    office, moved = running.broker.dead_letters, []
    add = office._outboxes.add

    async def added(*args, **kwargs):
        moved.append(held.opened.is_set())
        return await add(*args, **kwargs)

    office._outboxes.add = added
    held = HeldAnswer(running.broker.partitions, name)
    if name == "commit":
        handoff = await scene.handoff()
        moving = asyncio.create_task(handoff.commit(cause="source_unbound"))
    else:
        moving = asyncio.create_task(reset(running, to="earliest"))
    await held.reached.wait()
    office.doom(subscription(running), [1], Reason.EXPIRED)
    await eventually(lambda: moved or subscription(running).outbox.trouble, "it was tried")
    assert not moved
    held.opened.set()
    await moving
    if name == "commit":
        await eventually(lambda: moved, "it is moved afterwards")
        return
    await eventually(lambda: not subscription(running).outbox.is_working, "the task has ended")
    assert not moved, "what was doomed before the reset is forgotten"
    assert not subscription(running).outbox.doomed
