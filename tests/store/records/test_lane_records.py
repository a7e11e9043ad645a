"""The record of a group of order Key: acks as bits, and lanes that wait."""

import pytest

from partq.core.dead_letters import DeadLetterReason
from partq.core.lanes.codec import encode_bits
from partq.core.lanes.parked_lanes import ALL_LANES
from partq.core.model import BrokerId
from partq.errors import FencedError, InternalError, SupersededError
from partq.store import codec
from partq.store.records.audit import Audits
from partq.store.records.dead_letters import Outboxes
from tests.audit_record import decode_group
from tests.store.record import GROUP, NOTHING, commit, write

PARKED = {513: 1_767_225_600_000, ALL_LANES: 5}


@pytest.fixture
def flush(partitions, partition, broker_epoch):
    """Write the group's book, as its broker does."""

    async def flush(number=None, **book):
        numbered = write() if number is None else {**write(), "number": number}
        changes = {**NOTHING, **book, "broker_epoch": broker_epoch}
        await partitions.flush(partition, GROUP, **numbered, **changes)
        return await partitions.read_cursor(partition, GROUP)

    return flush


def bits(cursor, *offsets):
    """Return acks as a book of lanes has them stored."""
    flags = bytearray(b"0" * (max(offsets, default=cursor) - cursor + 1))
    for offset in offsets:
        flags[offset - cursor] = ord("1")
    return encode_bits(bytes(flags))


async def test_bits_and_lanes_come_back(flush, ten_messages):
    found = await flush(cursor=2, acked=bits(2, 3, 5, 6, 9), parked=PARKED)
    assert (found.cursor, found.acked) == (2, [(3, 4), (5, 7), (9, 10)])
    assert found.parked == PARKED


async def test_lanes_stay_as_they_are_unless_they_are_written(flush, ten_messages):
    await flush(parked=PARKED)
    assert (await flush(cursor=1)).parked == PARKED
    assert (await flush(cursor=1, parked={7: 9})).parked == {7: 9}
    assert (await flush(cursor=2, parked={})).parked == {}


async def test_a_group_changes_from_bits_to_ranges_and_back(flush, ten_messages):
    for acked in (bits(0, 3, 4), [(3, 5)], bits(0, 3, 4)):
        assert (await flush(acked=acked)).acked == [(3, 5)]


async def test_bits_beyond_the_end_of_the_log_are_refused(flush, ten_messages):
    await flush(acked=bits(0, 9))
    with pytest.raises(FencedError):
        await flush(acked=bits(0, 10))
    with pytest.raises(FencedError):
        await flush(cursor=3, acked=bits(3, 64))


async def test_a_late_repeat_writes_nothing_of_it(flush, ten_messages):
    early, late = write()["number"], write()["number"]
    stored = await flush(number=late, cursor=2, acked=bits(2, 5), parked={7: 9})
    with pytest.raises(SupersededError):
        await flush(number=early, cursor=1, acked=bits(1, 9), parked=PARKED)
    assert await flush(number=late, cursor=3, acked=bits(3, 9), parked=PARKED) == stored


async def test_a_commit_hands_bits_on_and_leaves_lanes_as_they_are(
    partitions, partition, broker_epoch, flush, ten_messages
):
    await flush(parked=PARKED)
    number = write()["number"]
    changes = {"cursor": 1, "acked": bits(1, 8), "number": number}
    epoch = await commit(partitions, partition, broker_epoch, **changes)
    stored = await partitions.read_cursor(partition, GROUP)
    assert (stored.acked, stored.parked, stored.epoch) == ([(8, 9)], PARKED, epoch)
    again = {**changes, "cursor": 2, "acked": [], "number": number + 1}
    assert await commit(partitions, partition, broker_epoch, **again) == epoch, "a repeat"
    assert await partitions.read_cursor(partition, GROUP) == stored
    with pytest.raises(FencedError):
        await commit(
            partitions, partition, broker_epoch,
            source="m-0", epoch=epoch, attempt=2, target="m-1", acked=bits(0, 10),
        )  # fmt: skip
    assert await partitions.read_cursor(partition, GROUP) == stored


async def test_a_reset_ends_what_waits(partitions, partition, broker_epoch, flush, ten_messages):
    stored = await flush(cursor=1, acked=bits(1, 8), parked=PARKED)
    await partitions.reset(
        partition, GROUP, **write(), broker_epoch=broker_epoch, epoch=stored.epoch, offset=4
    )
    found = await partitions.read_cursor(partition, GROUP)
    assert (found.cursor, found.acked, found.parked) == (4, [], {})


async def test_a_member_that_registers_at_an_offset_waits_for_nothing(
    partitions, partition, broker_epoch, flush, ten_messages
):
    stored = await flush(cursor=1, acked=bits(1, 8), parked=PARKED)
    register = {"member": "m-0", "incarnation": "x", "epoch": stored.epoch}
    await partitions.register(
        partition, GROUP, **write(), broker_epoch=broker_epoch, **register, offset=3
    )
    found = await partitions.read_cursor(partition, GROUP)
    assert (found.cursor, found.acked, found.parked) == (3, [], {})


async def test_a_group_that_is_created_again_waits_for_nothing(
    partitions, partition, flush, ten_messages
):
    stored = await flush(parked=PARKED)
    await partitions.remove_group(partition, GROUP, born=stored.born)
    await partitions.add_group(partition, GROUP, start="Earliest")
    assert (await partitions.read_cursor(partition, GROUP)).parked == {}


@pytest.mark.parametrize("acked", [bits(2, 3, 10, 11), [(3, 4), (10, 12)]], ids=["bits", "ranges"])
async def test_what_is_done_does_not_become_a_dead_letter(
    partitions, partition, broker_epoch, store, keys, fill, flush, acked
):
    await fill(30)
    await flush(cursor=2, acked=acked)
    offsets = [1, 2, 3, 9, 10, 11, 12, 20]
    letters = await Outboxes(store, keys).add(
        partition, GROUP, **write(), broker_epoch=broker_epoch,
        letters=[(offset, DeadLetterReason.MAX_REDELIVERIES, 2) for offset in offsets],
    )  # fmt: skip
    assert [letter.offset for letter in letters] == [2, 9, 12, 20]


# ---- claims -------------------------------------------------------------------------------------


def claim(partitions, partition, expected):
    return partitions.claim(partition, BrokerId("b-1"), "i-1", expected=expected, wants_audit=True)


async def test_a_claim_reads_it_and_begins_the_audit_record_with_it(
    partitions, partition, broker_epoch, store, keys, flush, ten_messages
):
    stored = await flush(cursor=2, acked=bits(2, 4, 5, 9), parked=PARKED)
    claimed = await claim(partitions, partition, broker_epoch)
    assert claimed.mended == ()
    assert claimed.groups[GROUP] == stored
    groups = await Audits(store, keys).read(partition, 0, max_bytes=10_000)
    records = [each for group in groups for each in decode_group(partition, group)]
    done = [(r.first, r.stop) for r in records if r.kind == "begin" and r.group == GROUP]
    assert done == [(0, 2), (4, 6), (9, 10)]


@pytest.mark.parametrize(
    ("cursor", "acked", "mended", "left"),
    [
        pytest.param(2, bits(2, 3, 6, 7, 9), 5, [(6, 8), (9, 10)], id="below what is there"),
        pytest.param(2, bits(2, 3, 4, 5, 6), 5, [(5, 7)], id="a range across what is there"),
        pytest.param(11, bits(11, 12), 10, [], id="beyond the end"),
        pytest.param(7, bits(7, 8, 10), 7, [], id="bits beyond the end"),
    ],
)
async def test_bits_outside_the_log_are_mended(
    partitions, partition, broker_epoch, store, keys, log, fill, cursor, acked, mended, left
):
    await fill(5, 5)
    book = {**write(), **NOTHING, "cursor": 5, "broker_epoch": broker_epoch}
    await partitions.flush(partition, GROUP, **book)
    assert (await log.trim(partition, broker_epoch=broker_epoch)).first == 5
    await store.run(
        "write_fields", [keys.cursor(partition, GROUP)], [2, "cursor", cursor, "acked", acked]
    )
    claimed = await claim(partitions, partition, broker_epoch)
    assert [each.cursor for each in claimed.mended] == [mended]
    stored = await partitions.read_cursor(partition, GROUP)
    assert (stored.cursor, stored.acked) == (mended, left)
    assert (await claim(partitions, partition, claimed.broker_epoch)).mended == ()


async def test_a_reader_of_ranges_refuses_bits(store, keys, partition, flush, ten_messages):
    """A broker that knows no lanes must not take one for the other."""
    for offsets in [(1,), (45, 49, 51), tuple(range(1, 10))]:
        with pytest.raises(InternalError, match="damaged"):
            codec.decode_ranges(bits(0, *offsets))
