"""Writes of a book that Redis carries out long after the broker gave them up, or during others."""

import asyncio

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.errors import StoreUnavailableError, UnavailableError
from partq.testing import eventually
from tests.broker.conftest import Gate, partition_id

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


def consumed(running):
    return running.broker.owned[P].groups["workers"]


async def settled(running):
    await running.broker.cursor_writer.settle(consumed(running))
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


async def test_a_flush_that_comes_between_a_reset_and_its_answer_changes_nothing(running, scene):
    """The broker has not taken note of the reset yet, and Redis has carried it out."""
    late, run = Late(running.store, "flush_cursor"), running.store.run

    async def answered(script, keys, args=(), **options):
        answer = await run(script, keys, args, **options)
        if script == "reset_cursor":
            assert await late.arrive() == -3
        return answer

    assert await scene.source.ack(scene.held, 3) == ""
    running.store.run = answered
    await reset(running, to="earliest")
    stored = await settled(running)
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
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    late = Late(running.store, "bind_member")
    flow = await running.broker.flow_registry.open(
        group="workers", member="m", incarnation="j", address="127.0.0.1", kind="flow", credit=1
    )
    with pytest.raises(StoreUnavailableError):
        await running.broker.flow_registry.bind_all(flow)
    running.broker.flow_registry.lose(flow)
    await peers.open_flow(running, "m", "k")
    await eventually(lambda: consumed(running).flow is not None, "bound")
    await late.arrive()
    stored = await record(running)
    assert (stored.epoch, stored.incarnation) == (consumed(running).epoch, "k")


async def reset(running, **body):
    status, answer = await running.call(
        "POST", RESET, json={"partitions": ["1.0"], "is_forced": True, **body}
    )
    assert status == 200
    assert "error" not in answer["partitions"]["1.0"], answer
    return answer["partitions"]["1.0"]


# ---- what changes a book by itself, while something else moves it -------------------------------


def expire(running, stop):
    """Have what lies below an offset outlive its time to live, as a look at it does."""
    running.broker.expiry._expire(consumed(running), stop)


@pytest.mark.parametrize(("to", "stop", "cursor"), [("latest", 2, 3), ("earliest", 3, 0)])
async def test_nothing_expires_while_a_reset_is_under_way(running, scene, to, stop, cursor):
    """Else the flush of what has expired writes the old book over the new one."""
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    held = HeldAnswer(running.broker.partitions, "reset")
    moving = asyncio.create_task(reset(running, to=to))
    await held.reached.wait()
    expire(running, stop)
    await settled(running)
    held.opened.set()
    assert (await moving)["to"] == cursor
    assert (await settled(running)).cursor == cursor
    assert consumed(running).book.cursor == cursor


async def test_what_expires_during_a_reset_leaves_the_book_as_it_is(running, scene):
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    held = consumed(running)
    held.is_resetting = True
    expire(running, 3)
    found = held.book.cursor, held.book.acked.pairs()
    held.is_resetting = False
    assert found == (0, [])
    expire(running, 3)
    assert (await settled(running)).cursor == 3


async def test_what_is_dirty_during_a_reset_is_flushed_after_it(running, scene):
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    held = HeldAnswer(running.broker.partitions, "reset")
    moving = asyncio.create_task(reset(running, to="latest"))
    await held.reached.wait()
    running.broker.cursor_writer.notice(consumed(running))
    held.opened.set()
    assert (await moving)["to"] == 3
    assert (await settled(running)).cursor == 3


async def test_nothing_expires_while_a_commit_is_under_way(running, scene):
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    handoff = await scene.handoff()
    gate = Gate(running.broker.partitions, "commit")
    committing = asyncio.create_task(handoff.commit(cause="source_unbound"))
    await gate.reached.wait()
    expire(running, 3)
    assert consumed(running).book.cursor == 0, "the commit stores the book as it is"
    gate.opened.set()
    assert (await committing)["code"] == ""
    assert consumed(running).book.cursor == 0
    expire(running, 3)
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
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    letter_forwarder, moved = running.broker.dead_letters, []
    add = letter_forwarder._outboxes.add

    async def added(*args, **kwargs):
        moved.append(held.opened.is_set())
        return await add(*args, **kwargs)

    letter_forwarder._outboxes.add = added
    held = HeldAnswer(running.broker.partitions, name)
    if name == "commit":
        handoff = await scene.handoff()
        moving = asyncio.create_task(handoff.commit(cause="source_unbound"))
    else:
        moving = asyncio.create_task(reset(running, to="earliest"))
    await held.reached.wait()
    letter_forwarder.schedule(consumed(running), [1], DeadLetterReason.EXPIRED)
    await eventually(lambda: moved or consumed(running).outbox.trouble, "it was tried")
    assert not moved
    held.opened.set()
    await moving
    if name == "commit":
        await eventually(lambda: moved, "it is moved afterwards")
        return
    await eventually(lambda: not consumed(running).outbox.is_working, "the task has ended")
    assert not moved, "what was scheduled before the reset is forgotten"
    assert not consumed(running).outbox.scheduled


async def test_a_move_of_dead_letters_is_refused_during_a_reset(running, scene):
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    held, letter_forwarder = consumed(running), running.broker.dead_letters
    held.outbox.scheduled[1] = DeadLetterReason.EXPIRED
    held.is_resetting = True
    try:
        with pytest.raises(UnavailableError, match="a commit or a reset is under way"):
            await letter_forwarder._move(held)
    finally:
        held.is_resetting = False
    assert ((await record(running)).outbox, held.outbox.letters) == ([], [])
    assert held.outbox.scheduled == {1: DeadLetterReason.EXPIRED}, "it is moved afterwards"
    assert held.book.acked.pairs() == []


# ---- dead letters and the book ------------------------------------------------------------------


class Road:
    """A way to other queues that takes every dead letter, unless it is blocked."""

    def __init__(self):
        self.sent, self.is_blocked = [], False

    async def send(self, queue, slot, data, producer, number):
        if self.is_blocked:
            raise UnavailableError("blocked")
        self.sent.append(number)
        return True


@pytest.fixture
async def letter_forwarder(running, scene):
    """The broker's forwarder of dead letters; nobody consumes the partition of three messages."""
    await scene.source.close()
    await eventually(lambda: consumed(running).flow is None, "the flow is gone")
    running.broker.dead_letters.connect(Road())
    return running.broker.dead_letters


async def test_a_letter_is_taken_out_only_once_the_stored_book_has_done_with_it(
    running, letter_forwarder
):
    """Else a broker that dies in between leaves the message to be delivered, and sent, again."""
    partitions, outboxes, events = running.broker.partitions, letter_forwarder._outboxes, []
    flush, remove = partitions.flush, outboxes.remove
    opened = asyncio.Event()

    async def held_flush(*args, **kwargs):
        await opened.wait()
        await flush(*args, **kwargs)
        events.append("book")

    async def told_remove(*args, **kwargs):
        events.append("letter")
        await remove(*args, **kwargs)

    partitions.flush, outboxes.remove = held_flush, told_remove
    letter_forwarder.schedule(consumed(running), [0], DeadLetterReason.EXPIRED)
    await eventually(lambda: letter_forwarder.target.sent, "the letter is sent")
    assert [letter.offset for letter in (await record(running)).outbox] == [0]
    opened.set()
    await eventually(lambda: not consumed(running).outbox.is_working, "it is taken out")
    assert (events[0], events[-1], events.count("letter")) == ("book", "letter", 1)
    assert ((await record(running)).cursor, (await record(running)).outbox) == (1, [])


async def test_what_is_done_with_before_it_is_moved_is_no_dead_letter(
    running, scene, letter_forwarder
):
    """Though the stored book does not say so yet."""
    held, handoff = consumed(running), await scene.handoff()
    gate = Gate(running.broker.partitions, "commit")
    committing = asyncio.create_task(handoff.commit(cause="source_unbound"))
    await gate.reached.wait()
    letter_forwarder.schedule(held, [1], DeadLetterReason.EXPIRED)
    await eventually(lambda: held.outbox.trouble, "it was tried")
    held.book.discard([(1, 2)])
    gate.opened.set()
    assert (await committing)["code"] == ""
    await eventually(lambda: not held.outbox.is_working, "the task has ended")
    assert (held.outbox.letters, held.outbox.scheduled, letter_forwarder.target.sent) == (
        [],
        {},
        [],
    )


async def test_a_letter_that_a_reset_overtakes_is_done_in_the_book_after_it(
    running, letter_forwarder
):
    held = HeldAnswer(letter_forwarder._outboxes, "add")
    letter_forwarder.schedule(consumed(running), [1], DeadLetterReason.EXPIRED)
    await held.reached.wait()
    await reset(running, to="earliest")
    held.opened.set()
    await eventually(lambda: not consumed(running).outbox.is_working, "it is sent")
    assert consumed(running).book.acked.pairs() == [(1, 2)]
    stored = await settled(running)
    assert (stored.cursor, stored.acked, stored.outbox) == (0, [(1, 2)], [])
    assert len(letter_forwarder.target.sent) == 1


async def test_a_letter_that_waits_during_a_reset_below_it_is_no_more_delivered(
    running, letter_forwarder
):
    """It is a dead letter; a broker that claims the partition then takes it for one, too."""
    letter_forwarder.target.is_blocked = True
    letter_forwarder.schedule(consumed(running), [1], DeadLetterReason.EXPIRED)
    await eventually(lambda: consumed(running).outbox.trouble, "it was tried to send it")
    await reset(running, to="earliest")
    in_memory = consumed(running)
    assert (in_memory.book.cursor, in_memory.book.acked.pairs()) == (0, [(1, 2)])
    assert [letter.offset for letter in in_memory.outbox.letters] == [1]
    stored = await settled(running)
    assert (stored.cursor, stored.acked) == (0, [(1, 2)])
    letter_forwarder.target.is_blocked = False
    await eventually(lambda: not in_memory.outbox.is_working, "it is sent")
    assert len(letter_forwarder.target.sent) == 1
    assert (await record(running)).outbox == []


async def test_a_letter_taken_out_meanwhile_makes_no_reset_fail(running, letter_forwarder):
    """It is written under a later number: the reset takes the next one."""
    letter_forwarder.target.is_blocked = True
    held = consumed(running)
    letter_forwarder.schedule(held, [1], DeadLetterReason.EXPIRED)
    await eventually(lambda: held.outbox.trouble, "it was tried to send it")
    gate = Gate(running.broker.partitions, "reset")
    moving = asyncio.create_task(reset(running, to="latest"))
    await gate.reached.wait()
    letter_forwarder.target.is_blocked = False
    await eventually(lambda: not held.outbox.letters, "the letter is taken out")
    gate.opened.set()
    assert (await moving)["to"] == 3
    assert consumed(running) is held, "the partition was not lost"
    assert ((await settled(running)).cursor, (await record(running)).outbox) == (3, [])


async def test_a_reset_finds_out_what_a_move_without_an_answer_has_done(running, letter_forwarder):
    """Else the letter holds the log, and is not sent, until another broker claims the partition."""
    add, asked, held = letter_forwarder._outboxes.add, [], consumed(running)

    async def lose_the_answer(*args, **kwargs):
        asked.append(held.epoch)
        if held.epoch != asked[0]:
            return await add(*args, **kwargs)
        if len(asked) == 1:
            await add(*args, **kwargs)
        raise StoreUnavailableError("no answer")

    letter_forwarder._outboxes.add = lose_the_answer
    letter_forwarder.schedule(held, [0], DeadLetterReason.EXPIRED)
    await eventually(lambda: held.outbox.trouble, "the answer is lost")
    assert (held.outbox.letters, held.outbox.is_in_doubt) == ([], True)
    await reset(running, to="earliest")
    await eventually(lambda: letter_forwarder.target.sent, "the letter is known, and sent")
    await eventually(lambda: not held.outbox.is_working, "it is taken out")
    assert asked.count(held.epoch) == 1, "a replica has it before it is sent"
    assert (await record(running)).outbox == []


async def test_a_move_without_an_answer_is_asked_for_again_though_its_message_is_done(
    running, letter_forwarder
):
    """Else the stored outbox holds the log until another broker claims the partition."""
    add, held = letter_forwarder._outboxes.add, consumed(running)

    async def lose_the_answer(*args, **kwargs):
        letter_forwarder._outboxes.add = add
        await add(*args, **kwargs)
        held.book.discard([(0, 1)])  # an individual ack of an older delivery, meanwhile
        running.broker.cursor_writer.notice(held)
        raise StoreUnavailableError("no answer")

    letter_forwarder._outboxes.add = lose_the_answer
    letter_forwarder.schedule(held, [0], DeadLetterReason.EXPIRED)
    await eventually(lambda: letter_forwarder.target.sent, "the letter is found and sent")
    await eventually(lambda: not held.outbox.is_working, "it is taken out")
    assert (await record(running)).outbox == []
