"""A real queue whose partition count changes twice: what Spark and archives read, and its audit.

One run is for all tests: a producer publishes and members consume over both changes. An archive is
made before, between and after them. The group `lake` reads nothing, so all messages stay stored.
"""

import asyncio
import re
from collections import defaultdict
from contextlib import asynccontextmanager, suppress

import aiohttp
import pyarrow as pa
import pytest
from pyarrow import parquet

from partq import Consumer, LogReader, Producer
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import remove
from partq.errors import ConflictError, DataLossError, FencedError
from partq.pipeline.advise.archived_table import archived_table
from partq.pipeline.archive_log import ArchiveLog
from partq.pipeline.audit.judge.changes.lineage import LineageJudge
from partq.pipeline.audit.judge.feeding import whole_sequences
from partq.pipeline.audit.judge.record import RecordJudge
from partq.pipeline.manifest import select
from partq.pipeline.storage.local_files import LocalFiles
from partq.spark.read.log_thread import LogThread
from partq.spark.read.options import read_options
from partq.spark.read.read_planner import ReadPlanner
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.layout.layouts import Layouts
from partq.testing import eventually
from partq.wire import batch
from tests.pipeline.audit.content.real_archive import archive, audit
from tests.spark.live_queue import live_queue

KEYS = [f"key-{number}" for number in range(30)]
COUNTS = (5, 2)
"""Partitions after each change; there are 3 before."""
ROUNDS = 10
"""Messages of each key between two changes."""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("changed") / "archive"


@pytest.fixture(scope="module")
def queue(root):
    groups = ["workers", "archive", "lake"]
    with live_queue(partitions=3, groups=groups, broker_count=2, spec={"audit": True}) as running:
        with LogThread(read_options(running.options(), is_stream=True).connection) as log:
            running.began = ReadPlanner(log, stream_options(running)).start()
        running.run(changes(running, root), timeout_s=400)
        archive(running, root)
        running.stored = running.run(stored(running))
        yield running


def stream_options(queue):
    return read_options(queue.options(startingOffsets="earliest"), is_stream=True)


async def changes(queue, root):
    """Publish and consume while the number of partitions changes."""
    broker, done = queue.broker, set()
    async with (
        asyncio.timeout(300),
        members(broker, done),
        Producer(broker.url, queue=queue.name, token=broker.tokens.produce) as producer,
    ):
        first = 0
        for generation, count in enumerate((*COUNTS, 0), 2):
            publishing = asyncio.create_task(publish(producer, first))
            if count:
                await change(broker, queue.name, count)
                await eventually(
                    lambda g=generation: g in {producer.partition_of(k).generation for k in KEYS},
                    f"slots are in partitions of generation {generation}",
                    timeout_s=120,
                )
            await publishing
            await asyncio.to_thread(archive, queue, root)
            first += ROUNDS
        await producer.flush()
        await eventually(
            lambda: len(done) == len(KEYS) * first, "all is acknowledged", timeout_s=120
        )


@asynccontextmanager
async def members(broker, done):
    """Have two members consume; `done` gets what they have acknowledged."""
    tasks = [asyncio.create_task(consume(broker, name, done)) for name in ("a", "b")]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def publish(producer, first):
    for number in range(first, first + ROUNDS):
        for key in KEYS:
            await producer.send(b"%d" % number, key=key)


async def consume(broker, member, done):
    async with Consumer(
        broker.url, queue="orders", group="workers", token=broker.tokens.consume, member=member
    ) as consumer:
        async for delivery in consumer:
            done.add((delivery.key, delivery.value))
            with suppress(FencedError):
                await delivery.ack()


async def change(broker, name, count):
    url = f"{broker.queue.brokers[0].url}/admin/v1/queues/{name}/partitions"
    headers = {"Authorization": f"Bearer {broker.tokens.admin}"}
    async with (
        aiohttp.ClientSession(headers=headers) as http,
        http.post(url, json={"partitions": count}) as response,
    ):
        assert response.ok, await response.text()


async def stored(queue):
    """Return the messages of each partition: key and number."""
    async with LogReader(
        queue.broker.url, queue=queue.name, token=queue.broker.tokens.consume
    ) as reader:
        return {
            partition: [
                (message.key, int(message.value))
                async for each in reader.entries(partition, 0)
                for message in batch.decode(each.data)
            ]
            for partition in await reader.partitions()
        }


async def layout_of(queue):
    async with LogReader(
        queue.broker.url, queue=queue.name, token=queue.broker.tokens.consume
    ) as reader:
        return await reader.layout()


def test_the_run_has_messages_in_three_generations(queue):
    assert {each.generation for each, found in queue.stored.items() if found} == {1, 2, 3}


@pytest.mark.parametrize("limit", [7, 50, None])
def test_micro_batches_have_the_messages_of_each_key_in_order(queue, limit):
    """Within a micro-batch they are sorted by generation and offset, as the documentation says."""
    by_key = defaultdict(list)
    with LogThread(stream_options(queue).connection) as log:
        plan = ReadPlanner(log, stream_options(queue))
        start, steps = queue.began, 0
        while (end := plan.next_end(start, limit=limit)) != start:
            begun = {each: position for each, position in start.items() if each in end}
            ranges = plan.ranges(plan.begin(begun, end), end)
            assert limit is None or sum(each.size for each in ranges) <= limit
            for each in sorted(ranges, key=lambda part: part.partition):
                for key, number in queue.stored[each.partition][each.start : each.stop]:
                    by_key[key].append(number)
            start, steps = end, steps + 1
        layout = log.layout()
    assert by_key == {key: list(range(ROUNDS * (len(COUNTS) + 1))) for key in KEYS}
    assert not layout.retired.keys() & start.keys(), "they were read, and may go"
    assert steps > 1


def test_the_archive_has_each_message_once_and_knows_where_slots_came_from(queue, root):
    state = ArchiveLog.open(LocalFiles(str(root))).load()
    assert {
        PartitionId.parse(name): at.offset for name, at in state.positions["messages"].items()
    } == {each: len(found) for each, found in queue.stored.items()}
    made = {str(each) for each in queue.stored if each.generation > 1}
    assert state.lineage.keys() == made
    for name, predecessors in state.lineage.items():
        for giver, told in predecessors.items():
            assert PartitionId.parse(giver).generation < PartitionId.parse(name).generation
            assert told.sealed_at <= len(queue.stored[PartitionId.parse(giver)])
    assert archived_table(state) == queue.run(layout_of(queue)).table


def test_the_audit_is_clean(queue, root, tmp_path):
    verdict, findings = audit(root, tmp_path / "report")
    assert findings == []
    assert verdict.text == "clean"
    assert verdict.totals.published == sum(map(len, queue.stored.values()))


@pytest.fixture(scope="module")
def record(queue, root):
    """The lines of the archived audit record, by partition."""
    files = ArchiveLog.open(LocalFiles(str(root))).load().files.values()
    found = {}
    for name in sorted({each.partition for each in files}):
        paths = [f"{root}/{each.path}" for each in select(files, "audit", partitions=[name])]
        table = pa.concat_tables(parquet.ParquetFile(path).read() for path in paths)
        table = table.sort_by([("sequence", "ascending"), ("place", "ascending")])
        found[name] = [line for lines in whole_sequences(table.to_batches()) for line in lines]
    return found


def judged(record):
    """Return the kinds of findings that speak of changes of the partition count, by partition."""
    lineage, found = LineageJudge(), []
    for name, lines in record.items():
        judge = RecordJudge(name, is_from_start=True)
        judge.judge(lines)
        lineage.add(judge.finish().changes)
        found += judge.findings
    found += lineage.findings()
    checks = {"seal", "lineage", "gate"}
    return {(each.what, each.partition) for each in found if each.check in checks}


def without(record, name, kind):
    """Return a record without the groups that begin with a line of a kind, and without a gap."""
    gone = {line.sequence for line in record[name] if line.kind == kind}
    left = [line for line in record[name] if line.sequence not in gone]
    numbers = {old: new for new, old in enumerate(sorted({line.sequence for line in left}))}
    return record | {name: [line._replace(sequence=numbers[line.sequence]) for line in left]}


def altered(record, name, kind, **fields):
    changed = [line._replace(**fields) if line.kind == kind else line for line in record[name]]
    return record | {name: changed}


def test_faults_that_are_planted_into_the_real_record_are_found(queue, record):
    assert judged(record) == set()
    old = next(name for name, lines in record.items() if any(x.kind == "seal" for x in lines))
    kinds = {name: {line.kind for line in lines} for name, lines in record.items()}
    new = next(name for name in record if {"open", "gate", "publish", "deliver"} <= kinds[name])
    assert judged(without(record, new, "gate")) >= {("delivered_before_gate", new)}
    assert judged(without(record, new, "open")) >= {("published_before_open", new)}
    strange = altered(record, new, "open", target=f"{old}:0:0-1")
    assert ("slot_not_taken", new) in judged(strange)
    (opening,) = (line for line in record[new] if line.kind == "open")
    giver = opening.target.partition(":")[0]
    assert ("opened_before_seal", new) in judged(altered(record, giver, "seal", stop=2**40))
    assert ("slot_covered_twice", new) in judged(altered(record, giver, "seal", target="0-65536"))
    gates = [line for line in record[new] if line.kind == "gate" and line.target]
    early = re.sub(r"(:\d+):\d+", r"\1:1", gates[0].target)
    assert ("gate_too_early", new) in judged(altered(record, new, "gate", target=early))


async def remove_retired(queue):
    """Have the last group done with all, and the retired partitions removed at once."""
    broker = queue.broker
    async with LogReader(broker.url, queue=queue.name, token=broker.tokens.consume) as reader:
        await reader.commit("lake", await reader.positions("latest"))
        store = await Store.open(broker.runtime.redis_url)
        layouts = Layouts(store, Keys(store.prefix, "default", queue.name, broker.queue.uid))

        async def is_removed():
            layout = (await layouts.read()).layout
            with suppress(ConflictError):  # not settled yet, or the coordinator was faster
                if layout.retired:
                    await layouts.write(
                        remove(layout, *layout.retired), removed=list(layout.retired)
                    )
            return not (await reader.layout()).retired

        try:
            await eventually(is_removed, "retired partitions are removed", timeout_s=60)
        finally:
            await store.close()


def test_partitions_that_are_removed_stay_in_the_archive(queue, root, tmp_path):
    """It is the last test: the partitions of the others are gone after it."""
    with LogThread(stream_options(queue).connection) as log:
        before = ReadPlanner(log, stream_options(queue)).latest()
    queue.run(remove_retired(queue))
    queue.publish(range(30))
    archive(queue, root)
    archive(queue, root)  # what an earlier run told the queue is told again
    state = ArchiveLog.open(LocalFiles(str(root))).load()
    assert {PartitionId.parse(name) for name in state.positions["messages"]} == before.keys()
    verdict, findings = audit(root, tmp_path / "report")
    assert findings == []
    assert verdict.totals.published == sum(map(len, queue.stored.values())) + 30

    grouped = read_options(queue.options(group="lake"), is_stream=True)
    with LogThread(grouped.connection) as log:
        plan = ReadPlanner(log, grouped)
        end = plan.next_end(before, limit=None)
        assert {each.generation for each in end} == {3}
        assert sum(each.size for each in plan.ranges(plan.begin(end, end), plan.latest())) == 0
        with pytest.raises(DataLossError, match=r"partition 1\.\d is gone"):
            ReadPlanner(log, stream_options(queue)).next_end(before, limit=None)
