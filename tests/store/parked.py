"""Entries that wait beside a log, as the append script parks them."""

from partq.core.hashing import slot_of
from partq.wire.batch import Message, encode, encode_message


def data_of(key, *values):
    """Return a batch of messages of a key."""
    messages = [encode_message(Message(key, value.encode(), None, 0)) for value in values]
    return encode(messages, [slot_of(key or "")] * len(messages))


async def park(store, keys, partition, number, due_ms, data, *, ttl_ms=0, message_id=""):
    """Park an entry under a number of the test's."""
    member = f"{number:016d}"
    head = f"{ttl_ms}#{message_id}" if message_id else str(ttl_ms)
    await store.read("ZADD", keys.due(partition), due_ms, member)
    await store.read("HSET", keys.scheduled(partition), member, f"{head} ".encode() + data)
    await store.read("HINCRBY", keys.meta(partition), "scheduled_bytes", len(data))
    await store.read("HSET", keys.meta(partition), "scheduled_number", number)
    if message_id:
        await store.read("ZADD", keys.ids(partition), number, bytes.fromhex(message_id))
        await store.read("HSET", keys.id_entries(partition), message_id, number)
