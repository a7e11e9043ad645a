"""Faults in archived rows to plant into a recorded run, and rows that cannot be compared."""

from dataclasses import replace
from datetime import UTC, datetime

from partq.pipeline.manifest import ArchiveGap
from partq.wire.batch import Message, encode_message
from tests.pipeline.audit.model import Partition
from tests.pipeline.audit.planting import Planted, publish_of


def content_altered(run: Partition) -> Planted:
    run.messages[9] = replace(run.messages[9], value=b"other")
    return of_batch(run, "content_differs", 9)


def event_time_altered(run: Partition) -> Planted:
    run.messages[9] = replace(run.messages[9], event_time=datetime(2026, 1, 1, tzinfo=UTC))
    return of_batch(run, "content_differs", 9)


def stored_bytes_of_another_message(run: Partition) -> Planted:
    """They fit the checksum, and the row does not fit them."""
    message = run.messages[9]
    encoded = encode_message(Message(message.key, message.value))
    run.messages[9] = replace(message, value=b"other", encoded=encoded)
    return Planted(run, "content_differs", 9, 10)


def slots_of_other_keys(run: Partition) -> Planted:
    line = publish_of(run, 9)
    at = 2 * (9 - line.fields["first"])
    slot = int.from_bytes(line.slots[at : at + 2], "little") ^ 1
    line.slots = line.slots[:at] + slot.to_bytes(2, "little") + line.slots[at + 2 :]
    return Planted(run, "wrong_slot", 9, 10)


def publish_time_altered(run: Partition) -> Planted:
    run.messages[9] = replace(run.messages[9], at_ms=run.messages[9].at_ms + 86_400_000)
    return Planted(run, "wrong_publish_time", 9, 10)


def rows_of_another_queue(run: Partition) -> Planted:
    for at in range(5, 15):
        run.messages[at] = replace(run.messages[at], queue="others")
    return Planted(run, "other_queue", 5, 15)


def content_not_recorded(run: Partition) -> Planted:
    line = publish_of(run, 9)
    del line.fields["content_crc"]
    return Planted(run, "content_not_recorded", line.fields["first"], line.fields["stop"])


def of_batch(run: Partition, what: str, offset: int) -> Planted:
    """Return a fault that is known of the whole batch of an offset."""
    line = publish_of(run, offset)
    return Planted(run, what, line.fields["first"], line.fields["stop"])


def archive_undecodable(run: Partition) -> Planted:
    del run.messages[:3]
    gap = ArchiveGap("messages", run.name, 0, 3, f"_partq/undecodable/{run.name}.batch")
    return Planted(run, "archive_undecodable", 0, 3, gap=gap)


CONTENT_PLANTS = [
    archive_undecodable,
    content_altered,
    event_time_altered,
    stored_bytes_of_another_message,
    slots_of_other_keys,
    publish_time_altered,
    rows_of_another_queue,
    content_not_recorded,
]
