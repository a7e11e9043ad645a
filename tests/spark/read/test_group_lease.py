"""Two queries in one consumer group: the second one is refused, a restart is not."""

from concurrent.futures import ThreadPoolExecutor

import pyspark
import pytest

from partq.errors import ConflictError
from partq.spark.read.query_reader import GroupLease
from tests.spark.live_queue import live_queue
from tests.spark.read.stream_steps import StreamSteps, stream_steps

ADMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


@pytest.fixture(scope="module")
def queue():
    with live_queue(
        partitions=2, groups=["lake", "twice", "freed", "stops", "dead", "silent"]
    ) as running:
        running.publish(range(20))
        yield running


@pytest.fixture(autouse=True)
def _no_query_stops(monkeypatch):
    """Have no query wait for another one to stop: here those that are refused run on."""
    set_times(monkeypatch)


def set_times(monkeypatch, *, stop_s=0.0, renew_s=0.05, lease_s=600.0):
    """Set how long leases made from now on last; those of running queries are renewed often."""
    times = {"stop_s": stop_s, "renew_s": renew_s, "lease_s": lease_s}
    monkeypatch.setattr(GroupLease.__init__, "__kwdefaults__", times)


def refused(call, *arguments):
    with pytest.raises(ConflictError) as caught:
        call(*arguments)
    return caught.value.message


def test_a_second_query_is_refused_before_it_moves_a_cursor(queue):
    with stream_steps(queue.options(group="lake")) as first:
        start = first.begin()
        end = first.end(start)
        assert first.read(start, end) == 20
        with stream_steps(queue.options(group="lake", startingOffsets="latest")) as second:
            begun = second.begin() if ADMITS else None
            message = refused(second.end, begun) if ADMITS else refused(second.begin)
        assert "group 'lake': another query" in message
        assert "stop one of them, or give each a separate group" in message
        assert set(queue.cursors("lake").values()) == {0}
        # The first one is not disturbed.
        assert first.read(start, end) == 20
        first.end(end)
        assert sum(queue.cursors("lake").values()) == 20


def test_two_that_begin_together_do_not_both_read(queue):
    with (
        stream_steps(queue.options(group="twice")) as first,
        stream_steps(queue.options(group="twice")) as second,
    ):
        start, other_start = first.begin(), second.begin()
        end, other_end = first.end(start), second.end(other_start)
        assert first.read(start, end) == 20
        assert "another query" in refused(second.read, other_start, other_end)


def test_a_query_that_stops_gives_its_group_up(queue):
    for _ in range(2):  # each with another checkpoint
        with stream_steps(queue.options(group="freed", startingOffsets="earliest")) as steps:
            start = steps.begin()
            assert steps.read(start, steps.end(start)) == 20


def test_a_query_waits_for_one_that_stops(queue, monkeypatch):
    set_times(monkeypatch, stop_s=60.0)
    first = StreamSteps(queue.options(group="stops", startingOffsets="earliest"))
    start = first.begin()
    assert first.read(start, first.end(start)) == 20
    with stream_steps(queue.options(group="stops", startingOffsets="earliest")) as second:
        begun = second.begin() if ADMITS else None
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(second.end, begun) if ADMITS else threads.submit(second.begin)
            first.reader.stop()
            assert waiting.result()


def test_a_killed_query_goes_on_at_once_and_its_earlier_process_does_not(queue):
    killed = StreamSteps(queue.options(group="dead"))
    start = killed.begin()
    end = killed.end(start)
    assert killed.read(start, end) == 20
    try:
        with stream_steps(queue.options(group="dead")) as restarted:
            assert restarted.read(start, end) == 20
            assert "a later start of this one" in refused(killed.read, start, end)
            assert "a later start of this one" in refused(killed.end, end), "and for good"
            killed.reader.stop()
            assert restarted.read(start, end) == 20
            with stream_steps(queue.options(group="dead")) as other:
                begun = other.begin() if ADMITS else None
                assert "another query" in (
                    refused(other.end, begun) if ADMITS else refused(other.begin)
                )
    finally:
        killed.reader.stop()


def test_a_query_that_does_not_renew_its_lease_loses_the_group(queue, monkeypatch, caplog):
    """As one that was killed, to a query with another checkpoint."""
    set_times(monkeypatch, renew_s=3_600.0)
    silent = StreamSteps(queue.options(group="silent", startingOffsets="earliest"))
    try:
        start = silent.begin()
        end = silent.end(start)
        assert silent.read(start, end) == 20
        set_times(monkeypatch, lease_s=0.1)
        with stream_steps(queue.options(group="silent", startingOffsets="earliest")) as other:
            begun = other.begin()
            assert other.read(begun, other.end(begun)) == 20
            assert "this query takes over" in caplog.text
            message = refused(silent.end, end)
            assert "another query, or a later start of this one" in message
            assert "loses its group after 600 s" in message
    finally:
        silent.reader.stop()


def test_without_room_for_its_pins_a_query_reads_and_warns(caplog):
    with live_queue(partitions=1, groups=["lake"]) as full:
        full.publish(range(5))

        async def fill(reader):
            (partition,) = await reader.partitions()
            for number in range(16):
                await reader.pin(f"other-{number}", {partition: 0})

        full.reading(fill)
        with stream_steps(full.options(group="lake")) as steps:
            start = steps.begin()
            assert steps.read(start, steps.end(start)) == 5
        assert "a second query in it would not be noticed" in caplog.text
