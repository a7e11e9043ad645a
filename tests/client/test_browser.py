"""A reader without a group asks until it has enough, or there is no more."""

from copy import copy

import pytest

from partq import BadRequestError, Browser, PartitionId, UnavailableError
from partq.client.transport.answers import read
from partq.errors import InternalError
from partq.testing import eventually

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


def message(offset, **changes):
    return {
        "partition": "1.0", "offset": offset, "publish_time_ms": 5, "append_broker_epoch": 1,
        "key": "k", "value": str(offset), "headers": {}, "event_time_ms": 0, **changes,
    }  # fmt: skip


def page(*offsets, why="size", unavailable=(), trimmed=None):
    return {
        "messages": [message(offset) for offset in offsets],
        "next": {"1.0": offsets[-1] + 1 if offsets else 0, "1.1": 0},
        "why": why,
        "trimmed": trimmed or {},
        "unavailable": {name: {"code": "unavailable", "message": "gone"} for name in unavailable},
    }


@pytest.fixture
def browser(monkeypatch):
    """A browser whose brokers answer what a test says, one after the other."""

    def open_browser(*answers, **settings):
        browser = Browser("http://b", queue="orders", **{"timeout_s": 5.0, **settings})
        left = list(answers)
        browser.asked = []

        async def ask(method, path, kind, body=None):
            if path != "/browse" and body.number == 0:  # asks for a number, and changes nothing
                return read(path, {"partitions": {"1.0": {"number": 100}}}, kind)
            browser.asked.append((method, path, copy(body)))
            return read(path, left.pop(0) if path == "/browse" else {"partitions": {}}, kind)

        monkeypatch.setattr(browser._session, "ask", ask)
        return browser

    return open_browser


async def shown(browser, *args, **kwargs):
    return [each.offset async for each in browser.messages(*args, **kwargs)]


@pytest.mark.req("AZR-63")
async def test_it_asks_until_there_is_enough(browser):
    """An answer may hold fewer than were asked for."""
    reader = browser(page(0, 1), page(), page(2, 3, 4), page(5, why="enough"))
    async with reader:
        assert await shown(reader, 6) == [0, 1, 2, 3, 4, 5]
    bodies = [body for _, _, body in reader.asked]
    assert [body.max_messages for body in bodies] == [6, 4, 4, 1]
    assert [body.offsets.get("1.0") for body in bodies] == [None, 2, 0, 5]
    assert reader.next == {P0: 6, P1: 0}


@pytest.mark.req("AZR-63")
async def test_it_asks_until_there_is_no_more(browser):
    reader = browser(page(3, trimmed={"1.0": 3}), page(4, why="enough"), page(why="end"))
    async with reader:
        assert await shown(reader, partitions=[P0], offsets={P0: 1}, at_ms=10**12) == [3, 4]
    first = reader.asked[0][2]
    assert (first.partitions, first.offsets, first.at_ms) == (["1.0"], {"1.0": 1}, 10**12)
    assert reader.trimmed == {P0: 3}


@pytest.mark.parametrize("wrong", [1_700_000_000, 1_700_000_000_000_000, -1])
async def test_a_time_in_another_unit_is_refused(browser, wrong):
    reader = browser()
    with pytest.raises(BadRequestError, match=r"browse: at_ms: got .* expected milliseconds since"):
        await shown(reader, at_ms=wrong)


async def test_a_partition_that_nobody_serves_is_waited_for(browser):
    reader = browser(page(0, unavailable=["1.1"]), page(0, why="end"))
    async with reader:
        assert await shown(reader) == [0]
    assert len(reader.asked) == 2


async def test_it_does_not_wait_for_ever(browser):
    reader = browser(page(0), page(1, unavailable=["1.1"]), timeout_s=0.0)
    async with reader:
        messages = reader.messages()
        assert (await anext(messages)).offset == 0
        with pytest.raises(UnavailableError, match=r"1 partition cannot be shown.*1\.1: gone"):
            await anext(messages)
    assert reader.next[P0] == 1, "nothing is passed over"


async def test_a_pin_keeps_what_lies_ahead_and_goes_with_its_reader(browser):
    reader = browser(page(0), page(1, why="end"), pin="me")
    async with reader:
        assert await shown(reader) == [0, 1]
    calls = [(method, path, body.offsets) for method, path, body in reader.asked]
    assert calls == [
        ("POST", "/browse", {}),
        ("PUT", "/pins/me", {"1.0": 0, "1.1": 0}),
        ("POST", "/browse", {"1.0": 1, "1.1": 0}),
        ("PUT", "/pins/me", {"1.0": 1, "1.1": 0}),
        ("PUT", "/pins/me", {"1.0": 2, "1.1": 0}),
        ("DELETE", "/pins/me", {}),
    ]
    numbers = [body.number for _, path, body in reader.asked if path == "/pins/me"]
    assert numbers == sorted(set(numbers)), "one that arrives late is below the others"


async def test_a_loop_that_is_left_continues_behind_the_last_message_it_was_given(browser):
    """The rest of a page that was fetched lies ahead still, and the pin keeps it."""
    first = {**page(4, 5, 6), "next": {"1.0": 7, "1.1": 2}}
    first["messages"].insert(1, message(1, partition="1.1"))
    reader = browser(first, page(5, why="end"), pin="me")
    async with reader:
        async for each in reader.messages():
            assert (each.partition, each.offset) == (P0, 4)
            break
        assert reader.next == {P0: 5, P1: 1}
        pins = [body.offsets for method, _, body in reader.asked if method == "PUT"]
        assert pins == [{"1.0": 4, "1.1": 1}], "one call for a page"
        assert await shown(reader, offsets=reader.next) == [5]
    asked = [body.offsets for _, path, body in reader.asked if path == "/browse"]
    assert asked[1] == {"1.0": 5, "1.1": 1}


async def test_a_pin_is_renewed_behind_the_last_message_that_was_given(browser, monkeypatch):
    monkeypatch.setattr("partq.client.browser.PIN_RENEW_S", 0)
    reader = browser(page(0, 1, 2, why="end"), pin="me")
    async with reader:
        messages = reader.messages()
        await anext(messages)
        await anext(messages)

        def renewed():
            return {"1.0": 2, "1.1": 0} in [body.offsets for *_, body in reader.asked]

        await eventually(renewed, "a renewal of what lies ahead")


async def test_what_cannot_be_read_says_so_in_its_place(browser):
    broken = message(1) | {"error": {"code": "undecodable", "message": "cut off"}}
    answer = page(0, why="end")
    answer["messages"].append(broken)
    bare = {name: value for name, value in message(2).items() if name != "value"}
    answer["messages"].append({**bare, "value_base64": "/w=="})
    reader = browser(answer)
    async with reader:
        good, bad, binary = [each async for each in reader.messages()]
    assert (good.message.key, good.message.value, good.error) == ("k", b"0", "")
    assert (bad.offset, bad.message, bad.error) == (1, None, "cut off")
    assert binary.message.value == b"\xff"


@pytest.mark.parametrize("text", ["/w=", "/w=!=", "/w==x", " /w==", "ä"])
async def test_a_value_that_is_not_base64_is_no_answer(browser, text):
    """What is not of its alphabet is not passed over: the value would be another one."""
    bare = {name: value for name, value in message(0).items() if name != "value"}
    reader = browser({**page(why="end"), "messages": [{**bare, "value_base64": text}]})
    async with reader:
        with pytest.raises(InternalError, match="unusable"):
            await shown(reader)


async def test_what_makes_no_sense_is_refused(browser):
    reader = browser({**page(), "messages": [{"partition": "x"}]})
    async with reader:
        with pytest.raises(BadRequestError, match="count 0; expected 1"):
            await shown(reader, 0)
        with pytest.raises(InternalError, match="unusable"):
            await shown(reader)


async def test_what_a_log_misses_is_noted_and_not_waited_for(browser):
    first = {**page(2), "missing": {"1.0": [[0, 2]]}}
    last = {**page(4, why="end"), "missing": {"1.0": [[3, 4]], "1.1": [[0, 7]]}}
    reader = browser(first, last, timeout_s=0.0)
    async with reader:
        assert await shown(reader) == [2, 4]
    assert reader.missing == {P0: [(0, 2), (3, 4)], P1: [(0, 7)]}
