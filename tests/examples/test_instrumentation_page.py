"""The programs of docs/instrumentation.md run as they stand there, against a real queue."""

import ast
import asyncio
import inspect

import pytest

import partq
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import program

PAGE = "instrumentation.md"


@pytest.fixture(scope="module")
def local():
    with asyncio.Runner() as runner:
        broker = LocalBroker(queue="orders", groups=["workers"])
        runner.run(broker.__aenter__())
        yield broker
        runner.run(broker.__aexit__(None, None, None))


async def run(local, heading, **names):
    """Run the program of a section, with what partq exports; return the names that it leaves."""
    names = {**{name: getattr(partq, name) for name in partq.__all__}, **names}
    names |= {"url": local.url, "tokens": local.tokens}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if inspect.isawaitable(
        ran := eval(compile(program(PAGE, heading), "page", "exec", flags), names)
    ):
        await ran
    return names


async def test_interceptors(local):
    told = []
    await run(local, "Interceptors", log=lambda *what: told.append(what))
    words = ["stored", "consumed", "acknowledged"]
    assert told == [(word, "order-17") for word in words]
