"""Places in the logs of partitions, as callers of clients name them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Literal, NamedTuple

from partq.client.arguments import MAX_INTEGER, whole
from partq.core.clocks.units import check_at_ms
from partq.core.model import PartitionId
from partq.errors import BadRequestError, FencedError, SettingsError
from partq.excerpts import excerpt, some_of


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A place between two messages of a partition, and what the log held at that time."""

    partition: PartitionId
    """The partition that it is in."""
    append_broker_epoch: int
    """Of the message at `offset` - 1; 0: none is stored there, so it cannot be checked."""
    offset: int
    """Of the next message."""
    first: int = 0
    """The first offset that the log held."""
    end: int = 0
    """The offset of the next message that would be stored."""
    seals: Mapping[int, int] = field(default_factory=dict, compare=False)
    """Generation of each change of the partition count that took slots away → the end of the log at
    that time: from there on it has no messages of these slots."""


SeekWhere = (
    Literal["earliest", "latest"] | Mapping[str, int] | Mapping[PartitionId, int | LogPosition]
)
"""`earliest`, `latest`, {"at_ms": int}, or an offset or `LogPosition` per partition."""


class SeekPlace(NamedTuple):
    """Where a consumer continues in a partition: one of `to`, `at_ms` and `offset` is given."""

    to: str = ""
    """`earliest` or `latest`; empty: neither."""
    at_ms: int = -1
    """Unix time in ms: at the first message that was stored then or later; -1: not given."""
    offset: int = -1
    """Of the next message; -1: not given."""
    append_broker_epoch: int = 0
    """Of the message below the offset; 0: not known."""


def offset_and_epoch(
    name: str, partition: PartitionId, place: int | LogPosition
) -> tuple[int, int]:
    """Return the offset, and the append broker epoch below it; 0: not known.

    `name`: of the argument that has the place, for errors.

    Raises:
        SettingsError: it is neither an offset nor a `LogPosition` of this partition.
    """
    if not isinstance(place, LogPosition):
        return whole(name, place, 0, MAX_INTEGER), 0
    if place.partition != partition:
        raise SettingsError(
            f"{name}: got a LogPosition of partition {excerpt(str(place.partition))}, expected one "
            f"of partition {partition}"
        )
    offset = whole(f"{name}: offset", place.offset, 0, MAX_INTEGER)
    return offset, whole(f"{name}: append_broker_epoch", place.append_broker_epoch, 0, MAX_INTEGER)


def log_position(what: str, partition: PartitionId, place: object) -> LogPosition:
    """Return a place that an application has given for a partition; `what`: the call, for errors.

    Raises:
        BadRequestError: it is neither an offset nor a `LogPosition` of this partition.
    """
    if isinstance(place, LogPosition) and place.partition == partition:
        return _checked(what, place)
    if isinstance(place, int) and not isinstance(place, bool) and 0 <= place <= MAX_INTEGER:
        return LogPosition(partition, 0, place)
    raise BadRequestError(
        f"{what}: got {excerpt(repr(place))} for partition {partition}, expected an offset from 0 "
        "on, or a LogPosition of this partition"
    )


def _checked(what: str, place: LogPosition) -> LogPosition:
    """Return a place with whole numbers in it, whose classes nobody checks when it is made."""
    name = f"{what}: LogPosition for partition {place.partition}"
    try:
        offset, epoch = offset_and_epoch(name, place.partition, place)
    except SettingsError as error:
        raise BadRequestError(error.message) from None
    return replace(place, append_broker_epoch=epoch, offset=offset)


def check_unit(what: str, at_ms: object) -> None:
    """Refuse a time that is in another unit; what is no number is not looked at.

    Raises:
        BadRequestError: it lies before 1973 and is not 0, or after the year 5138.
    """
    if isinstance(at_ms, bool) or not isinstance(at_ms, Integral):
        return
    check_at_ms(f"{what}: at_ms", int(at_ms), "the oldest message")


def seek_places(where: object, held: Collection[PartitionId]) -> dict[PartitionId, SeekPlace]:
    """Return where a consumer continues, in each partition that is meant.

    Args:
        where: a `SeekWhere`, as the application has given it.
        held: the partitions that the consumer has.

    Raises:
        BadRequestError: `where` is something else.
        FencedError: the consumer does not have a partition that is meant, or has none.
    """
    if isinstance(where, str) and where in ("earliest", "latest"):
        return dict.fromkeys(_all(held), SeekPlace(to=where))
    if isinstance(where, Mapping) and where.keys() == {"at_ms"}:
        at_ms = where["at_ms"]
        check_unit("seek", at_ms)
        if isinstance(at_ms, int) and not isinstance(at_ms, bool) and 0 <= at_ms <= MAX_INTEGER:
            return dict.fromkeys(_all(held), SeekPlace(at_ms=at_ms))
        raise BadRequestError(
            f"seek: at_ms: got {excerpt(repr(at_ms))}, expected milliseconds since 1970, a whole "
            "number"
        )
    if not isinstance(where, Mapping) or not where:
        raise BadRequestError(
            f"seek: got {excerpt(repr(where))}, expected 'earliest', 'latest', {{'at_ms': "
            "milliseconds}, or an offset or LogPosition by PartitionId"
        )
    places = {}
    for partition, place in where.items():
        if not isinstance(partition, PartitionId):
            raise BadRequestError(
                f"seek: got a place in {excerpt(repr(partition))}, expected a PartitionId, such as "
                "PartitionId.parse('1.3')"
            )
        if partition not in held:
            raise FencedError(
                f"seek: got a place in partition {partition}, expected one that this consumer has, "
                f"of {some_of([str(each) for each in held])}; nothing was moved: seek where it is "
                "assigned"
            )
        position = log_position("seek", partition, place)
        places[partition] = SeekPlace(
            offset=position.offset, append_broker_epoch=position.append_broker_epoch
        )
    return places


def _all(held: Collection[PartitionId]) -> list[PartitionId]:
    if not held:
        raise FencedError(
            "seek: this consumer has no partition; nothing was moved: seek once one is assigned, "
            "as in on_assigned"
        )
    return sorted(held)
