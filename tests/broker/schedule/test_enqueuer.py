"""What has waited beside a log is appended by its owner as soon as it is due."""

import asyncio
import time
from dataclasses import replace
from functools import partial

import pytest

from partq.aio import resolve
from partq.broker.schedule.enqueuer import Enqueuer
from partq.core.clocks.clock_watch import ClockWatch
from partq.core.hashing import slot_of
from partq.errors import (
    NotOwnerError,
    StaleGenerationError,
    StoreFullError,
    StoreUnavailableError,
)
from partq.store.records.log import AppendBatch
from partq.testing import eventually
from partq.testing.frame_peers import make_batch
from tests.broker.moved_clocks import put_watch

HOUR_MS = 3_600_000


@pytest.fixture
def owned(running, peers):
    return running.broker.owned[peers.partition_id(0)]


KEY = next(key for key in map(str, range(100)) if slot_of(key) < 16_384)
"""Of the first of four partitions."""


def data(text):
    return make_batch([text], KEY)


def batch(text, **more):
    return AppendBatch("", 0, 1, data(text), **more)


async def submit(owned, *batches):
    """Submit batches, and return their results."""
    answers = [asyncio.get_running_loop().create_future() for _ in batches]
    for each, answer in zip(batches, answers, strict=True):
        owned.appender.submit(each, partial(resolve, answer))
    return await asyncio.gather(*answers)


def later(text):
    return batch(text, kind="schedule", after_ms=HOUR_MS)


async def let_be_due(running, owned, *parked):
    """Set back when entries are due; nobody is told."""
    for at, each in enumerate(parked):
        due = running.broker.keys.due(owned.id)
        await running.store.read("ZADD", due, 1 + at, f"{each.entry:016}")


async def waiting_count(running, owned):
    return await running.store.read("ZCARD", running.broker.keys.due(owned.id))


async def test_it_is_appended_when_it_is_due(running, owned):
    """And the tail has it: it is delivered without another read."""
    (parked,) = await submit(owned, batch("soon", kind="schedule", after_ms=30))
    assert parked.status == "parked"
    await eventually(lambda: owned.tail.end == 1, "it is appended")
    entry = owned.tail.find(0)
    assert (entry.data, entry.producer) == (data("soon"), "")
    assert entry.at_ms >= parked.due_ms
    assert await waiting_count(running, owned) == 0


async def test_one_that_is_due_earlier_goes_first(running, owned):
    await submit(owned, later("late"))
    await eventually(lambda: owned.next_due_ms is not None, "it waits for the first")
    await submit(owned, batch("early", kind="schedule", after_ms=30))
    await eventually(lambda: owned.tail.end == 1, "the second is appended")
    assert owned.tail.find(0).data == data("early")
    assert await waiting_count(running, owned) == 1


async def test_the_next_owner_finds_what_became_due_before(running, owned):
    parked = await submit(owned, later("a"), later("b"))
    await running.broker.ownership.give_up(owned.id)
    await let_be_due(running, owned, *parked)
    await running.claim_all()
    await eventually(
        lambda: (new := running.broker.owned.get(owned.id)) and new.tail.end == 2, "appended"
    )
    entries = await running.broker.log.read(owned.id, 0, max_bytes=10**6, max_entries=9)
    assert [each.data for each in entries] == [data("a"), data("b")]


async def test_nothing_is_appended_before_all_that_comes_from_elsewhere_is_there(
    running, owned, monkeypatch
):
    """A message of the same key that is due before it may be on its way."""
    parked = await submit(owned, later("a"))
    await running.broker.ownership.give_up(owned.id)
    await let_be_due(running, owned, *parked)
    monkeypatch.setattr("partq.broker.schedule.enqueuer.RETRY_S", 0.01)
    looks, is_carried = [], False

    async def carry(self, owned):
        looks.append(owned.id)
        return is_carried

    monkeypatch.setattr(Enqueuer, "_carry", carry)
    await running.claim_all()
    await eventually(lambda: looks.count(owned.id) > 3, "it looks again and again")
    new = running.broker.owned[owned.id]
    assert new.tail.end == 0
    is_carried = True
    await eventually(lambda: new.tail.end == 1, "appended")


async def test_while_the_clock_is_in_doubt_nothing_is_appended(running, owned, monkeypatch):
    parked = await submit(owned, later("a"))
    watch = put_watch(running.broker, ClockWatch())
    watch.observe(10**12, running.clock(), wall_s=2 * 10**9)  # a jump of many years
    assert watch.is_suspended(running.clock())
    monkeypatch.setattr("partq.broker.schedule.enqueuer.RETRY_S", 0.01)
    await let_be_due(running, owned, *parked)
    enqueued = []
    monkeypatch.setattr(owned.appender, "enqueue", enqueued.append)
    looks = []
    judged_ms = running.broker.expiry.clocks.judged_ms
    monkeypatch.setattr(
        running.broker.expiry.clocks, "judged_ms", lambda p: looks.append(p) or judged_ms(p)
    )
    owned.due_news.set()
    await eventually(lambda: looks.count(owned.id) > 2, "it looks again and again")
    assert enqueued == []
    monkeypatch.undo()
    running.broker.expiry.clocks.confirm()
    await eventually(lambda: owned.tail.end == 1, "appended after the confirmation")


async def test_what_a_clock_in_doubt_calls_due_waits_for_its_time(running, owned, monkeypatch):
    """Redis's clock has jumped ahead: that of the broker says that it is not due."""
    monkeypatch.setattr("partq.broker.schedule.enqueuer.RETRY_S", 0.01)
    intake = running.broker.publish.__self__
    monkeypatch.setattr(intake, "_wall_clock", lambda: time.time() - 3600)
    watch = put_watch(running.broker, ClockWatch())
    watch.observe(10**12, running.clock(), wall_s=2 * 10**9)

    async def send(ahead_s):
        answer = asyncio.get_running_loop().create_future()
        due_ms = int((time.time() - 3600 + ahead_s) * 1000)
        options = {"producer": "", "first": 0, "due_ms": due_ms, "reply": answer.set_result}
        running.broker.publish(owned.id, data("a"), **options)
        return (await answer).status

    assert await send(600) == "parked"
    assert await send(-600) == "stored", "it is due by any clock"
    assert owned.tail.end == 1
    await running.broker.expiry.clocks.observe()
    running.broker.expiry.clocks.confirm()
    owned.due_news.set()
    await eventually(lambda: owned.tail.end == 2, "appended after the confirmation")


async def test_a_clock_that_runs_ahead_of_what_is_known_is_looked_at_first(running, owned):
    """It may have jumped since the last look at it, each second."""
    clocks = running.broker.expiry.clocks
    await clocks.observe()
    known = clocks.judged_ms(owned.id)
    assert not await running.broker.enqueuer._is_doubtful(owned.id, known + 59_000)
    watch = put_watch(running.broker, ClockWatch())
    now = running.clock()
    watch.observe(int(known) - 10**6, now, wall_s=(known - 10**6) / 1000)
    assert await running.broker.enqueuer._is_doubtful(owned.id, int(known))


async def test_calls_of_entries_and_of_publishes_take_turns(running, owned, peers, monkeypatch):
    parked = await submit(owned, *[later(str(at)) for at in range(130)])
    await let_be_due(running, owned, *parked)
    kinds = []
    append = running.broker.log.append
    gate = asyncio.Event()

    async def noted(*args, batches, **more):
        kinds.append({each.kind for each in batches})
        await gate.wait()
        return await append(*args, batches=batches, **more)

    monkeypatch.setattr(running.broker.log, "append", noted)
    tasks = [asyncio.create_task(submit(owned, batch("first")))]
    await eventually(lambda: kinds, "the first call is under way")
    tasks.append(asyncio.create_task(submit(owned, *[batch("x") for _ in range(300)])))
    owned.due_news.set()
    await eventually(lambda: owned.appender._due, "entries wait for their turn")
    gate.set()
    await asyncio.gather(*tasks)
    await eventually(lambda: owned.tail.end == 431, "all is appended")
    assert kinds[:3] == [{"append"}, {"enqueue"}, {"append"}]


async def test_what_has_waited_needs_no_room(running, owned, monkeypatch):
    (parked,) = await submit(owned, later("a"))
    monkeypatch.setattr(running.broker.quota, "take", lambda sizes: pytest.fail("it is asked"))
    await let_be_due(running, owned, parked)
    owned.due_news.set()
    await eventually(lambda: owned.tail.end == 1, "it is appended")


async def test_what_is_parked_counts_in_the_quota(running, owned, monkeypatch):
    accounts = []
    monkeypatch.setattr(
        running.broker.quota, "account", lambda grant, stored: accounts.append(stored)
    )
    await submit(owned, later("a"))
    assert accounts == [len(data("a"))]


async def test_of_a_slot_that_leaves_the_entry_stays(running, owned):
    """It waits for its call when the seal comes, and is not appended behind it."""
    (parked,) = await submit(owned, later("a"))
    await let_be_due(running, owned, parked)
    left = (range(16_383, 16_384),)

    async def seal():
        await eventually(lambda: owned.appender._due, "the entry waits for its call")
        owned.layout = replace(owned.layout, slots=left)
        owned.appender.keep_slots(left)

    owned.appender.run_next(seal)
    (outcome,) = await owned.appender.enqueue(
        [AppendBatch("", parked.entry, 1, data("a"), kind="enqueue")]
    )
    assert isinstance(outcome, StaleGenerationError)
    assert await waiting_count(running, owned) == 1
    assert owned.tail.end == 0


async def test_an_owner_that_gives_up_appends_nothing_more(running, owned):
    await running.broker.ownership.give_up(owned.id)
    with pytest.raises(NotOwnerError):
        await owned.appender.enqueue([AppendBatch("", 1, 1, b"x", kind="enqueue")])


@pytest.mark.parametrize("error", [StoreUnavailableError("no answer"), StoreFullError("full")])
async def test_a_store_that_does_not_answer_is_asked_again(running, owned, monkeypatch, error):
    (parked,) = await submit(owned, later("a"))
    await let_be_due(running, owned, parked)
    entries, failures = running.broker.enqueuer._entries, []
    read = entries.read

    async def fail_once(*args, **more):
        if not failures:
            failures.append(args)
            raise error
        return await read(*args, **more)

    monkeypatch.setattr(entries, "read", fail_once)
    owned.due_news.set()
    await eventually(lambda: owned.tail.end == 1, "it is appended")
    assert failures


async def test_what_nobody_can_read_holds_up_nothing_else(running, owned):
    parked = await submit(owned, later("a"), later("b"))
    keys = running.broker.keys
    await running.store.read("HSET", keys.scheduled(owned.id), f"{parked[0].entry:016}", "0 junk")
    await let_be_due(running, owned, *parked)
    owned.due_news.set()
    await eventually(lambda: owned.tail.end == 1, "the other is appended")
    assert owned.tail.find(0).data == data("b")
    assert await waiting_count(running, owned) == 1
