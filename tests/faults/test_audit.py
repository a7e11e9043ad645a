"""The audit record is whole, wherever a broker dies: what counts is on record, once."""

from contextlib import suppress

import pytest

from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from tests.audit_record import check_chain, check_record, decode_group
from tests.faults.processes import DieAt
from tests.faults.stage import GROUP
from tests.faults.traffic import MOVES, STAYS


async def groups_of(stage, partition, start=0):
    """Return the groups of a partition, each of which follows the one before."""
    groups = await stage.audits.read(partition, start, max_bytes=1 << 26)
    check_chain(groups, start)
    return groups


async def check(stage, partition):
    """Compare the record of a partition with what is stored, and with what members processed."""
    stored = await stage.partitions.read(partition)
    cursor = await stage.partitions.read_cursor(partition, GROUP)
    records = check_record(
        partition,
        await groups_of(stage, partition),
        group=GROUP,
        end=stored.next,
        cursor=cursor.cursor,
        acked=cursor.acked,
    )
    delivered = {}
    for each in records:
        if each.kind == "deliver":
            key = (each.member, each.broker_epoch, each.epoch)
            delivered.setdefault(key, Ranges()).add(each.first, each.stop)
    rows = [row for row in stage.traffic.look().deliveries if row.partition == str(partition)]
    assert rows
    for row in rows:
        told = delivered[row.member, row.broker_epoch, row.epoch]
        assert told.count(row.offset, row.offset + 1), f"{row} is not on record"
    return records


@pytest.mark.parametrize(
    ("operation", "count"),
    [
        ("append_batches", 3),
        ("write_audit", 2),
        ("flush_cursor", 3),
        ("bind_member", 1),
        ("commit_handoff", 1),
    ],
)
@pytest.mark.parametrize("phase", ["before", "after"])
async def test_the_broker_dies(bare_stage, phase, operation, count):
    """In the middle of traffic and of a handoff; it is started again."""
    stage = bare_stage
    armed = stage.directory / "armed"
    await stage.open(die_at=DieAt(phase, operation, str(armed), count), is_audited=True)
    stage.traffic.publish()
    armed.touch()
    if operation == "bind_member":
        await stage.kill("a")
        stage.start_member("a")
    elif operation == "commit_handoff":
        stage.start_coordinator()
    await stage.processes["orders-1"].ended()
    stage.start_broker("orders-1")
    if operation != "commit_handoff":
        stage.start_coordinator()
    await stage.traffic.until_processed("b")
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE, Cause.FLOW_LOST])
    await stage.traffic.quiet()
    await stage.traffic.all_processed()
    await all_acked(stage)
    records = await check(stage, MOVES)
    await check(stage, STAYS)
    assert [each.target for each in records if each.kind == "commit"][-1] == "b"


async def all_acked(stage):
    """Wait until what was processed is acknowledged."""

    async def is_all():
        for partition in (STAYS, MOVES):
            cursor = await stage.partitions.read_cursor(partition, GROUP)
            if cursor.cursor < (await stage.partitions.read(partition)).next:
                return False
        return True

    await eventually(is_all, "everything is acknowledged")


async def copied(stage):
    """Return the record of a partition and a copy of the store that holds just that.

    Brokers continue meanwhile: they trim what was acknowledged, and say so in the record.
    """
    while True:
        kept = await groups_of(stage, MOVES)
        copy = stage.redis.back_up()
        if await groups_of(stage, MOVES) == kept:
            return kept, copy


async def test_a_store_that_was_rolled_back_shows_a_fork(bare_stage):
    """An archive that had the lost groups sees others in their place, under a later claim."""
    stage = bare_stage
    await stage.open(is_audited=True)
    await stage.traffic.all_processed()
    await all_acked(stage)
    kept, copy = await copied(stage)
    await stage.traffic.once("lost")
    await stage.traffic.stored()
    await stage.traffic.all_processed()
    archived = await groups_of(stage, MOVES)
    lost = archived[len(kept) :]
    assert lost
    await stage.redis.roll_back(copy)

    async def has_gone_on():
        with suppress(StoreUnavailableError):
            state = await stage.audits.read_state(MOVES)
            return state.next > len(kept)

    await eventually(has_gone_on, "the record continues")
    now = await groups_of(stage, MOVES)
    assert now[: len(kept)] == kept
    assert now[len(kept)].chain != lost[0].chain
    claim, *_ = decode_group(MOVES, now[len(kept)])
    assert claim.kind == "claim"
    last, *_ = decode_group(MOVES, lost[-1])
    assert claim.broker_epoch > last.broker_epoch
