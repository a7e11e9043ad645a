"""The numbers of calls that set and remove pins."""

import asyncio

import pytest

from partq.client.transport.pin_calls import TRIES, PinCalls
from partq.errors import ConflictError, UnavailableError
from partq.testing import eventually
from partq.wire.calls.browse import PinResult


async def test_a_reader_goes_above_the_calls_of_the_one_before():
    calls, last, numbers = PinCalls(), 2**52, []

    async def call(number):
        numbers.append(number)
        return {"1.0": PinResult(number=max(number, last)), "1.1": PinResult(number=number)}

    await calls.make("lake", call)
    assert numbers == [0, last + 1]
    await calls.make("lake", call)
    assert numbers[2:] == [last + 2], "at once"


async def test_calls_at_the_same_time_have_different_numbers():
    """The answer to an earlier call does not take back the numbers of later ones."""
    calls, numbers, may_answer = PinCalls(), [], asyncio.Event()

    async def call(number):
        numbers.append(number)
        return {"1.0": PinResult(number=max(number, 100))}

    async def slow(number):
        numbers.append(number)
        await may_answer.wait()
        return {"1.0": PinResult(number=number)}

    await calls.make("lake", call)
    earlier = asyncio.create_task(calls.make("lake", slow))
    await eventually(lambda: len(numbers) == 3, "the slow call")
    await calls.make("lake", call)
    may_answer.set()
    await earlier
    await calls.make("lake", call)
    assert numbers == [0, 101, 102, 103, 104]


async def test_a_number_is_asked_for_until_there_is_one():
    """Without it a call would begin at 1, below those of all readers before."""
    calls, numbers, answers = PinCalls(), [], [None, PinResult(), PinResult(number=100)]

    async def call(number):
        numbers.append(number)
        answer = answers.pop(0) if answers else PinResult(number=number)
        if answer is None:
            raise UnavailableError("no broker")
        return {"1.0": answer}

    with pytest.raises(UnavailableError):
        await calls.make("lake", call)
    await calls.make("lake", call)
    await calls.make("lake", call)
    assert numbers == [0, 0, 0, 101]


async def test_two_readers_that_set_the_same_pin_are_told():
    numbers = []

    async def call(number):
        numbers.append(number)
        return {"1.0": PinResult(number=number + 1)}

    with pytest.raises(ConflictError, match="pin lake: set by others at the same time"):
        await PinCalls().make("lake", call)
    assert len(numbers) == TRIES
