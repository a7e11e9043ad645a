"""The newest messages of logs that are read backwards, against logs that are lists."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partq.cli.messages import newest
from partq.cli.messages.newest import find_newest
from partq.core.model import PartitionId
from partq.wire.calls.browse import BrowsedMessage, BrowsedPage, BrowsedRow
from partq.wire.calls.positions import PositionResult


class Router:
    """Answers as the owners of partitions do: a log is the time of each of its messages."""

    def __init__(self, logs, *, trimmed=0, page=1000):
        self.logs = {PartitionId(1, index): times for index, times in enumerate(logs)}
        self.read = 0
        self._trimmed = trimmed
        self._page = page

    async def ask_each(self, method, path, partitions, body, kind):
        asked = body(list(partitions))
        if path == "/positions":
            assert (method, kind, asked.to) == ("POST", PositionResult, "latest")
            return {each: self._end(each) for each in partitions}
        assert (method, path, kind) == ("POST", "/browse", BrowsedPage)
        return {each: self._answer(each, asked) for each in partitions}

    def _end(self, partition):
        end = len(self.logs[partition])
        return PositionResult(end, 1, min(self._trimmed, end), end)

    def _answer(self, partition, asked):
        times = self.logs[partition]
        first = min(self._trimmed, len(times))
        start = min(max(asked.offsets[str(partition)], first), len(times))
        stop = min(len(times), start + min(asked.max_messages, self._page))
        rows = [
            BrowsedRow(
                1,
                BrowsedMessage(
                    partition=str(partition), offset=at, publish_time_ms=times[at],
                    append_broker_epoch=1, key=f"k{at % 3}", value="v", headers={},
                    event_time_ms=0,
                ),
            )
            for at in range(start, stop)
        ]  # fmt: skip
        self.read += len(rows)
        why = "end" if stop == len(times) else "size"
        return BrowsedPage(rows, stop, why, first, len(times))


def everything(router, trimmed=0):
    return sorted(
        (at_ms, partition, offset)
        for partition, times in router.logs.items()
        for offset, at_ms in enumerate(times)
        if offset >= trimmed
    )


def places(found):
    return [(each.publish_time_ms, each.partition, each.offset) for each in found.messages]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 50), max_size=40).map(sorted), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(0, 10),
    st.integers(1, 7),
)
async def test_the_newest_by_the_time_of_storing(logs, most, trimmed, page):
    router = Router(logs, trimmed=trimmed, page=page)
    found = await find_newest(router, list(router.logs), most, lambda _: True)
    whole = everything(router, trimmed)
    times = [at_ms for at_ms, *_ in whole[-most:]]
    assert [at_ms for at_ms, *_ in places(found)] == times
    assert set(places(found)) <= set(whole)
    assert places(found) == sorted(places(found))
    assert found.ends == {partition: len(times) for partition, times in router.logs.items()}


async def test_of_long_logs_only_the_end_is_read():
    """1,024 partitions of 10,000 messages each, and one that has got the last thousand."""
    clock = count()
    logs = [range(10_000) for _ in range(1023)]
    logs.append([next(clock) + 20_000 for _ in range(10_000)])
    router = Router(logs)
    found = await find_newest(router, list(router.logs), 1000, lambda _: True)
    assert {partition for _, partition, _ in places(found)} == {PartitionId(1, 1023)}
    assert router.read < 20_000


async def test_what_matches_is_searched_for_as_long_as_it_may_be_there(monkeypatch):
    router = Router([list(range(3000))])
    found = await find_newest(router, list(router.logs), 3, lambda each: each.offset < 2)
    assert [offset for *_, offset in places(found)] == [0, 1]
    assert not found.is_cut
    monkeypatch.setattr(newest, "MAX_SEARCHED", 100)
    found = await find_newest(router, list(router.logs), 3, lambda each: each.offset < 2)
    assert (found.messages, found.is_cut, found.searched) == ([], True, 100)


@pytest.mark.parametrize("most_searched", [1, 100, 1001, 2999])
async def test_no_search_reads_more_than_the_bound(monkeypatch, most_searched):
    """Many logs are read side by side: their pieces share what is left."""
    monkeypatch.setattr(newest, "MAX_SEARCHED", most_searched)
    router = Router([list(range(100)) for _ in range(30)])
    found = await find_newest(router, list(router.logs), 50, lambda _: False)
    assert (found.searched, found.is_cut) == (most_searched, True)


@pytest.mark.parametrize("most", [1, 3])
async def test_a_queue_without_messages(most):
    found = await find_newest(Router([[], []]), [PartitionId(1, 0)], most, lambda _: True)
    assert (found.messages, found.ends, found.is_cut) == ([], {PartitionId(1, 0): 0}, False)
