"""Signals have the effect again that they had before a consumer."""

import asyncio
import signal

import pytest

from partq.client.consume.process import stop_signals


def leave():
    """Stand for what a consumer does at a signal."""


async def add():
    assert stop_signals.add(leave)


async def remove():
    stop_signals.remove(leave)


@pytest.fixture
def handler():
    """Have Python's own handler, and put the one of the tests back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_within_one_run_the_runner_has_its_handler_back(handler):
    async def both():
        before = signal.getsignal(signal.SIGINT)
        await add()
        assert signal.getsignal(signal.SIGINT) != before
        await remove()
        assert signal.getsignal(signal.SIGINT) is before

    with asyncio.Runner() as runner:
        runner.run(both())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_handler_of_a_run_that_has_ended_is_not_put_back(handler):
    with asyncio.Runner() as runner:
        runner.run(add())
        runner.run(remove())
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
