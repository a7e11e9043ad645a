"""A record that speaks of messages which the log does not hold is mended by the next claim."""

import pytest

from partq.core.dead_letters import MAX_WAITING, DeadLetterReason
from partq.core.model import BrokerId
from partq.errors import FencedError
from partq.store.records.audit import Audits
from partq.store.records.dead_letters import Outboxes
from partq.store.records.log import AppendBatch
from tests.audit_record import decode_group
from tests.store.record import GROUP, NOTHING, commit, write


@pytest.fixture
async def trimmed(partitions, log, partition, broker_epoch, store, keys):
    """Fifteen messages were stored, the first five are gone."""
    for number in range(3):
        await log.append(
            partition, broker_epoch=broker_epoch, number=number, expected=5 * number,
            batches=[AppendBatch("", 0, 5, b"five")], room_bytes=None,
        )  # fmt: skip
    book = {**NOTHING, "cursor": 7}
    await partitions.flush(partition, GROUP, **write(), broker_epoch=broker_epoch, **book)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 5


@pytest.fixture
def spoil(store, keys, partition):
    """Change a group's record by hand."""

    async def spoil(**fields):
        flat = [each for field in fields.items() for each in field]
        arguments = [len(fields), *flat]
        await store.run("write_fields", [keys.cursor(partition, GROUP)], arguments)

    return spoil


def claim(partitions, partition, expected):
    return partitions.claim(partition, BrokerId("b-1"), "i-1", expected=expected, wants_audit=True)


@pytest.mark.parametrize(
    ("cursor", "acked", "mended", "left"),
    [
        pytest.param(2, "4-6,8-9", 5, [(4, 6), (8, 9)], id="below what is there"),
        pytest.param(2, "8-9,12-15", 5, [(8, 9), (12, 15)], id="with ranges up to the end"),
        pytest.param(99, "", 15, [], id="beyond the end"),
        pytest.param(7, "8-9,20-30", 7, [], id="ranges beyond the end"),
    ],
)
async def test_a_cursor_outside_the_log_is_moved_into_it(
    partitions, partition, broker_epoch, store, keys, trimmed, spoil, cursor, acked, mended, left
):
    await spoil(cursor=cursor, acked=acked)
    claimed = await claim(partitions, partition, broker_epoch)
    (found,) = claimed.mended
    assert (found.group, found.before, found.cursor, found.letters) == (GROUP, cursor, mended, ())
    stored = await partitions.read_cursor(partition, GROUP)
    assert (stored.cursor, stored.acked) == (mended, left)
    assert claimed.groups[GROUP] == stored
    assert int(await store.read("HGET", keys.meta(partition), f"mark:{GROUP}")) == mended
    again = await claim(partitions, partition, claimed.broker_epoch)
    assert again.mended == ()


@pytest.mark.parametrize(
    ("spoilt", "cursor", "left"),
    [
        pytest.param({"redeliveries": "9:1,15:3,40:2"}, 7, {9: 1}, id="beyond the end"),
        pytest.param({"redeliveries": "4:4,5:1", "cursor": 2}, 5, {5: 1}, id="below what is there"),
        pytest.param({"redeliveries": "99:3", "cursor": 98}, 15, {}, id="with the cursor"),
    ],
)
async def test_redelivery_counts_outside_the_log_are_dropped(
    partitions, partition, broker_epoch, trimmed, spoil, spoilt, cursor, left
):
    await spoil(**spoilt)
    claimed = await claim(partitions, partition, broker_epoch)
    assert [each.group for each in claimed.mended] == [GROUP]
    stored = await partitions.read_cursor(partition, GROUP)
    assert (stored.cursor, stored.redeliveries) == (cursor, left)
    assert (await claim(partitions, partition, claimed.broker_epoch)).mended == ()


async def test_dead_letters_outside_the_log_are_dropped_and_told(
    partitions, partition, broker_epoch, store, keys, trimmed, spoil
):
    await spoil(outbox="11:3:1:2,12:8:1:2,13:40:2:0", outbox_lowest=3)
    claimed = await claim(partitions, partition, broker_epoch)
    assert [each.letters for each in claimed.mended] == [(3, 40)]
    assert [each.offset for each in claimed.groups[GROUP].outbox] == [8]
    assert int(await store.read("HGET", keys.meta(partition), f"mark:{GROUP}")) == 7
    audits = Audits(store, keys)
    again = await claim(partitions, partition, claimed.broker_epoch)
    await spoil(cursor=1, outbox="12:2:1:2")
    await claim(partitions, partition, again.broker_epoch)
    groups = await audits.read(partition, 0, max_bytes=1 << 20)
    told = [
        (each.kind, each.first, each.number, each.cause, each.flags)
        for group in groups[-1:]
        for each in decode_group(partition, group)
    ]
    assert told[-2:] == [
        ("reset", 5, 1, "not_in_log", ""),
        ("dead_letter", 2, -1, "not_in_log", "lost"),
    ]


async def test_a_claim_drops_and_tells_all_that_full_outboxes_have_lost(
    partitions, partition, broker_epoch, store, keys, trimmed
):
    """Eight groups with as many lost letters as an outbox takes: more values than Lua unpacks."""
    claimed = await claim(partitions, partition, broker_epoch)
    outbox = ",".join(f"{number}:1:1:0" for number in range(1, MAX_WAITING + 1))
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        await partitions.add_group(partition, group, start="Earliest")
        fields = ["outbox", outbox, "outbox_lowest", 1]
        await store.run("write_fields", [keys.cursor(partition, group)], [2, *fields])
    audits = Audits(store, keys)
    told_before = (await audits.read_state(partition)).next
    claimed = await claim(partitions, partition, claimed.broker_epoch)
    assert {each.group: len(each.letters) for each in claimed.mended} == dict.fromkeys(
        groups, MAX_WAITING
    )
    (group,) = await audits.read(partition, told_before, max_bytes=1 << 20)
    records = decode_group(partition, group)
    assert [each.kind for each in records] == ["claim"] + ["dead_letter"] * 8 * MAX_WAITING
    assert {each.flags for each in records[1:]} == {"lost"}


async def test_what_is_well_is_left_as_it_is(
    partitions, partition, broker_epoch, store, keys, trimmed
):
    outboxes = Outboxes(store, keys)
    letters = [(9, DeadLetterReason.EXPIRED, 0)]
    await outboxes.add(partition, GROUP, **write(), broker_epoch=broker_epoch, letters=letters)
    before = await store.read("HGETALL", keys.cursor(partition, GROUP))
    assert (await claim(partitions, partition, broker_epoch)).mended == ()
    assert await store.read("HGETALL", keys.cursor(partition, GROUP)) == before


@pytest.mark.parametrize("name", ["flush", "commit", "add"])
async def test_no_broker_may_speak_of_what_is_trimmed(
    partitions, partition, broker_epoch, store, keys, trimmed, spoil, name
):
    place, book = {"broker_epoch": broker_epoch}, {**NOTHING, "cursor": 4}
    before = await partitions.read_cursor(partition, GROUP)
    if name == "add":
        await spoil(cursor=2)  # else it has done with what is trimmed
        before = await partitions.read_cursor(partition, GROUP)
    letters = [(3, DeadLetterReason.EXPIRED, 0)]
    call = {
        "flush": lambda: partitions.flush(partition, GROUP, **write(), **place, **book),
        "commit": lambda: commit(partitions, partition, broker_epoch, **book),
        "add": lambda: Outboxes(store, keys).add(
            partition, GROUP, **write(), **place, letters=letters
        ),
    }[name]
    with pytest.raises(FencedError):
        await call()
    assert await partitions.read_cursor(partition, GROUP) == before


async def test_the_first_message_in_the_log_may_become_a_dead_letter(
    partition, broker_epoch, store, keys, trimmed, spoil
):
    await spoil(cursor=5)
    letters = [(5, DeadLetterReason.EXPIRED, 0)]
    (letter,) = await Outboxes(store, keys).add(
        partition, GROUP, **write(), broker_epoch=broker_epoch, letters=letters
    )
    assert letter.offset == 5
