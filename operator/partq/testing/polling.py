"""Waits in tests for what other tasks and processes do, with a bound."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

TIMEOUT_S = 60.0
"""How long is waited unless a test says otherwise: long, as machines that run tests are busy."""
INTERVAL_S = 0.01

_T = TypeVar("_T")


@overload
async def eventually(
    condition: Callable[[], Awaitable[_T | None]],
    what: str = ...,
    *,
    timeout_s: float = ...,
    interval_s: float = ...,
) -> _T: ...


@overload
async def eventually(
    condition: Callable[[], _T | None],
    what: str = ...,
    *,
    timeout_s: float = ...,
    interval_s: float = ...,
) -> _T: ...


async def eventually(
    condition: Callable[[], Awaitable[_T | None] | _T | None],
    what: str = "the condition",
    *,
    timeout_s: float = TIMEOUT_S,
    interval_s: float = INTERVAL_S,
) -> _T:
    """Ask `condition` until its answer is true, and return that answer.

    `condition` is a function or a coroutine function; what it raises is raised. It is asked at
    once, every `interval_s` seconds, and once more when `timeout_s` seconds are over, so that a
    process that stood still for that long sees what came meanwhile. One answer of a coroutine
    function may take `timeout_s` too.

    Raises:
        AssertionError: no answer was true in time. It names `what` and the last answer.
    """
    last: object = "no answer"
    ends = time.monotonic() + timeout_s
    while True:
        is_last = time.monotonic() >= ends
        found = condition()
        if inspect.isawaitable(found):
            limit = asyncio.timeout(timeout_s)
            try:
                async with limit:
                    found = await found
            except TimeoutError:
                if not limit.expired():
                    raise
                raise _late(what, timeout_s, last) from None
        if found:
            return cast(_T, found)
        last = found
        if is_last:
            raise _late(what, timeout_s, last)
        await asyncio.sleep(interval_s)


def eventually_blocking(
    condition: Callable[[], _T | None],
    what: str = "the condition",
    *,
    timeout_s: float = TIMEOUT_S,
    interval_s: float = INTERVAL_S,
) -> _T:
    """Do what `eventually` does, in a test without an event loop: the thread waits.

    Raises:
        AssertionError: no answer was true in time. It names `what` and the last answer.
    """
    ends = time.monotonic() + timeout_s
    while True:
        is_last = time.monotonic() >= ends
        if found := condition():
            return found
        if is_last:
            raise _late(what, timeout_s, found)
        time.sleep(interval_s)


def _late(what: str, timeout_s: float, last: object) -> AssertionError:
    return AssertionError(f"{what}: not within {timeout_s:g} s; last answer: {last!r}")
