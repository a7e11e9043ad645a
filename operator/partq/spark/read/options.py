"""What the options of a read say: in the habit of Spark's Kafka source, checked before anything."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from partq.core.clocks.units import MAX_AT_MS, MIN_AT_MS
from partq.core.model import PartitionId
from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.spark.connection import CONNECTION_OPTIONS, ClientOptions, connection_of
from partq.spark.read.offsets import ORIGIN, QueueLife, ReadPosition, origin_of, position_of

EARLIEST, LATEST = -2, -1
"""Offsets in a JSON option that stand for a place, as in the Kafka source."""
MOST = 2**63 - 1
DEFAULT_TRIGGER_DELAY = "15m"
MAX_TRIGGER_DELAY_S = 30 * 86_400.0
_UNITS_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "": 1e-3,
}
"""As Spark has them in its own settings; without a unit it is milliseconds."""

READ_OPTIONS = (
    *CONNECTION_OPTIONS,
    "group",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "states",
)


_OF_BATCHES = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


@dataclass(frozen=True, slots=True)
class ReadBound:
    """Where to begin or to end: in all partitions alike, or each at its own."""

    everywhere: Literal["earliest", "latest", "group"] | None = None
    at_ms: int | None = None
    offsets: Mapping[PartitionId, ReadPosition] | None = None
    """`EARLIEST` and `LATEST` may stand for an offset."""
    times_ms: Mapping[PartitionId, int] | None = None
    life: QueueLife | None = None
    """The queue that the offsets are of, where they were copied from a checkpoint."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read as it was asked for."""

    connection: ClientOptions
    group: str | None
    start: ReadBound
    end: ReadBound
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    """How long fewer than that wait, after the last micro-batch."""
    min_partitions: int | None
    max_records_per_partition: int | None
    max_tasks: int | None
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    with_headers: bool
    cores: int | None = None
    """How many tasks Spark runs at once; None: not known."""


def read_options(
    given: Mapping[str, str], *, is_stream: bool | None, cores: int | None = None
) -> ReadOptions:
    """Read the options of a batch or of a stream; their names are of any case.

    Args:
        given: by their names.
        is_stream: None: not known yet; what is right for either passes.
        cores: how many tasks Spark runs at once; None: not known.

    Raises:
        BadRequestError: an option that there is not, that is unusable, or that contradicts another.
    """
    options = Given(given, READ_OPTIONS)
    options.refuse_both(_OF_BATCHES, _OF_STREAMS, "one is for a batch, one for a stream")
    if is_stream:
        options.refuse(_OF_BATCHES, "a stream has no end; read a batch with spark.read")
    elif is_stream is False:
        options.refuse(_OF_STREAMS, "a batch has no trigger; set endingOffsets, or read a stream")
    group = options.text("group")
    default: Literal["earliest", "latest", "group"] = "latest" if is_stream else "earliest"
    start = options.place("starting", "group" if group else default)
    end = options.place("ending", "latest")
    if start.everywhere == "group" and not group:
        raise BadRequestError("startingOffsets: group, and no group is named; set the option group")
    if start.everywhere == "latest" and is_stream is False:
        raise BadRequestError("startingOffsets: a batch from latest is empty; set earliest or JSON")
    if end.everywhere in {"earliest", "group"}:
        raise BadRequestError(f"endingOffsets: {end.everywhere}; expected latest or JSON")
    _check_order(start, end)
    most, least = (options.natural(f"{which}OffsetsPerTrigger") for which in ("max", "min"))
    if most is not None and least is not None and least > most:
        raise BadRequestError(
            f"minOffsetsPerTrigger: {least}, above maxOffsetsPerTrigger: {most}; expected at most "
            "that"
        )
    if least is None:
        options.refuse(("maxTriggerDelay",), "it is for minOffsetsPerTrigger, which is not set")
    names = tuple(each.strip() for each in (options.text("columns") or "").split(",") if each)
    with_headers = options.flag("includeHeaders", default=False)
    if names and with_headers and "headers" not in names:
        raise BadRequestError("includeHeaders is true, and columns does not name headers")
    max_tasks = options.natural("maxTasks")
    min_partitions = options.natural("minPartitions")
    most_records = options.natural("maxRecordsPerPartition")
    if max_tasks is not None and most_records is not None:
        raise BadRequestError(
            "options maxTasks and maxRecordsPerPartition contradict each other; set one"
        )
    if max_tasks is not None and min_partitions is not None and min_partitions > max_tasks:
        raise BadRequestError(
            f"options minPartitions and maxTasks: got {min_partitions} tasks at least and "
            f"{max_tasks} at most; set minPartitions lower, or maxTasks higher"
        )
    return ReadOptions(
        connection=connection_of(given),
        group=group,
        start=start,
        end=end,
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=options.duration_s("maxTriggerDelay", DEFAULT_TRIGGER_DELAY),
        min_partitions=min_partitions,
        max_records_per_partition=most_records,
        max_tasks=max_tasks,
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        columns=names,
        with_headers=with_headers,
        cores=cores,
    )


def wants_states(given: Mapping[str, str]) -> bool:
    """Say whether states of keys are to be read, in the place of messages.

    Raises:
        BadRequestError: the option says neither.
    """
    named = {name: value for name, value in given.items() if name.lower() == "states"}
    return Given(named, ("states",)).flag("states", default=False)


class Given:
    """Options by their names in lower case."""

    def __init__(
        self, given: Mapping[str, str], known: tuple[str, ...], *, of: str = "reads"
    ) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}
        names = {name.lower() for name in known}
        for name in self._given:
            if name not in names:
                raise BadRequestError(
                    f"option {excerpt(name)!r} is not an option of {of}; there are "
                    f"{', '.join(known)}"
                )

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        """Refuse options that make no sense here."""
        for name in names:
            if name.lower() in self._given:
                raise BadRequestError(f"option {name}: {why}")

    def refuse_both(self, some: tuple[str, ...], others: tuple[str, ...], why: str) -> None:
        """Refuse options of two kinds that cannot go together."""
        given = [[name for name in each if name.lower() in self._given] for each in (some, others)]
        if all(given):
            raise BadRequestError(
                f"options {given[0][0]} and {given[1][0]} contradict each other: {why}; leave one "
                "out"
            )

    def text(self, name: str) -> str | None:
        """Return the option; None for an empty one."""
        return self._given.get(name.lower(), "").strip() or None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether the option is true."""
        text = (self.text(name) or str(default)).lower()
        if text not in {"true", "false"}:
            raise BadRequestError(f"option {name}: {excerpt(text)!r}; expected true or false")
        return text == "true"

    def natural(self, name: str) -> int | None:
        """Return a number from 1 on."""
        text = self.text(name)
        return None if text is None else _integer(name, text, least=1)

    def duration_s(self, name: str, default: str) -> float:
        """Return a time such as `30s` or `5m`, in seconds."""
        text = self.text(name) or default
        found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text.lower())
        seconds = int(found[1]) * _UNITS_S[found[2]] if found and found[2] in _UNITS_S else -1.0
        if not 0 <= seconds <= MAX_TRIGGER_DELAY_S:
            raise BadRequestError(
                f"option {name}: {excerpt(text)!r}; expected a time of at most 30 days, such as "
                f"{default}, with ms, s, m, h or d"
            )
        return seconds

    def place(self, which: str, default: Literal["earliest", "latest", "group"]) -> ReadBound:
        """Return where to begin (`starting`) or to end (`ending`)."""
        names = [f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"]
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise BadRequestError(f"options {' and '.join(given)} contradict each other; set one")
        if not given:
            return ReadBound(everywhere=default)
        (name,) = given
        text = cast(str, self.text(name))
        if name == names[1]:
            return ReadBound(at_ms=_at_ms(name, text))
        if name == names[0] and text.lower() in {"earliest", "latest", "group"}:
            return ReadBound(everywhere=cast(Literal["earliest", "latest", "group"], text.lower()))
        by_partition, life = _by_partition(name, text)
        if name == names[2]:
            return ReadBound(
                times_ms={
                    partition: _at_ms(f"{name} of {partition}", value)
                    for partition, value in by_partition.items()
                }
            )
        return ReadBound(
            offsets={
                partition: _position(f"{name} of {partition}", value)
                for partition, value in by_partition.items()
            },
            life=life,
        )


def _check_order(start: ReadBound, end: ReadBound) -> None:
    """Refuse a partition whose end is below its start: nothing of it would be read, in silence.

    Raises:
        BadRequestError: it names both.
    """
    for partition, last in sorted((end.offsets or {}).items()):
        first = (start.offsets or {}).get(partition, last)
        if 0 <= last.offset < first.offset:
            raise BadRequestError(
                f"endingOffsets of {partition}: {last.offset}, below its startingOffsets: "
                f"{first.offset}; expected at least that"
            )
    if end.at_ms is None and not end.times_ms:
        return
    for each in sorted({*(start.times_ms or ()), *(end.times_ms or ())}) or [None]:
        first_ms, last_ms = _time_of(start, each), _time_of(end, each)
        if first_ms is not None and last_ms is not None and last_ms < first_ms:
            raise BadRequestError(
                f"the read of {each or 'each partition'} ends at the time {last_ms}, before it "
                f"begins, at {first_ms}; expected an end that is not earlier"
            )


def _time_of(bound: ReadBound, partition: PartitionId | None) -> int | None:
    named = None if partition is None else (bound.times_ms or {}).get(partition)
    return bound.at_ms if named is None else named


def _by_partition(name: str, text: str) -> tuple[dict[PartitionId, object], QueueLife | None]:
    expected = f'option {name}: expected JSON such as {{"1.0": 5, "1.1": 7}}'
    if name.endswith("Offsets"):
        expected += ", or earliest, latest or group"
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BadRequestError(f"{expected}; got {excerpt(text)!r}") from error
    if not isinstance(body, dict) or not body:
        raise BadRequestError(f"{expected}; got {excerpt(text)!r}")
    origin = origin_of(f"option {name}", body)
    body.pop(ORIGIN, None)
    try:
        found: dict[PartitionId, object] = {
            PartitionId.parse(partition): value for partition, value in body.items()
        }
        return found, None if origin is None else origin.life
    except ValueError as error:
        raise BadRequestError(f"option {name}: {error}") from error


def _position(name: str, value: object) -> ReadPosition:
    if isinstance(value, dict):
        return position_of(name, value)
    return ReadPosition(_integer(name, value, least=EARLIEST))


def _at_ms(name: str, value: object) -> int:
    at_ms = _integer(name, value, least=0)
    if at_ms and not MIN_AT_MS <= at_ms <= MAX_AT_MS:
        raise BadRequestError(
            f"option {name}: {at_ms}; expected unix milliseconds, 0 or from {MIN_AT_MS} to "
            f"{MAX_AT_MS}: a time in seconds is multiplied by 1000"
        )
    return at_ms


def _integer(name: str, value: object, *, least: int) -> int:
    number = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) < 20:
        number = int(value)
    if number is None or not least <= number <= MOST:
        raise BadRequestError(
            f"option {name}: {excerpt(repr(value))}; expected an integer from {least} on"
        )
    return number
