"""The audit record in the store: what each script writes, how it is chained, read and trimmed."""

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.core.model import BrokerId
from partq.errors import ConflictError, FencedError
from partq.store.erase import erase_queue
from partq.store.records.audit import Audits, Numbered
from partq.store.records.dead_letters import Outboxes
from partq.store.records.log import AppendBatch
from partq.wire import audit
from partq.wire.batch import Message, encode, encode_message
from tests.audit_record import decode_group, encode_group
from tests.store.record import BORN, GROUP, born, commit, write

SLOTS = [7, 0x0A0A, 65535]
BROKER = BrokerId("b 0%\t")
"""With what has a meaning in the bytes of a record."""


@pytest.fixture
def audits(store, keys):
    return Audits(store, keys)


@pytest.fixture
async def audited(partitions, partition, store, keys):
    """The partition keeps a record from its first claim on; returns the broker epoch."""
    await partitions.create(partition)
    await partitions.add_group(partition, GROUP, start="Earliest")
    await store.run("write_fields", [keys.cursor(partition, GROUP)], [2, "born", BORN, "epoch", 0])
    claim = await partitions.claim(partition, BROKER, "i-0", expected=0, wants_audit=True)
    assert claim.is_audited
    return claim.broker_epoch


async def records_of(audits, partition, start=0):
    """Return all records, after a look at their chain."""
    groups = await audits.read(partition, start, max_bytes=1 << 20)
    state = await audits.read_state(partition)
    chain = groups[0].previous
    for sequence, group in enumerate(groups, start):
        assert (group.sequence, group.previous, group.is_whole) == (sequence, chain, True)
        chain = group.chain
    assert (state.next, state.chain) == (start + len(groups), chain)
    assert state.stored_bytes == sum(len(group.data) for group in groups)
    return [record for group in groups for record in decode_group(partition, group)]


def batch(count=3):
    message = encode_message(Message("k", b"v"))
    return encode([message] * count, SLOTS[:count])


async def append(log, partition, epoch, number=0, expected=0, data=None, producer="p"):
    batches = [AppendBatch(producer, 5, 3, data or batch())] if producer != "p" else []
    batches = batches or [AppendBatch("p", 3 * number, 3, data or batch())]
    call = {"number": number, "expected": expected, "batches": batches, "room_bytes": None}
    return await log.append(partition, broker_epoch=epoch, **call)


async def test_a_claim_begins_the_record(audits, partition, audited):
    begin, group, claim = await records_of(audits, partition)
    assert (begin.kind, begin.first, begin.stop, begin.group) == ("begin", 0, 0, "")
    assert (group.kind, group.group, group.first, group.stop) == ("begin", GROUP, 0, 0)
    assert (claim.kind, claim.broker, claim.incarnation) == ("claim", BROKER, "i-0")
    assert (claim.broker_epoch, claim.sequence, claim.place) == (audited, 0, 2)
    assert claim.previous == audit.GENESIS


async def test_a_publish_tells_its_slots_and_is_told_once(audits, log, partition, audited):
    await append(log, partition, audited)
    await append(log, partition, audited)  # the same call again
    await append(log, partition, audited, 1, 3, producer="")
    *_, numbered, free = await records_of(audits, partition)
    assert (numbered.kind, numbered.first, numbered.stop) == ("publish", 0, 3)
    assert (numbered.producer, numbered.number) == ("p", 0)
    assert numbered.slots == b"".join(slot.to_bytes(2, "little") for slot in SLOTS)
    assert numbered.append_broker_epoch == audited
    assert (free.kind, free.producer, free.number, free.sequence) == ("publish", "", -1, 2)


async def test_a_publish_tells_the_checksum_of_its_content(audits, log, partition, audited):
    """Each of its own; a repeat of the call writes nothing, and one without has a shorter line."""
    checksums = [4_294_967_295, -1, 0]
    batches = [
        AppendBatch("p", 3 * at, 3, batch(), content_crc=crc) for at, crc in enumerate(checksums)
    ]
    for _ in range(2):
        await log.append(
            partition, broker_epoch=audited, number=0, expected=0, batches=batches, room_bytes=None
        )
    told = [each for each in await records_of(audits, partition) if each.kind == "publish"]
    assert [each.content_crc for each in told] == checksums
    assert [(each.first, each.slots) for each in told] == [(at, told[0].slots) for at in (0, 3, 6)]


async def test_what_is_not_stored_is_not_told(audits, log, partition, audited):
    await append(log, partition, audited)
    before = await records_of(audits, partition)
    call = {"broker_epoch": audited, "number": 1, "expected": 3}
    duplicate, gap = AppendBatch("p", 0, 3, batch()), AppendBatch("p", 9, 3, batch())
    await log.append(partition, batches=[duplicate, gap], room_bytes=None, **call)
    big = AppendBatch("p", 3, 3, batch())
    await log.append(
        partition, batches=[big], room_bytes=0, broker_epoch=audited, number=2, expected=3
    )
    with pytest.raises(FencedError):
        await append(log, partition, audited - 1)
    assert await records_of(audits, partition) == before


async def test_what_scripts_change_is_told(
    audits, partitions, log, store, keys, partition, audited
):
    """Bind, commit, reset, dead letters, trim, groups and yield; one repeat of what may repeat."""
    await append(log, partition, audited)
    first = await commit(partitions, partition, audited, forced="unassigned")
    assert await commit(partitions, partition, audited, forced="unassigned") == first
    bound = await partitions.bind(
        partition, GROUP, **write(), member="m-0", incarnation="x%", broker_epoch=audited
    )
    outboxes = Outboxes(store, keys)
    letters = [(1, DeadLetterReason.EXPIRED, 0)]
    place = {"broker_epoch": audited}
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    assert await outboxes.add(partition, GROUP, **write(), letters=letters, **place) == [letter]
    for _ in range(2):
        await outboxes.remove(partition, GROUP, **write(), letter=letter.number, **place)
    epoch = (
        await partitions.reset(partition, GROUP, **write(), epoch=bound, offset=9, **place)
    ).epoch
    await partitions.flush(
        partition,
        GROUP,
        **write(),
        cursor=3,
        acked=[],
        redeliveries={},
        audit=Numbered(0, []),
        **place,
    )
    await partitions.add_group(partition, "late", start="Latest")
    await log.trim(partition, **place)
    await log.trim(partition, **place)
    began = await born(partitions, partition, "late")
    for _ in range(2):
        await partitions.remove_group(partition, "late", born=began)
    await partitions.yield_(partition, successor=BrokerId("b-1"), **place)
    told = (await records_of(audits, partition))[4:]
    seen = [(each.kind, each.group, each.first, each.stop) for each in told]
    assert seen == [
        ("commit", GROUP, -1, -1),
        ("bind", GROUP, -1, -1),
        ("dead_letter", GROUP, 1, 2),
        ("dead_letter", GROUP, 1, 2),
        ("reset", GROUP, 3, 3),
        ("begin", "late", 0, 3),
        ("trim", "", 0, 3),
        ("end", "late", -1, -1),
        ("yield", "", -1, -1),
    ]
    by_kind = {each.kind: each for each in told}
    handed = by_kind["commit"]
    assert (handed.member, handed.target, handed.attempt, handed.epoch) == ("", "m-0", 1, first)
    assert handed.cause == "unassigned"
    bind = by_kind["bind"]
    assert (bind.member, bind.incarnation, bind.epoch) == ("m-0", "x%", bound)
    assert (told[2].cause, told[2].number, told[2].flags) == ("expired", letter.number, "")
    assert (told[3].number, told[3].flags) == (letter.number, "sent")
    assert (by_kind["reset"].epoch, by_kind["reset"].number) == (epoch, 0)
    assert by_kind["yield"].target == "b-1"
    assert {each.broker_epoch for each in told} == {audited}


async def test_a_letter_that_nobody_can_send_is_told_as_lost(
    audits, log, store, keys, partition, audited
):
    await append(log, partition, audited)
    outboxes = Outboxes(store, keys)
    place = {"broker_epoch": audited}
    letters = [(1, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await outboxes.add(partition, GROUP, **write(), letters=letters, **place)
    for _ in range(2):
        await outboxes.remove(
            partition, GROUP, **write(), letter=letter.number, is_lost=True, **place
        )
    (_, told) = [each for each in await records_of(audits, partition) if each.kind == "dead_letter"]
    assert (told.first, told.stop, told.number) == (1, 2, letter.number)
    assert (told.cause, told.flags) == ("not_in_log", "lost")


ONE, TWO, THREE = (audit.encode_record("ack", first=n, stop=n + 1) for n in range(3))


async def test_a_brokers_records_are_written_once_however_often_they_are_sent(
    audits, partitions, log, partition, audited
):
    await append(log, partition, audited)
    flush = {"cursor": 0, "acked": [], "redeliveries": {}, "broker_epoch": audited}
    for records in ([ONE], [ONE, TWO], [ONE, TWO]):
        await partitions.flush(partition, GROUP, **write(), audit=Numbered(0, records), **flush)
    place = {"broker_epoch": audited}
    for first, records in ((0, [ONE]), (0, [ONE, TWO]), (1, [TWO, THREE]), (3, [])):
        await audits.write(partition, audit=Numbered(first, records), **place)
    told = [each.first for each in (await records_of(audits, partition))[4:]]
    assert told == [0, 1, 0, 1, 2]
    claim = await partitions.claim(partition, BROKER, "i", expected=audited)
    assert claim.is_audited, "it continues, whoever claims"
    with pytest.raises(FencedError):
        await audits.write(partition, audit=Numbered(9, [ONE]), **place)
    with pytest.raises(FencedError):
        await partitions.flush(partition, GROUP, **write(), audit=Numbered(9, [ONE]), **flush)
    await audits.write(
        partition, broker_epoch=claim.broker_epoch, audit=Numbered(0, [THREE])
    )  # numbers begin anew
    told = (await records_of(audits, partition))[9:]
    assert [each.kind for each in told] == ["claim", "ack"]


async def test_without_an_audit_nothing_is_written(
    audits, partitions, log, store, keys, partition, broker_epoch, ten_messages
):
    """A broker has no records then."""
    await audits.write(partition, broker_epoch=broker_epoch, audit=Numbered(0, []))
    flush = {"cursor": 1, "acked": [], "redeliveries": {}, "audit": Numbered(0, [])}
    await partitions.flush(partition, GROUP, **write(), broker_epoch=broker_epoch, **flush)
    await commit(partitions, partition, broker_epoch)
    assert await store.read("EXISTS", keys.audit(partition)) == 0
    fields = await store.read("HKEYS", keys.meta(partition))
    fields += await store.read("HKEYS", keys.cursor(partition, GROUP))
    assert not [field for field in fields if b"audit" in field]
    assert (await partitions.read(partition)).audit == await audits.read_state(partition)


async def test_a_record_that_begins_late_says_what_was_done_before(
    audits, partitions, store, keys, partition, broker_epoch, ten_messages
):
    flush = {"cursor": 2, "acked": [(4, 6), (8, 9)], "redeliveries": {}}
    await partitions.flush(partition, GROUP, **write(), broker_epoch=broker_epoch, **flush)
    letters = [(3, DeadLetterReason.MAX_REDELIVERIES, 1)]
    await Outboxes(store, keys).add(
        partition, GROUP, **write(), broker_epoch=broker_epoch, letters=letters
    )
    for number in range(2):
        await audits.switch(partition, BROKER, broker_epoch=broker_epoch, number=number, is_on=True)
    begin, *done = await records_of(audits, partition)
    assert (begin.first, begin.stop, begin.broker_epoch) == (0, 10, broker_epoch)
    assert [(each.first, each.stop) for each in done] == [(0, 2), (4, 6), (8, 9), (3, 4)]
    assert {(each.kind, each.group) for each in done} == {("begin", GROUP)}


async def test_off_and_on_again_leaves_a_seam_in_one_chain(audits, partition, audited):
    for number, is_on in enumerate((False, False, True)):
        await audits.switch(partition, BROKER, broker_epoch=audited, number=number, is_on=is_on)
        assert (await audits.read_state(partition)).is_on is is_on
    told = await records_of(audits, partition)
    assert [each.kind for each in told] == ["begin", "begin", "claim", "end", "begin", "begin"]
    with pytest.raises(FencedError):
        await audits.switch(partition, BROKER, broker_epoch=audited - 1, number=9, is_on=False)


@pytest.mark.parametrize("was_on", [True, False])
async def test_a_late_begin_or_end_of_the_record_changes_nothing(
    audits, partitions, partition, broker_epoch, was_on
):
    """The broker has made a later one, and counts on that."""
    place = {"broker_epoch": broker_epoch}
    await audits.switch(partition, BROKER, **place, number=0, is_on=was_on)
    late = {**place, "number": 1, "is_on": was_on}
    await audits.switch(partition, BROKER, **place, number=2, is_on=not was_on)
    told = await audits.read_state(partition)
    with pytest.raises(ConflictError, match="switched again"):
        await audits.switch(partition, BROKER, **late)
    await audits.switch(partition, BROKER, **place, number=2, is_on=not was_on)
    assert await audits.read_state(partition) == told
    claim = await partitions.claim(partition, BROKER, "i", expected=broker_epoch)
    place = {"broker_epoch": claim.broker_epoch}
    await audits.switch(partition, BROKER, **place, number=0, is_on=was_on)  # numbers begin anew
    assert (await audits.read_state(partition)).is_on is was_on


async def test_a_late_repeat_is_not_written_again_after_off_and_on(audits, partition, audited):
    """The numbers of a broker's records go on over it, and so does the mark of what is stored."""
    place = {"broker_epoch": audited}
    await audits.write(partition, **place, audit=Numbered(0, [ONE, TWO]))
    for number, is_on in enumerate((False, True)):
        await audits.switch(partition, BROKER, **place, number=number, is_on=is_on)
    for records in ([ONE, TWO], [ONE, TWO, THREE]):
        await audits.write(partition, **place, audit=Numbered(0, records))
    acks = [each.first for each in await records_of(audits, partition) if each.kind == "ack"]
    assert acks == [0, 1, 2]


async def test_what_was_judged_while_off_is_not_written_once_it_is_on(
    audits, partitions, log, partition, audited
):
    """The answer is lost, so the broker sends it again: its record of that time stays out."""
    place = {"broker_epoch": audited}
    await append(log, partition, audited)
    await audits.switch(partition, BROKER, **place, number=0, is_on=False)
    flush = {"cursor": 0, "acked": [], "redeliveries": {}, **place}
    for records in ([ONE, TWO], [ONE]):  # the second one is late
        await audits.write(partition, **place, audit=Numbered(0, records))
        await partitions.flush(partition, GROUP, **write(), audit=Numbered(0, records), **flush)
    assert not (await audits.read_state(partition)).is_on
    await audits.switch(partition, BROKER, **place, number=1, is_on=True)
    begun = len(await records_of(audits, partition))
    for records in ([ONE, TWO], [ONE, TWO, THREE]):
        await audits.write(partition, **place, audit=Numbered(0, records))
    assert [each.first for each in (await records_of(audits, partition))[begun:]] == [2]
    records = [ONE, TWO, THREE]
    await partitions.flush(partition, GROUP, **write(), audit=Numbered(0, records), **flush)
    assert [each.first for each in (await records_of(audits, partition))[begun:]] == [2, 2]


@pytest.mark.parametrize(
    ("seen", "recorded"),
    [
        pytest.param([], [GROUP], id="one was added"),
        pytest.param([GROUP, "gone"], [GROUP], id="one was removed"),
        pytest.param(["gone"], [GROUP], id="one was removed, and one added"),
    ],
)
async def test_a_record_begins_with_the_groups_that_are_there(
    audits, store, keys, partition, broker_epoch, monkeypatch, seen, recorded
):
    """They may be others by the time the script runs: it compares them, and is repeated."""
    read, is_first = store.read, True

    async def stale(*words):
        nonlocal is_first
        found = await read(*words)
        if words[0] == "HKEYS" and is_first:
            is_first = False
            return [f"mark:{group}".encode() for group in seen]
        return found

    monkeypatch.setattr(store, "read", stale)
    await audits.switch(partition, BROKER, broker_epoch=broker_epoch, number=0, is_on=True)
    _, *told = await records_of(audits, partition)
    assert [each.group for each in told] == recorded


async def test_what_is_trimmed_leaves_a_chain_that_can_be_checked(audits, log, partition, audited):
    for number in range(5):
        await append(log, partition, audited, number, 3 * number)
    whole = await audits.read(partition, 0, max_bytes=1 << 20)
    state = await audits.trim(partition, 4, broker_epoch=audited)
    assert (state.first, state.next) == (4, 6)
    assert state.stored_bytes == sum(len(group.data) for group in whole[4:])
    assert await audits.read(partition, 0, max_bytes=1 << 20) == whole[4:]
    assert (await audits.trim(partition, 2, broker_epoch=audited)).first == 4, "never back"
    state = await audits.trim(partition, 999, broker_epoch=audited)
    assert (state.first, state.next, state.stored_bytes) == (6, 6, 0)
    await append(log, partition, audited, 5, 15)
    (group,) = await audits.read(partition, 0, max_bytes=1 << 20)
    assert (group.sequence, group.previous) == (6, whole[5].chain)
    with pytest.raises(FencedError):
        await audits.trim(partition, 6, broker_epoch=audited - 1)


async def test_a_record_that_has_ended_is_trimmed_too(audits, partition, audited):
    """Its archive still takes it, and frees what it has."""
    await audits.switch(partition, BROKER, broker_epoch=audited, number=0, is_on=False)
    groups = await audits.read(partition, 0, max_bytes=1 << 20)
    state = await audits.trim(partition, 1, broker_epoch=audited)
    assert (state.is_on, state.first, state.next) == (False, 1, len(groups))
    assert await audits.read(partition, 0, max_bytes=1 << 20) == groups[1:]


async def test_a_read_is_bounded_by_bytes_and_gives_one_group_at_least(
    audits, log, partition, audited
):
    for number in range(20):
        await append(log, partition, audited, number, 3 * number)
    groups = await audits.read(partition, 1, max_bytes=1 << 20)
    size = len(groups[0].data)
    assert [group.sequence for group in groups] == list(range(1, 21))
    assert len(await audits.read(partition, 1, max_bytes=1)) == 1
    assert len(await audits.read(partition, 1, max_bytes=3 * size + size // 2)) == 3
    assert await audits.read(partition, 21, max_bytes=1) == []


async def test_the_scripts_write_the_bytes_that_python_would(audits, log, partition, audited):
    await append(log, partition, audited)
    first, second = await audits.read(partition, 0, max_bytes=1 << 20)
    (told,) = decode_group(partition, second)
    fields = {"first": 0, "stop": 3, "producer": "p", "number": 0, "append_broker_epoch": audited}
    record = audit.encode_record("publish", slots=told.slots, **fields)
    place = {"sequence": 1, "at_ms": told.at_ms, "broker": BROKER, "broker_epoch": audited}
    assert encode_group(first.chain, [record], **place) == second


async def test_a_deleted_queue_leaves_no_record(audits, store, keys, partition, audited):
    await erase_queue(store, keys)
    for node in store.nodes():
        assert await node.read(["KEYS", f"{store.prefix}:*"]) == []
