"""What `partq.aio` gives: task sets, signals, growing waits, retries."""

import asyncio
import logging

import pytest

from partq.aio import (
    MAX_MOMENTS,
    Backoff,
    Backoffs,
    Signal,
    TaskSet,
    UntilAnswered,
    cancel_and_wait,
)

WAIT_S = 10.0


async def never(ended):
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ended.append(1)


# ---- tasks ----


async def test_tasks_are_kept_until_they_end_and_cancelled_together():
    ended = []
    tasks = TaskSet()
    short = tasks.start(asyncio.sleep(0, "done"), "short")
    long = [tasks.start(never(ended)) for _ in range(2)]
    assert list(tasks) == [short, *long]
    assert len(tasks) == 3
    assert await short == "done"
    await asyncio.sleep(0)  # callbacks of its end
    assert list(tasks) == long
    await tasks.close()
    assert not tasks
    assert ended == [1, 1]
    await tasks.close()  # there is nothing to end any more


async def test_a_task_that_fails_is_reported_and_one_that_is_cancelled_is_not():
    async def fail():
        raise ValueError("no")

    ended, failures = [], []
    tasks = TaskSet(lambda task, error: failures.append((task.get_name(), error)))
    tasks.start(never(ended), "endless")
    failing = tasks.start(fail(), "failing")
    await asyncio.wait([failing])
    await asyncio.sleep(0)
    await tasks.close()
    assert [(name, str(error)) for name, error in failures] == [("failing", "no")]


async def test_cancelling_without_waiting():
    ended = []
    tasks = TaskSet()
    task = tasks.start(never(ended))
    await asyncio.sleep(0)
    tasks.cancel()
    assert not task.done()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_the_end_of_a_task_is_not_the_callers():
    """Neither its cancellation nor its error."""

    async def refuse():
        try:
            await never([])
        except asyncio.CancelledError:
            raise ValueError("not now") from None

    tasks = [asyncio.create_task(work) for work in (never([]), refuse())]
    await asyncio.sleep(0)
    await cancel_and_wait(None, *tasks)
    assert all(task.done() for task in tasks)


# ---- signals ----


async def test_a_wait_ends_by_the_signal_or_by_its_limit():
    signal = Signal()
    assert not await signal.wait_at_most(0.0)
    signal.set()
    assert await signal.wait_at_most(0.0)
    assert await signal.wait_at_most(None)


async def test_a_pulse_wakes_those_alone_who_wait_now():
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait_at_most(WAIT_S)) for _ in range(2)]
    await asyncio.sleep(0)
    signal.pulse()
    assert await asyncio.gather(*waiting) == [True, True]
    assert not await signal.wait_at_most(0.0)


# ---- waits between tries ----


def test_waits_double_up_to_a_ceiling_and_begin_again():
    backoff = Backoff(0.1, 1.0)
    assert [backoff.next_s() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next_s() == 0.1


def test_spread_waits_are_between_the_first_and_the_ceiling():
    backoff = Backoff(0.05, 1.0, is_spread=True)
    waits = [backoff.next_s() for _ in range(200)]
    assert waits[0] == 0.05
    assert all(0.05 <= wait <= 1.0 for wait in waits)
    assert len(set(waits[10:])) > 1


def test_advice_makes_a_wait_longer_within_reason():
    backoff = Backoff(0.05, 1.0)
    assert backoff.next_s(5.0) == 5.0
    assert backoff.next_s(1e9) == 30.0
    assert backoff.next_s(0.0) == 0.2


def test_advice_of_a_moment_is_taken_as_it_is_some_times():
    backoff = Backoff(0.05, 1.0)
    assert {backoff.next_s(0.02) for _ in range(MAX_MOMENTS)} == {0.02}
    assert [backoff.next_s(0.02) for _ in range(3)] == [0.05, 0.1, 0.2]
    backoff.reset()
    assert backoff.next_s(0.02) == 0.02


def test_each_thing_has_its_wait():
    backoffs = Backoffs[str](1.0, 3.0)
    assert backoffs.next_at is None
    backoffs.failed("a", 10.0)
    backoffs.failed("b", 10.5)
    backoffs.failed("a", 11.0)
    assert backoffs.next_at == 11.5
    assert not backoffs.may_try("a", 12.9)
    assert backoffs.may_try("a", 13.0)
    backoffs.failed("a", 13.0)
    backoffs.failed("a", 16.0)
    assert not backoffs.may_try("a", 18.9)  # 3, not 4 or 8
    assert backoffs.may_try("a", 19.0)
    assert backoffs.may_try("c", 0.0)
    backoffs.keep_only({"a"})
    assert backoffs.may_try("b", 0.0)
    backoffs.succeeded("a")
    assert backoffs.next_at is None


async def test_of_failures_that_follow_each_other_the_first_is_logged(caplog):
    log = logging.getLogger("partq.test")
    until_answered = UntilAnswered(log, 0.0)
    with caplog.at_level(logging.INFO, log.name):
        until_answered.answered("back")
        await until_answered.failed("%s: away", "one")
        await until_answered.failed("%s: away", "two")
        until_answered.answered()
        await until_answered.failed("%s: away", "three")
        until_answered.answered("back")
    assert caplog.messages == ["one: away", "three: away", "back"]


@pytest.mark.parametrize("tries", [1, 100])
def test_a_long_outage_overflows_nothing(tries):
    backoff = Backoff(0.1, 2.0)
    waits = [backoff.next_s() for _ in range(tries * 20)]
    assert waits[-1] == 2.0
