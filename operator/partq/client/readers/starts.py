"""Where a reader begins, and the messages from there on."""

from collections.abc import Mapping
from dataclasses import replace

from partq.client.arguments import MAX_INTEGER, check_by_partition, whole
from partq.client.browser import Browsed
from partq.client.log_reader import LogPosition, Where, positions_body
from partq.core.model import PartitionId
from partq.errors import BadRequestError, SettingsError, UndecodableError
from partq.excerpts import excerpt
from partq.wire import batch as batches
from partq.wire.calls.entries import StoredBatch

WHERE_KEYS = frozenset({"at_ms", "group", "offsets"})
"""A place that has one of them is a `Where`."""

Start = Where | Mapping[PartitionId, int | LogPosition]


def check_start(start: object) -> None:
    """Check where to begin, as far as that can be said without a broker.

    Raises:
        SettingsError: it is no `Start`.
    """
    try:
        if not isinstance(start, Mapping) or start.keys() & WHERE_KEYS:
            positions_body(start)
            return
    except BadRequestError:
        pass
    else:
        for partition, place in check_by_partition("start", start).items():
            if not isinstance(place, LogPosition):
                whole(f"start: partition {partition}", place, 0, MAX_INTEGER)
        if start:
            return
    raise SettingsError(
        f"start: got {excerpt(repr(start))}, expected 'earliest', 'latest', {{'at_ms': "
        "milliseconds}, {'group': name}, or an offset or LogPosition by PartitionId"
    )


def clamped(place: LogPosition) -> LogPosition:
    """Return a place, or where it is not within its log the nearest one that is."""
    offset = min(max(place.offset, place.first), place.end)
    return place if offset == place.offset else replace(place, offset=offset, append_broker_epoch=0)


def opened(partition: PartitionId, stored: StoredBatch, start: int) -> list[Browsed]:
    """Return the messages of a batch from an offset on; without content those that do not decode.

    Of a batch with such a message each one is decoded by itself.
    """
    first = max(0, start - stored.first)

    def browsed(at: int, content: batches.Message | None, error: str = "") -> Browsed:
        place = partition, stored.first + at, stored.at_ms, stored.append_broker_epoch
        return Browsed(*place, content, error)

    try:
        opened = batches.decode(stored.data, first)
    except UndecodableError:
        found = []
        for at in range(first, stored.count):
            try:
                found.append(browsed(at, batches.decode(stored.data, at, at + 1)[0]))
            except UndecodableError as error:
                found.append(browsed(at, None, error.message))
        return found
    return [browsed(at, content) for at, content in enumerate(opened, first)]
