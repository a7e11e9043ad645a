"""`eventually` returns what it waited for, and says what it saw last when that did not come."""

import asyncio
import inspect
import threading
import time

import pytest

from partq.testing import eventually, eventually_blocking


class Answers:
    """Gives one answer after the other, and the last one for ever."""

    def __init__(self, *answers):
        self.left = list(answers)
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    async def later(self):
        await asyncio.sleep(0)
        return self()


async def wait(kind, answers, *arguments, **options):
    """Wait in one of the three ways."""
    if kind == "blocking":
        return await asyncio.to_thread(eventually_blocking, answers, *arguments, **options)
    return await eventually(answers if kind == "plain" else answers.later, *arguments, **options)


KIND = pytest.mark.parametrize("kind", ["plain", "coroutine", "blocking"])


@KIND
async def test_the_first_true_answer_is_returned(kind):
    answers = Answers(None, [], 0, "so")
    assert await wait(kind, answers) == "so"
    assert answers.asked == 4


@KIND
async def test_what_never_comes_is_named_with_the_last_answer(kind):
    with pytest.raises(AssertionError) as caught:
        await wait(kind, Answers(None, []), "an owner", timeout_s=0.02, interval_s=0.001)
    assert str(caught.value) == "an owner: not within 0.02 s; last answer: []"


@KIND
async def test_it_asks_once_more_when_the_time_is_over(kind):
    """As after a standstill of the process, in which what it waits for has come."""

    class Slow(Answers):
        def __call__(self):
            time.sleep(0.02)
            return super().__call__()

    assert await wait(kind, Slow(False, True), timeout_s=0.01)


@KIND
async def test_what_the_condition_raises_is_raised(kind):
    class OddError(Exception):
        pass

    class Failing(Answers):
        def __call__(self):
            raise OddError

    with pytest.raises(OddError):
        await wait(kind, Failing())


async def test_an_answer_that_hangs_is_not_waited_for():
    async def hang():
        await asyncio.Event().wait()

    with pytest.raises(AssertionError, match=r"it: not within 0.01 s; last answer: 'no answer'"):
        await eventually(hang, "it", timeout_s=0.01)


async def test_a_timeout_of_the_condition_is_its_own():
    async def fail():
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        await eventually(fail)


async def test_the_event_loop_goes_on_meanwhile():
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, done.set)
    assert await eventually(done.is_set)


def test_threads_go_on_meanwhile():
    done = threading.Event()
    threading.Timer(0.01, done.set).start()
    assert eventually_blocking(done.is_set)


def test_both_take_the_same():
    names = [list(inspect.signature(each).parameters) for each in (eventually, eventually_blocking)]
    assert names[0] == names[1]
