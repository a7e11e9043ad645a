"""Pins hold a log; calls that arrive late change nothing of them."""

import pytest

from partq.errors import FencedError, QuotaExceededError
from partq.store.records.pins import MAX_PINS
from partq.wire.calls.browse import MAX_PIN_MS
from tests.store.record import flush


@pytest.fixture
def pin(pins, partition, broker_epoch):
    async def pin(name, offset):
        return (await pins.set(partition, name, offset, broker_epoch=broker_epoch)).offset

    return pin


async def test_a_pin_holds_the_log_until_it_is_moved_or_removed(
    partitions, log, pins, partition, broker_epoch, fill, pin
):
    await fill(3, 2, 4)
    assert await pin("reader", 4) == 4
    await flush(partitions, partition, broker_epoch, "workers", 9)
    assert (await log.trim(partition, broker_epoch=broker_epoch))[:2] == (3, 4)
    assert await pin("reader", 0) == 3, "what is trimmed does not come back"
    assert await pin("reader", 2**53) == 9
    assert await pin("other", 5) == 5
    assert (await log.trim(partition, broker_epoch=broker_epoch))[:2] == (5, 5)
    for _ in range(2):
        await pins.remove(partition, "other", broker_epoch=broker_epoch)
    assert (await log.trim(partition, broker_epoch=broker_epoch))[:2] == (9, 9)
    record = await partitions.read(partition)
    assert record.groups == {"workers"}, "a pin is not a group"


async def test_a_pin_that_is_over_holds_nothing(
    store, keys, partitions, log, partition, broker_epoch, fill, pin
):
    await fill(3, 2, 4)
    await pin("reader", 0)
    await flush(partitions, partition, broker_epoch, "workers", 9)
    field = (keys.meta(partition), "pin:reader")
    now_ms, _ = await log.read_times(partition, [])
    # The clock was set back since it was set: from now on it lasts as long as any other.
    await store.read("HSET", *field, f"0 7 {now_ms + 10**9}")
    assert (await log.trim(partition, broker_epoch=broker_epoch))[:2] == (0, 0)
    offset, number, until_ms = map(int, (await store.read("HGET", *field)).split())
    assert (offset, number) == (0, 7), "the number of the last call stays"
    assert now_ms < until_ms <= now_ms + 2 * MAX_PIN_MS
    await store.read("HSET", *field, f"0 {now_ms - 1}")
    assert (await log.trim(partition, broker_epoch=broker_epoch))[:2] == (9, 9)
    assert await store.read("HGET", *field) is None


async def test_a_late_call_does_not_move_or_remove_a_newer_pin(
    log, pins, partition, broker_epoch, fill, store, keys
):
    """Each call names a number above those before it; one without a number is not compared."""
    await fill(3, 2, 4)

    async def pin(offset, number):
        options = {"broker_epoch": broker_epoch, "number": number}
        return await pins.set(partition, "reader", offset, **options)

    async def unpin(number):
        options = {"broker_epoch": broker_epoch, "number": number}
        return await pins.remove(partition, "reader", **options)

    assert await pin(5, 20) == (5, 20)
    assert await pin(3, 10) == (5, 20), "late"
    assert await unpin(10) == 20, "late"
    assert await pin(6, 20) == (6, 20), "the same call again"
    now_ms, _ = await log.read_times(partition, [])
    assert (await pin(0, 0)).number >= now_ms, "asks for a number, and changes nothing"
    assert await unpin(0) >= now_ms
    assert await pin(4, None) == (4, 20)
    assert await pin(3, 19) == (4, 20)
    assert await unpin(21) is None
    assert await unpin(21) is None
    field = (keys.meta(partition), "pin:reader")
    assert await store.read("HGET", *field) is None
    now_ms, _ = await log.read_times(partition, [])
    await store.read("HSET", *field, f"5 {now_ms + 10**5}")
    assert await pin(6, 1) == (6, 1), "an earlier version has set it, without a number"
    await store.read("HSET", *field, f"5 30 {now_ms - 1}")
    assert await pin(6, 22) == (6, 22), "it was over"
    await store.read("HSET", *field, f"5 {now_ms + 10**5}")
    assert await unpin(1) is None


async def test_a_late_call_does_not_bring_back_a_pin_that_was_removed(
    log, pins, partition, broker_epoch, fill, store, keys
):
    """One number per partition says so, and no caller can move it beyond what Redis draws."""
    await fill(3, 2, 4)
    meta = keys.meta(partition)

    async def pin(name, number):
        options = {"broker_epoch": broker_epoch, "number": number}
        return await pins.set(partition, name, 3, **options)

    async def unpin(name, number):
        options = {"broker_epoch": broker_epoch, "number": number}
        return await pins.remove(partition, name, **options)

    assert await pin("reader", 20) == (3, 20)
    assert await unpin("reader", 22) is None
    assert await pin("reader", 21) == (0, 22), "late: refused, and told what to go above"
    assert await unpin("other", 40) is None, "it overtook the call that sets the pin"
    assert await pin("other", 39) == (0, 40)
    assert await unpin("other", 8) is None
    assert await pin("other", None) == (3, 40), "without a number: not compared"
    assert await pin("other", 39) == (3, 40)
    assert await unpin("other", None) is None
    fields = await store.read("HKEYS", meta)
    assert not [each for each in fields if each.startswith(b"pin:")]

    assert await pin("reader", 2**60) == (3, 2**60)
    now_ms, _ = await log.read_times(partition, [])
    assert await unpin("reader", 2**60) is None
    drawn = (await pin("reader", 0)).number
    assert now_ms < drawn <= now_ms + 2 * MAX_PIN_MS, "numbers do not run out"
    assert await unpin("reader", 0) == drawn
    assert await pin("reader", drawn) == (3, drawn)


async def test_pins_are_few_and_fenced(
    store, keys, pins, partition, broker_epoch, ten_messages, pin
):
    for number in range(MAX_PINS):
        await pin(f"reader-{number}", 0)
    with pytest.raises(QuotaExceededError, match="16 pins"):
        await pin("one-more", 0)
    assert await pin("reader-3", 7) == 7, "one of them can be renewed"
    await store.read("HSET", keys.meta(partition), "pin:reader-0", "0 1")
    assert await pin("one-more", 0) == 0, "one has ended"
    before = await store.read("HGETALL", keys.meta(partition))
    for call in (
        pins.set(partition, "x", 0, broker_epoch=broker_epoch - 1),
        pins.remove(partition, "one-more", broker_epoch=broker_epoch - 1),
    ):
        with pytest.raises(FencedError):
            await call
    assert await store.read("HGETALL", keys.meta(partition)) == before
