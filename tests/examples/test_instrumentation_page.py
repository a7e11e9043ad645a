"""The programs of docs/instrumentation.md run as they stand there, against a real queue."""

import ast
import asyncio
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

import partq
from partq.telemetry.prometheus import _FIGURES
from partq.testing.local_broker import LocalBroker
from tests.examples.pages import program

PAGE = "instrumentation.md"
ROOT = Path(__file__).parents[2]


class EnoughError(Exception):
    """What a loop without an end is left by."""


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


async def test_open_telemetry(local):
    seen = []

    def handle(message):
        seen.append(message.value)
        raise EnoughError

    with pytest.raises(EnoughError):
        await run(local, "OpenTelemetry", handle=handle)
    assert seen == [b"paid"]


async def test_the_collector_shows_a_producer(local):
    left = await run(local, "What the clients have done")
    assert 'partq_producer_messages_stored_total{queue="orders"} 1.0' in left["page"].splitlines()


def test_the_tables_name_each_figure():
    told = (ROOT / "docs" / PAGE).read_text(encoding="utf-8")
    assert [each.name for each in fields(partq.ProducerStats) if f"`{each.name}`" not in told] == []
    for figures in _FIGURES.values():
        for figure in figures:
            assert f"_{figure.name.removeprefix('messages_')}" in told


async def test_cloud_events():
    seen = []
    async with LocalBroker(queue="orders", groups=["workers"]) as own:
        await run(own, "CloudEvents", process=lambda *what: seen.append(what))
    assert seen == [("com.example.order.paid", b'{"order": 17}')]
