"""Undecodable messages: refused, or kept beside the archive, noted and passed."""

from uuid import uuid4

import aiohttp
import pytest
from crc32c import crc32c

from partq import PartitionId
from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.core.readers.partition_order import PartitionOrder
from partq.errors import RolledBackError, UndecodableError
from partq.pipeline.access import QueueAccess
from partq.pipeline.archive.undecodable import UndecodableMessages, UndecodableRange
from partq.pipeline.archive_files import read_archive, read_state
from partq.pipeline.manifest import ArchivePosition
from partq.pipeline.planning import Span
from partq.pipeline.storage.local_files import LocalFiles
from partq.pipeline.watch import JobWatch
from partq.testing.frame_peers import ProducerPeer, key_of
from partq.wire import batch, frames
from tests.pipeline.archive import test_archiver
from tests.pipeline.archive.test_archiver import GROUP, archive
from tests.spark.live_queue import live_queue

engine = test_archiver.engine
A, B, NEXT = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)
OTHER, LAST = PartitionId(2, 1), PartitionId(3, 0)
LAYOUT = Layout.first(2)
GARBAGE = b"\xc1" * 20


@pytest.fixture(scope="module")
def queue():
    with live_queue(partitions=2, groups=[GROUP]) as running:
        yield running


def known(tmp_path, **ranges):
    access = QueueAccess("http://localhost", "orders", "default", "t")
    found = UndecodableMessages(access, LocalFiles(str(tmp_path)), JobWatch(), is_passed=True)
    found._known = {
        {"a": A, "b": B, "n": NEXT}[name]: [UndecodableRange(*each, 9, "p") for each in places]
        for name, places in ranges.items()
    }
    return found


def span(first, stop, lost_from=None):
    return Span(ArchivePosition(first, 7), stop, lost_from)


def passing(first, stop):
    return Span(ArchivePosition(stop, 9), stop, first)


@pytest.mark.parametrize(
    ("spans", "taken", "passed"),
    [
        pytest.param({A: span(0, 30)}, {A: span(0, 10)}, {}, id="up to it"),
        pytest.param({A: span(0, 10)}, {A: span(0, 10)}, {}, id="before it"),
        pytest.param({A: span(15, 30)}, {A: span(15, 20)}, {}, id="between two"),
        pytest.param({A: span(25, 30)}, {A: span(25, 30)}, {}, id="behind all"),
        pytest.param({A: span(10, 30)}, {A: passing(10, 12)}, {A: (10, 12)}, id="pass it"),
        pytest.param({A: span(11, 30)}, {A: passing(11, 12)}, {A: (10, 12)}, id="from within"),
        pytest.param({A: span(10, 11)}, {A: passing(10, 12)}, {A: (10, 12)}, id="it as a whole"),
        pytest.param({A: span(10, 30, 5)}, {A: span(10, 10, 5)}, {}, id="first what was lost"),
        pytest.param(
            {A: span(0, 30), B: span(0, 5), NEXT: span(0, 9), LAST: span(0, 3)},
            {A: span(0, 10), B: span(0, 5)}, {},
            id="a successor waits, and so does its own",
        ),
        pytest.param(
            {A: span(0, 30), OTHER: span(0, 4)},
            {A: span(0, 10), OTHER: span(0, 4)}, {},
            id="a successor whose seal lies before it does not wait",
        ),
    ],
)  # fmt: skip
def test_a_step_ends_before_undecodable_messages_or_passes_them(tmp_path, spans, taken, passed):
    order = PartitionOrder({NEXT: {A: 11}, OTHER: {A: 10}, LAST: {NEXT: 0}})
    found = known(tmp_path, a=[(10, 12), (20, 25)]).around(spans, order)
    ranges = {each: UndecodableRange(*places, 9, "p") for each, places in passed.items()}
    assert found == (taken, ranges)


def test_a_batch_that_the_store_has_lost_is_not_passed(tmp_path):
    messages = known(tmp_path)
    passed = {A: UndecodableRange(10, 12, 9, "p")}
    messages.check(passed, {"1.0": ArchivePosition(12, 9)})
    with pytest.raises(RolledBackError, match=r"partition 1\.0: the messages 10 to 11 were stored"):
        messages.check(passed, {"1.0": ArchivePosition(12, 10)})


def publish(queue, partition, *values, damage=bytes):
    """Publish one batch, as a foreign producer; return offset and batch."""
    key = key_of(LAYOUT, partition)
    bodies = [
        each if isinstance(each, bytes) else batch.encode_message(batch.Message(key, each.encode()))
        for each in values
    ]
    data = damage(batch.encode(bodies, [slot_of(key)] * len(bodies)))

    async def send():
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {queue.broker.tokens.produce}"}
        ) as http:
            url = f"{queue.broker.url}/v1/queues/{queue.name}/publish"
            async with http.ws_connect(url) as socket:
                peer = ProducerPeer(socket, LAYOUT)
                await peer.send(frames.ProducerHello(uuid4().hex))
                await peer.expect(frames.ProducerWelcome)
                await peer.send(frames.Publish(1, 1, partition, 0, 0), data)
                published, _ = await peer.expect(frames.Published)
                return published.offset

    return queue.run(send()), data


def test_undecodable_messages_are_refused_or_kept_and_noted(engine, spark, queue, tmp_path):
    first = queue.cursors(GROUP)
    queue.publish(range(20))
    one, mixed = publish(queue, 0, "good", GARBAGE, "fine", GARBAGE)
    queue.publish(range(20))
    two, broken = publish(queue, 1, *map(str, range(200)), damage=broken_body)
    with pytest.raises(UndecodableError) as refused:
        archive(engine, queue, tmp_path)
    told = f"202 messages are undecodable, at offsets {one + 1} of partition 1.0, "
    assert told in refused.value.message
    assert "with --skip-undecodable it keeps" in refused.value.message
    assert queue.cursors(GROUP) == first

    said = []
    watch = JobWatch(on_line=said.append)
    done = archive(engine, queue, tmp_path, watch=watch, skips_undecodable=True)

    folder = "_partq/undecodable/queue_partition="
    expected = [
        (0, one + 1, one + 2, mixed),
        (0, one + 3, one + 4, mixed),
        (1, two, two + 200, broken),
    ]
    gaps = sorted(done.gaps, key=lambda gap: (gap.partition, gap.first))
    assert [(gap.partition, gap.first, gap.stop) for gap in gaps] == [
        (f"1.{index}", low, high) for index, low, high, _ in expected
    ]
    for gap, (index, *_, data) in zip(gaps, expected, strict=True):
        assert gap.undecodable_path.startswith(f"{folder}1.{index}/")
        assert (tmp_path / gap.undecodable_path).read_bytes() == data
    assert sum("are undecodable; the archive notes that" in line for line in said) == 3
    assert done.rows == {"messages": 42}
    assert queue.cursors(GROUP) == done.positions["messages"]
    assert set(read_state(spark, str(tmp_path)).gaps) == set(gaps)
    ends = queue.reading(lambda reader: reader.bounds())
    left_out = {(gap.partition, at) for gap in gaps for at in range(gap.first, gap.stop)}
    assert {
        (row.partition, row.offset) for row in read_archive(spark, str(tmp_path)).collect()
    } == {
        (str(partition), at)
        for partition, bounds in ends.items()
        for at in range(first[str(partition)], bounds.end)
    } - left_out

    queue.publish(range(10))
    assert archive(engine.other, queue, tmp_path).rows == {"messages": 10}


def broken_body(data):
    """Return a batch that names a codec which its body is not compressed with."""
    head = data[:3] + bytes([batch.Codec.LZ4]) + data[4 : batch.HEADER_SIZE - 4]
    rest = data[batch.HEADER_SIZE :]
    return head + crc32c(rest, crc32c(head)).to_bytes(4, "little") + rest
