"""Two queries in one consumer group: the second one is refused, a restart is not."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pyspark
import pytest

from partq.errors import ConflictError
from partq.spark.read.query_reader import GroupLease, QueryReader
from tests.spark.live_queue import live_queue
from tests.spark.read.stream_steps import StreamSteps, stream_steps

ADMITS = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)


@pytest.fixture(scope="module")
def queue():
    groups = ["lake", "twice", "freed", "stops", "dead", "silent", "idle", "ends", "begins"]
    with live_queue(partitions=2, groups=groups) as running:
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


def test_a_query_that_continues_has_its_group_while_no_messages_come(queue):
    options = queue.options(group="idle", startingOffsets="earliest")
    with stream_steps(options) as first:
        start = first.begin()
        end = first.end(start)
        assert first.read(start, end) == 20
    with stream_steps(options) as again:
        latest = again.end(end)
        if not ADMITS:  # Spark runs an empty micro-batch, because of the query's new name
            assert again.read(end, latest) == 0
        with stream_steps(options) as second:
            begun = second.begin() if ADMITS else None
            assert "another query" in (
                refused(second.end, begun) if ADMITS else refused(second.begin)
            )
        again.end(latest)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_query_stops_does_not_keep_its_group(queue, number, monkeypatch):
    """Spark closes the connection and sends the signal at the same time."""
    release = GroupLease.release

    async def release_after_signal(lease):
        signal.pthread_kill(threading.main_thread().ident, number)
        await release(lease)

    options = queue.options(group="ends", startingOffsets="earliest")
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        first = StreamSteps(options)
        first.reader.stop_on_signals()
        start = first.begin()
        assert first.read(start, first.end(start)) == 20
        with monkeypatch.context() as patch:
            patch.setattr(GroupLease, "release", release_after_signal)
            first.reader.stop()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    with stream_steps(options) as second:
        start = second.begin()
        assert second.read(start, second.end(start)) == 20


def test_a_query_that_stops_while_it_takes_its_group_gives_it_up(queue, monkeypatch):
    taken, stops = threading.Event(), threading.Event()
    set_pin, release = QueryReader.set_pin, GroupLease.release

    async def set_slowly(reader, name, partition, number):
        set_to = await set_pin(reader, name, partition, number)
        if number > 1 and not taken.is_set():
            taken.set()
            await asyncio.to_thread(stops.wait)
        return set_to

    async def release_meanwhile(lease):
        stops.set()
        await release(lease)

    options = queue.options(group="begins", startingOffsets="earliest")
    first = StreamSteps(options)
    start = first.begin()
    end = first.end(start)
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(QueryReader, "set_pin", set_slowly)
        patch.setattr(GroupLease, "release", release_meanwhile)
        reading = threads.submit(first.read, start, end)
        taken.wait()
        first.reader.stop()
        reading.exception()  # its connections are closed, or were just in time
    with stream_steps(options) as second:
        start = second.begin()
        assert second.read(start, second.end(start)) == 20


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
