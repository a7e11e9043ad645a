"""What a reader does with misuse, and with mistakes that are no answer of a broker."""

import asyncio

import pytest

from partq import LogPosition, Reader, SettingsError
from partq.client import reader as module
from partq.core.layout import Layout
from tests.client.member import P0, P1, WAIT_S

NOBODY = "http://127.0.0.1:9"


class StandInLog:
    """A log that says where it begins and fails otherwise."""

    def __init__(self):
        self.pins = []
        self.opened = self.closed = 0

    async def __aenter__(self):
        self.opened += 1

    async def __aexit__(self, *_):
        self.closed += 1

    async def layout(self):
        return Layout.first(2)

    async def positions(self, _, partitions):
        return {each: LogPosition(each, 0, 0) for each in partitions}

    async def pin(self, name, offsets):
        self.pins.append(name)

    async def unpin(self, name):
        pass

    async def follow(self, partition, start):
        if partition == P0:
            raise KeyError("a mistake")
        await asyncio.Event().wait()
        yield


@pytest.fixture
def log(monkeypatch):
    made = StandInLog()
    monkeypatch.setattr(module, "LogReader", lambda *_, **__: made)
    return made


async def test_a_mistake_while_fetching_is_raised_each_time_it_is_made(log):
    async with Reader(NOBODY, "orders") as reader:
        for _ in range(2):
            with pytest.raises(KeyError, match="a mistake"):
                await asyncio.wait_for(anext(reader), WAIT_S)


async def test_a_mistake_while_a_pin_is_renewed_is_raised_and_it_is_renewed_again(log, monkeypatch):
    monkeypatch.setattr(module, "PIN_RENEW_S", 0)
    async with Reader(NOBODY, "orders", partitions=[P1]) as reader:

        async def fail(name, offsets):
            log.pins.append(name)
            raise KeyError("a mistake")

        log.pin = fail
        for _ in range(2):
            with pytest.raises(KeyError, match="a mistake"):
                await asyncio.wait_for(anext(reader), WAIT_S)
    assert len(set(log.pins)) == 1


async def test_entering_twice_is_an_error_and_opens_nothing(log):
    reader = Reader(NOBODY, "orders")
    async with reader:
        with pytest.raises(RuntimeError, match="the reader was entered before"):
            await reader.__aenter__()
        assert (log.opened, log.closed) == (1, 0)
    with pytest.raises(RuntimeError, match="entered before"):
        await reader.__aenter__()
    assert (log.opened, log.closed) == (1, 1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"start": "first"}, "start: got 'first', expected 'earliest', 'latest'"),
        ({"start": 5}, "start: got 5, expected"),
        ({"start": None}, "start: got None, expected"),
        ({"start": {}}, "start: got {}, expected"),
        ({"start": {"at_ms": 5, "group": "g"}}, "start: got {'at_ms': 5, 'group': 'g'}"),
        ({"start": {"at_ms": "now"}}, "at_ms: got str, expected a whole number"),
        ({"start": {"1.0": 5}}, "start: got str, expected a PartitionId"),
        ({"start": {P0: -1}}, "start: partition 1.0: got -1, expected 0 to"),
        ({"start": {P0: "end"}}, "start: partition 1.0: got str, expected a whole number"),
        ({"is_pinned": "no"}, "is_pinned: got 'no', expected True or False"),
        ({"timeout_s": 0}, "timeout_s: got 0, expected 0.001 to"),
        ({"timeout_s": "5"}, "timeout_s: got str, expected a number"),
    ],
)
def test_what_cannot_be_used_is_refused_at_construction(settings, says):
    with pytest.raises(SettingsError) as refusal:
        Reader(NOBODY, "orders", **settings)
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    "start",
    ["latest", {"at_ms": 0}, {"group": "g"}, {P0: 3}, {P0: LogPosition(P0, 5, 17), P1: 0}],
)
def test_each_kind_of_start_is_taken(start):
    Reader(NOBODY, "orders", start=start)


async def test_it_is_closed_once_and_says_so(log):
    reader = Reader(NOBODY, "orders", partitions=[P1])
    await reader.close()  # nothing was opened
    with pytest.raises(RuntimeError, match="the reader is not open"):
        await anext(reader)
    async with reader:
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="belongs to the event loop that entered it"):
            await asyncio.to_thread(asyncio.run, reader.close())
        await reader.close()
        await reader.close()
        assert log.closed == 1
        for call in (waiting, anext(reader), reader.seek("latest")):
            with pytest.raises(RuntimeError, match="the reader was closed: make another one"):
                await call
    assert log.closed == 1
