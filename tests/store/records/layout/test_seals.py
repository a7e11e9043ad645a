"""Seals, openings and gates: each goes one way, a repeat changes nothing, and owners are fenced."""

import pytest

from partq.core.model import BrokerId, PartitionId
from partq.core.rescale.resets import new_reset_id
from partq.errors import (
    ConflictError,
    FencedError,
    NotStoredError,
    StaleGenerationError,
    UnknownGroupError,
    UnknownPartitionError,
)
from partq.store.records.layout.seals import PRODUCERS_STAY_MS, Seals
from partq.store.records.log import AppendBatch
from partq.store.records.stored_partition import CLOSED_GATE, OPEN_GATE, PartitionLayout
from partq.wire import audit
from tests.store.record import BORN, GROUP, flush, write

KEPT, MOVED = range(100), range(100, 65_536)
NEXT = PartitionId(2, 1)
PREDECESSORS = {PartitionId(1, 0): (MOVED,)}
PASSED = {PartitionId(1, 0): (10, 4)}


@pytest.fixture
def seals(store, keys):
    return Seals(store, keys)


@pytest.fixture
async def successor(partitions, seals):
    """A partition that waits for the seal of its predecessor; returns its broker epoch."""
    await seals.create_successor(NEXT, PREDECESSORS, [MOVED])
    await partitions.add_group(NEXT, GROUP, start="Earliest")
    return await claimed(partitions, NEXT, wants_audit=True)


async def claimed(partitions, partition, **options):
    """Claim a partition by another broker."""
    expected = (await partitions.read(partition)).broker_epoch
    claim = await partitions.claim(partition, BrokerId("b-9"), "i-9", expected=expected, **options)
    return claim.broker_epoch


async def kinds(store, keys, partition):
    """Return the kinds of the audit record of a partition, with what they name."""
    entries = await store.read("XRANGE", keys.audit(partition), "-", "+")
    lines = [line for _, fields in entries for line in fields[7].decode().splitlines()[1:]]
    at = [name for name, _ in audit.FIELDS].index
    rows = [line.split("\t") for line in lines]
    return [(row[at("kind")], row[at("first")], row[at("stop")], row[at("target")]) for row in rows]


# ---- records ------------------------------------------------------------------------------------


async def test_a_partition_of_generation_1_has_all_that_it_had(partitions, partition, broker_epoch):
    assert (await partitions.read(partition)).layout == PartitionLayout()
    assert (await partitions.read_cursor(partition, GROUP)).gate == OPEN_GATE


async def test_a_new_partition_waits_for_its_predecessors(partitions, successor):
    layout = (await partitions.read(NEXT)).layout
    assert layout == PartitionLayout(
        generation=2, slots=(MOVED,), predecessors=PREDECESSORS, is_open=False
    )
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == CLOSED_GATE


async def test_a_successor_has_its_slots_and_predecessors(partitions, seals):
    predecessors = {
        PartitionId(1, 0): (range(5, 9),),
        PartitionId(1, 1): (range(9, 12), range(20, 30)),
    }
    for _ in range(2):
        await seals.create_successor(NEXT, predecessors, [range(5, 12), range(20, 30)])
    layout = (await partitions.read(NEXT)).layout
    assert layout.slots == (range(5, 12), range(20, 30))
    assert layout.predecessors == predecessors


async def test_a_claim_returns_what_changes_have_left(
    partitions, partition, broker_epoch, seals, ten_messages
):
    await seals.seal(partition, broker_epoch=broker_epoch, generation=2, slots=[KEPT])
    expected = (await partitions.read(partition)).broker_epoch
    claim = await partitions.claim(partition, BrokerId("b-9"), "i-9", expected=expected)
    assert claim.layout == PartitionLayout(generation=2, slots=(KEPT,), seals={2: 10})


# ---- seal ---------------------------------------------------------------------------------------


async def test_a_seal_stands_at_the_end_of_the_log(
    log, partitions, partition, broker_epoch, seals, ten_messages
):
    seal = {"broker_epoch": broker_epoch, "generation": 2, "slots": [KEPT]}
    assert await seals.seal(partition, **seal) == 10
    await append(log, partition, broker_epoch, b"more")
    assert await seals.seal(partition, **seal) == 10, "a repeat, when there are more messages"
    layout = (await partitions.read(partition)).layout
    assert (layout.generation, layout.slots, layout.seals) == (2, (KEPT,), {2: 10})


async def test_the_next_owner_finds_the_seal_as_it_was(
    log, partitions, partition, broker_epoch, seals, ten_messages
):
    await seals.seal(partition, broker_epoch=broker_epoch, generation=2, slots=[KEPT])
    later = await claimed(partitions, partition)
    await append(log, partition, later, b"more", number=0)
    assert await seals.seal(partition, broker_epoch=later, generation=2, slots=[KEPT]) == 10


async def test_an_owner_that_was_replaced_seals_nothing(partitions, partition, broker_epoch, seals):
    await claimed(partitions, partition)
    with pytest.raises(FencedError):
        await seals.seal(partition, broker_epoch=broker_epoch, generation=2, slots=[])
    assert (await partitions.read(partition)).layout == PartitionLayout()


async def test_a_partition_that_is_not_there_is_not_sealed(seals, partitions):
    with pytest.raises(FencedError):
        await seals.seal(NEXT, broker_epoch=1, generation=3, slots=[])
    assert await partitions.read_many([NEXT]) == {}


async def test_seals_of_two_changes(partitions, partition, broker_epoch, seals, ten_messages):
    """A late call for the first change does not give slots back that the second one has moved."""
    owner = {"broker_epoch": broker_epoch}
    await seals.seal(partition, **owner, generation=2, slots=[KEPT])
    await seals.seal(partition, **owner, generation=4, slots=[])
    assert await seals.seal(partition, **owner, generation=2, slots=[KEPT]) == 10
    layout = (await partitions.read(partition)).layout
    assert (layout.generation, layout.slots, layout.seals) == (4, (), {2: 10, 4: 10})
    with pytest.raises(ConflictError, match="got a seal of change 3"):
        await seals.seal(partition, **owner, generation=3, slots=[KEPT])
    assert (await partitions.read(partition)).layout == layout


async def test_a_seal_removes_those_of_settled_changes(
    log, partitions, partition, broker_epoch, seals, ten_messages
):
    """A partition that is sealed by many changes has the seals of those that are not settled."""
    owner = {"broker_epoch": broker_epoch, "slots": [KEPT]}
    await seals.seal(partition, **owner, generation=2)
    await seals.seal(partition, **owner, generation=3, settled=[2])
    layout = (await partitions.read(partition)).layout
    assert layout.seals == {2: 10, 3: 10}, "its log has messages below them: they are not settled"
    await flush(partitions, partition, broker_epoch, GROUP, 10)
    await log.trim(partition, broker_epoch=broker_epoch)
    for _ in range(2):  # a repeat has the same answer
        assert await seals.seal(partition, **owner, generation=5, settled=[2, 3]) == 10
        assert (await partitions.read(partition)).layout.seals == {5: 10}


async def test_a_partition_that_is_not_open_is_not_sealed(partitions, seals, successor):
    """Its predecessor may still store messages of the slots that would move on."""
    owner = {"broker_epoch": successor}
    with pytest.raises(NotStoredError, match="before its predecessors are sealed"):
        await seals.seal(NEXT, **owner, generation=3, slots=[])
    assert (await partitions.read(NEXT)).layout.seals == {}
    await seals.open_partition(NEXT, **owner, seals={PartitionId(1, 0): 10})
    assert await seals.seal(NEXT, **owner, generation=3, slots=[]) == 0


async def test_the_change_that_made_a_partition_does_not_seal_it(seals, successor):
    owner = {"broker_epoch": successor}
    await seals.open_partition(NEXT, **owner, seals={PartitionId(1, 0): 10})
    with pytest.raises(ConflictError):
        await seals.seal(NEXT, **owner, generation=2, slots=[])


# ---- open ---------------------------------------------------------------------------------------


async def test_a_partition_opens_once(store, keys, partitions, seals, successor):
    for _ in range(2):
        await seals.open_partition(NEXT, broker_epoch=successor, seals={PartitionId(1, 0): 10})
    assert (await partitions.read(NEXT)).layout.is_open
    found = [row for row in await kinds(store, keys, NEXT) if row[0] == "open"]
    assert found == [("open", "0", "", "1.0:10:100-65536")]


async def test_an_owner_that_was_replaced_opens_nothing(partitions, seals, successor):
    await claimed(partitions, NEXT)
    with pytest.raises(FencedError):
        await seals.open_partition(NEXT, broker_epoch=successor, seals={})
    assert not (await partitions.read(NEXT)).layout.is_open


async def test_what_has_no_predecessors_is_left_as_it_is(
    store, keys, partition, broker_epoch, seals
):
    before = await store.read("HGETALL", keys.meta(partition))
    await seals.open_partition(partition, broker_epoch=broker_epoch, seals={})
    assert await store.read("HGETALL", keys.meta(partition)) == before


# ---- gates --------------------------------------------------------------------------------------


async def test_a_gate_opens_once(store, keys, partitions, seals, successor):
    for _ in range(2):
        await open_gate(partitions, seals, successor)
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == OPEN_GATE
    found = [row for row in await kinds(store, keys, NEXT) if row[0] == "gate"]
    assert found == [("gate", "0", "", "1.0:10:4")]


async def test_a_gate_of_another_group_stays_closed(partitions, seals, successor):
    await partitions.add_group(NEXT, "archive", start="Earliest")
    await open_gate(partitions, seals, successor)
    assert (await partitions.read_cursor(NEXT, "archive")).gate == CLOSED_GATE


async def test_an_owner_that_was_replaced_opens_no_gate(partitions, seals, successor):
    await claimed(partitions, NEXT)
    with pytest.raises(FencedError):
        await open_gate(partitions, seals, successor)
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == CLOSED_GATE


async def test_a_late_call_does_not_open_what_a_reset_holds(
    store, keys, partitions, seals, successor
):
    """The predecessor may have been reset since the caller has read its cursor."""
    await store.run("write_fields", [keys.cursor(NEXT, GROUP)], [1, "gate", "r-7@2"])
    with pytest.raises(ConflictError, match="a reset holds its gate"):
        await open_gate(partitions, seals, successor)
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == "r-7@2"
    await open_gate(partitions, seals, successor, gate="r-7@2")
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == OPEN_GATE


async def test_a_late_call_does_not_open_the_gate_of_another_group_of_the_name(
    partitions, seals, successor
):
    before = (await partitions.read_cursor(NEXT, GROUP)).born
    await partitions.remove_group(NEXT, GROUP, born=before)
    with pytest.raises(UnknownGroupError):
        await open_gate(partitions, seals, successor, born=before)
    await partitions.add_group(NEXT, GROUP, start="Earliest")
    with pytest.raises(UnknownGroupError):
        await open_gate(partitions, seals, successor, born=before)
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == CLOSED_GATE


async def test_a_group_that_is_not_there_has_no_gate(store, keys, seals, successor):
    """Also where the caller knows it from an earlier version, which drew no birth."""
    with pytest.raises(UnknownGroupError):
        await seals.open_gate(
            NEXT, "archive", broker_epoch=successor, born=0, gate=CLOSED_GATE, passed={}
        )
    assert not await store.read("EXISTS", keys.cursor(NEXT, "archive"))


async def test_a_group_without_a_gate_is_left_as_it_is(partitions, partition, broker_epoch, seals):
    before = await partitions.read_cursor(partition, GROUP)
    await seals.open_gate(
        partition, GROUP, broker_epoch=broker_epoch, born=BORN, gate=OPEN_GATE, passed={}
    )
    assert await partitions.read_cursor(partition, GROUP) == before


async def open_gate(partitions, seals, broker_epoch, **changes):
    """Open the gate of a group in the successor, as an owner does that has just read its record."""
    arguments = {"born": None, "gate": CLOSED_GATE, "passed": PASSED, **changes}
    if arguments["born"] is None:
        arguments["born"] = (await partitions.read_cursor(NEXT, GROUP)).born
    await seals.open_gate(NEXT, GROUP, broker_epoch=broker_epoch, **arguments)


# ---- resets -------------------------------------------------------------------------------------


async def reset_id(store, name, generation):
    """Return the id of a reset of all partitions that begins now."""
    return new_reset_id(min((await store.read_clocks()).values()), name, generation)


async def reset(partitions, partition, broker_epoch, **changes):
    """Move the cursor of the group to the beginning, as an owner does that has read the record."""
    cursor = await partitions.read_cursor(partition, GROUP)
    return await partitions.reset(
        partition,
        GROUP,
        **write(cursor.born),
        broker_epoch=broker_epoch,
        epoch=cursor.epoch,
        offset=0,
        **changes,
    )


async def test_a_reset_of_all_partitions_holds_the_gate(store, partitions, seals, successor):
    await open_gate(partitions, seals, successor)
    first, second = await reset_id(store, "r7", 2), await reset_id(store, "r8", 2)
    assert (await reset(partitions, NEXT, successor, hold=first)).gate == first
    record = await partitions.read_cursor(NEXT, GROUP)
    assert (record.gate, record.reset) == (first, first)
    with pytest.raises(ConflictError):
        await open_gate(partitions, seals, successor, gate=OPEN_GATE)
    await reset(partitions, NEXT, successor, hold=second)
    with pytest.raises(ConflictError):
        await open_gate(partitions, seals, successor, gate=first)


async def test_a_reset_that_was_ended_moves_nothing(store, partitions, seals, successor):
    """Owners of successors stop to wait for it, and no clock tells whether a step is late."""
    await open_gate(partitions, seals, successor)
    ended = await reset_id(store, "r7", 2)
    assert await seals.end_reset(NEXT, GROUP, ended)
    for number in range(15):
        assert await seals.end_reset(NEXT, GROUP, await reset_id(store, f"n{number}", 2))
        assert await seals.end_reset(NEXT, GROUP, ended), "a repeat pushes none out"
    before = await partitions.read_cursor(NEXT, GROUP)
    with pytest.raises(StaleGenerationError, match="was ended"):
        await reset(partitions, NEXT, successor, hold=ended)
    assert await partitions.read_cursor(NEXT, GROUP) == before
    other = await reset_id(store, "r8", 2)
    assert (await reset(partitions, NEXT, successor, hold=other)).gate == other
    assert not await seals.end_reset(NEXT, "others", ended)


async def test_a_reset_that_was_ended_stays_so_however_many_follow(
    store, partitions, seals, successor
):
    """What bounds the list refuses what began earlier, and nothing that begins later."""
    await open_gate(partitions, seals, successor)
    now_ms = min((await store.read_clocks()).values())
    ids = [new_reset_id(now_ms - 1000 + number, f"r{number}", 2) for number in range(40)]
    for each in [*ids[1:], ids[0]]:
        assert await seals.end_reset(NEXT, GROUP, each)
    before = await partitions.read_cursor(NEXT, GROUP)
    for each in ids:
        with pytest.raises(StaleGenerationError, match="was ended"):
            await reset(partitions, NEXT, successor, hold=each)
    assert await partitions.read_cursor(NEXT, GROUP) == before
    later = new_reset_id(now_ms, "r40", 2)
    assert (await reset(partitions, NEXT, successor, hold=later)).gate == later


async def test_a_clock_that_was_set_back_refuses_no_new_reset(store, partitions, seals, successor):
    """Resets that were ended an hour ahead of the clock say nothing of those that begin now."""
    await open_gate(partitions, seals, successor)
    now_ms = min((await store.read_clocks()).values())
    for number in range(40):
        await seals.end_reset(NEXT, GROUP, new_reset_id(now_ms + 3_600_000, f"r{number}", 2))
    hold = new_reset_id(now_ms, "r40", 2)
    assert (await reset(partitions, NEXT, successor, hold=hold)).gate == hold


async def test_resets_that_were_ended_are_kept_in_bounds(store, keys, partitions, seals, successor):
    for number in range(20):
        await seals.end_reset(NEXT, GROUP, f"1-n{number}@2")
    ended = await store.read("HGET", keys.cursor(NEXT, GROUP), "ended")
    assert ended.split() == [b"1-n%d@2" % number for number in range(4, 20)]


async def test_a_reset_of_one_partition_leaves_its_gate(partitions, seals, successor):
    await open_gate(partitions, seals, successor)
    await reset(partitions, NEXT, successor)
    assert (await partitions.read_cursor(NEXT, GROUP)).gate == OPEN_GATE


async def test_a_partition_without_predecessors_is_not_held(
    store, partitions, partition, broker_epoch, ten_messages
):
    hold = await reset_id(store, "r7", 1)
    assert (await reset(partitions, partition, broker_epoch, hold=hold)).gate == OPEN_GATE
    record = await partitions.read_cursor(partition, GROUP)
    assert (record.gate, record.reset) == (OPEN_GATE, hold), "owners of successors read it"


async def test_a_reset_by_an_older_layout_moves_no_cursor_of_a_sealed_partition(
    store, partitions, partition, broker_epoch, seals, ten_messages
):
    """Its successor, which the caller does not know, could deliver before what is repeated."""
    await flush(partitions, partition, broker_epoch, GROUP, 7)
    await seals.seal(partition, broker_epoch=broker_epoch, generation=2, slots=[KEPT])
    before = await partitions.read_cursor(partition, GROUP)
    with pytest.raises(StaleGenerationError, match="by a later change"):
        await reset(partitions, partition, broker_epoch, hold=await reset_id(store, "r7", 1))
    assert await partitions.read_cursor(partition, GROUP) == before
    await reset(partitions, partition, broker_epoch, hold=await reset_id(store, "r8", 2))
    assert (await partitions.read_cursor(partition, GROUP)).cursor == 0


# ---- probes -------------------------------------------------------------------------------------


async def append(log, partition, broker_epoch, *batches, number=1, producer=""):
    """Append batches of one message each behind the ten messages."""
    return await log.append(
        partition,
        broker_epoch=broker_epoch,
        number=number,
        expected=10,
        batches=[AppendBatch(producer, at, 1, data) for at, data in enumerate(batches)],
        room_bytes=None,
    )


async def test_a_probe_has_the_answer_of_its_number_and_is_never_stored(
    log, store, keys, partition, broker_epoch, ten_messages
):
    """Without bytes: the slots have left, and only a repeat is answered as ever."""
    first = await append(log, partition, broker_epoch, b"stored", b"", b"", producer="p")
    assert [each.status for each in first.results] == ["stored", "moved", "out_of_sequence"]
    assert (first.next, first.results[1].due) == (11, 1)
    later = await log.append(
        partition,
        broker_epoch=broker_epoch,
        number=2,
        expected=11,
        batches=[
            AppendBatch("p", 0, 1, b""),
            AppendBatch("p", 1, 1, b""),
            AppendBatch("", 0, 1, b""),
            AppendBatch("never seen", 0, 1, b""),
            AppendBatch("never seen", 5, 1, b""),
        ],
        room_bytes=None,
    )
    statuses = [each.status for each in later.results]
    assert statuses == ["duplicate", "moved", "moved", "moved", "unknown_producer"]
    assert (later.results[0].offset, later.next) == (10, 11)
    assert await store.read("HKEYS", keys.producers(partition)) == [b"p"], "a probe leaves none"


async def test_what_is_stored_behind_a_probe_has_its_number(
    log, partition, broker_epoch, ten_messages
):
    """The next batch of the producer that stays may use the number: the probe has not."""
    await append(log, partition, broker_epoch, b"", producer="p")
    after = await append(log, partition, broker_epoch, b"stays", number=2, producer="p")
    assert [each.status for each in after.results] == ["stored"]


async def test_a_probe_needs_no_room(log, partition, broker_epoch, ten_messages):
    appended = await log.append(
        partition,
        broker_epoch=broker_epoch,
        number=1,
        expected=10,
        batches=[AppendBatch("p", 0, 1, b"")],
        room_bytes=0,
    )
    assert [each.status for each in appended.results] == ["moved"]


# ---- removed partitions -------------------------------------------------------------------------


async def test_a_late_call_does_not_make_a_removed_partition_again(store, keys, seals, partitions):
    """A coordinator that was slow goes on with a change that another one has aborted."""
    await seals.create_successor(NEXT, PREDECESSORS, [MOVED])
    await seals.erase(NEXT)
    late = PartitionId(2, 2)
    await seals.erase(late)  # aborted before it was made
    for each in (NEXT, late):
        await seals.create_successor(each, PREDECESSORS, [MOVED])
        await partitions.create(each)
        with pytest.raises(UnknownPartitionError):
            await partitions.add_group(each, GROUP, start="Earliest")
        assert not await store.read("EXISTS", keys.meta(each))
        assert 0 < int(await store.read("PTTL", keys.removal(each))) <= PRODUCERS_STAY_MS
    assert await seals.read_origin(NEXT) == (PREDECESSORS, False)
    assert await seals.read_origin(late) == ({}, False)
