"""Reading what is due: bounds, order, and when the next one is due."""

from partq.store.schedule.due_entries import DueEntries, DueEntry

LATER_MS = 2**52


async def read(store, keys, partition, *, passed_over=0, max_entries=9, max_bytes=10**6):
    return await DueEntries(store, keys).read(
        partition, passed_over=passed_over, max_entries=max_entries, max_bytes=max_bytes
    )


async def put(store, keys, partition, *entries):
    for due_ms, number, text in entries:
        await store.read("ZADD", keys.due(partition), due_ms, f"{number:016}")
        await store.read("HSET", keys.scheduled(partition), f"{number:016}", text)


async def test_nothing_waits(store, keys, partition):
    seconds, _ = await store.read("TIME")
    page = await read(store, keys, partition)
    assert (page.entries, page.next_ms) == ([], None)
    assert page.now_ms >= int(seconds) * 1000


async def test_what_is_due_comes_in_its_order_and_nothing_is_early(store, keys, partition):
    message_id = "a1" * 16
    await put(
        store, keys, partition,
        (7, 3, b"0 third"), (5, 2, b"0 second \x00"), (5, 1, f"60#{message_id} first".encode()),
        (LATER_MS + 1, 4, b"0 last"), (LATER_MS, 5, b"0 later"),
    )  # fmt: skip
    page = await read(store, keys, partition)
    assert page.entries == [
        DueEntry(1, 5, 60, message_id, b"first"),
        DueEntry(2, 5, 0, "", b"second \x00"),
        DueEntry(3, 7, 0, "", b"third"),
    ]
    assert page.next_ms == LATER_MS


async def test_a_page_has_its_bounds_and_at_least_one_entry(store, keys, partition):
    await put(store, keys, partition, *[(1 + at, at, b"0 " + b"x" * 10) for at in range(5)])
    page = await read(store, keys, partition, max_entries=2)
    assert ([each.number for each in page.entries], page.next_ms) == ([0, 1], 3)
    page = await read(store, keys, partition, max_bytes=13)
    assert ([each.number for each in page.entries], page.next_ms) == ([0, 1], 3)
    page = await read(store, keys, partition, max_bytes=1, passed_over=4)
    assert ([each.number for each in page.entries], page.next_ms) == ([4], None)
    page = await read(store, keys, partition, passed_over=5)
    assert (page.entries, page.next_ms) == ([], None)
