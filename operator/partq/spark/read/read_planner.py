"""Decides what a read covers: where it begins and ends, and what to do where messages are gone."""

import logging
from collections.abc import Callable, Iterable, Mapping

from partq.client.log_reader import LogPosition, Where
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    DataLossError,
    PartqError,
    RolledBackError,
    UnknownGroupError,
)
from partq.spark.read.division import share_out
from partq.spark.read.log_thread import LogThread
from partq.spark.read.offsets import Offsets, QueueLife, Range, ReadPosition
from partq.spark.read.options import EARLIEST, LATEST, ReadBound, ReadOptions

log = logging.getLogger("partq.spark")

CHECKPOINT = "the checkpoint"


class ReadPlanner:
    """Finds places in the logs of one queue. Every call raises what `LogReader` raises, too."""

    def __init__(self, thread: LogThread, options: ReadOptions) -> None:
        self._log = thread
        self._options = options
        self._queue = options.connection.queue

    def check(self) -> None:
        """Have the brokers judge URL, token, queue, group and partitions."""
        partitions = self._log.layout().partitions()
        if self._options.group:
            try:
                self._log.positions({"group": self._options.group}, list(partitions[:1]))
            except UnknownGroupError as error:
                raise UnknownGroupError(
                    f"option group: {error.message}; it needs no members, or leave the option out"
                ) from error
        for name, place in (
            ("startingOffsets", self._options.start),
            ("endingOffsets", self._options.end),
        ):
            if place.life is not None:
                self.is_of_this_queue(name, place.life)
            for unknown in sorted(
                {*(place.offsets or ()), *(place.times_ms or ())}.difference(partitions)
            ):
                raise BadRequestError(
                    f"{name}: queue {self._queue!r} has no partition {unknown}; it has "
                    f"{_names(partitions)}"
                )

    def check_ends(self) -> None:
        """Refuse offsets of the options that lie above the ends of their partitions.

        Not with `failOnDataLoss` false: a stream with a checkpoint reads a queue that was created
        again, whose ends are lower, and does not use them.

        Raises:
            BadRequestError: an offset is above the end.
        """
        if not self._options.fail_on_data_loss:
            return
        for name, place in (
            ("startingOffsets", self._options.start),
            ("endingOffsets", self._options.end),
        ):
            exact = {
                each: position
                for each, position in (place.offsets or {}).items()
                if position.offset >= 0 and not position.append_broker_epoch
            }
            if not exact:
                continue
            found = self._log.positions({"offsets": {each: exact[each].offset for each in exact}})
            for partition, position in exact.items():
                self._check_end(name, position, found[partition])

    def _check_end(self, name: str, position: ReadPosition, now: LogPosition) -> None:
        if now.end < position.offset:
            raise BadRequestError(
                f"{name}: partition {now.partition} of queue {self._queue!r} ends at {now.end}; "
                f"got {position.offset}, expected at most that"
            )

    def is_of_this_queue(self, name: str, life: QueueLife) -> bool:
        """Say whether positions are of this queue; False: of one that had its name before.

        Raises:
            ConflictError: they are of another queue, whatever `failOnDataLoss` says.
            RolledBackError: the queue was deleted and created again, and that is true.
        """
        ours = self._log.life()
        if life == ours:
            return True
        what = f"{name} is of queue {life}, and this query reads {ours}"
        if life[:2] != ours[:2]:
            other = "checkpointLocation" if name == CHECKPOINT else name
            raise ConflictError(
                f"{what}; name that queue in the options, or give this query another {other}"
            )
        self._lost(
            RolledBackError,
            f"{what}: the queue was deleted and created again",
            "to continue with the first message of the new one",
        )
        return False

    def start(self) -> dict[PartitionId, ReadPosition]:
        """Return where the read begins."""
        return self._resolve(self._options.start, "startingOffsets", EARLIEST)

    def end(self) -> dict[PartitionId, ReadPosition]:
        """Return where a batch ends."""
        return self._resolve(self._options.end, "endingOffsets", LATEST)

    def latest(self) -> dict[PartitionId, ReadPosition]:
        """Return the ends of all logs."""
        return _positions(self._log.ends().positions.values())

    def next_end(
        self,
        start: Offsets,
        *,
        limit: int | None,
        target: Offsets | None = None,
        is_enough: Callable[[int], bool] | None = None,
    ) -> dict[PartitionId, ReadPosition]:
        """Return where a micro-batch from `start` ends.

        A retired partition that was read to its end is left out: it may be removed from now on.

        Args:
            start: where the last one ended.
            limit: the most messages of it; None: all.
            target: beyond which nothing is read; None: nothing is.
            is_enough: whether so many messages are worth a micro-batch; it ends at `start` if they
                are not. None: any are.
        """
        ends = self._log.ends()
        layout, found = ends
        latest = _positions(found.values())
        if target is not None:
            latest = {
                each: min(position, target[each], key=lambda place: place.offset)
                for each, position in latest.items()
                if each in target
            }
        begin = self._begin(layout, start, latest)
        unread = {
            each: max(0, latest[each].offset - position.offset)
            for each, position in begin.items()
            if each in latest
        }
        total = sum(unread.values())
        if total and is_enough is not None and not is_enough(total):
            return dict(start)
        shares = share_out(
            total if limit is None else limit,
            unread,
            ends.order(),
            {each: position.offset for each, position in begin.items()},
        )
        end, unsure = {}, {}
        for each, share in shares.items():
            if begin[each].offset == found[each].end and ends.is_final(each):
                continue
            if share == 0:
                end[each] = begin[each]
            elif share == unread[each]:
                end[each] = latest[each]
            else:
                unsure[each] = begin[each].offset + share
        if unsure:
            end |= _positions(self._log.positions({"offsets": unsure}).values())
        return end

    def begin(
        self, start: Offsets, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, ReadPosition]:
        """Return where a micro-batch from `start` begins, in these partitions and those of `start`.

        A partition that `start` does not know, as it is of a newer generation, is read from its
        very first message.

        Raises:
            DataLossError: messages behind `start` are gone, and `failOnDataLoss` is true.
            RolledBackError: the store has lost messages that were read, and it is true.
        """
        return self._begin(self._log.layout(), start, partitions)

    def _begin(
        self, layout: Layout, start: Offsets, partitions: Iterable[PartitionId]
    ) -> dict[PartitionId, ReadPosition]:
        living = layout.partitions()
        newest = max((each.generation for each in start), default=0)
        begin = {each: ReadPosition(0) for each in partitions if each.generation > newest}
        begin |= {each: position for each, position in start.items() if each in living}
        for gone in sorted(set(start).difference(living)):
            if not layout.is_past(gone):
                self._lost(
                    RolledBackError,
                    f"queue {self._queue!r}: {CHECKPOINT} has partition {gone}, and the queue has "
                    f"{_names(living)}: the checkpoint is of another queue, or the queue was "
                    "deleted and created again; use another checkpointLocation, or, only if it was "
                    "created again,",
                    "to continue with what was stored since",
                )
                continue
            if self._options.group:
                continue  # it is removed once the group has read it
            self._lost(
                DataLossError,
                f"queue {self._queue!r}: partition {gone} is gone, and whether all of it was read "
                f"to offset {start[gone].offset} is not known",
                "to continue without it, and a group to have partitions kept",
            )
        return self._checked(CHECKPOINT, begin)

    def end_of(self, begin: Offsets, planned: Offsets) -> dict[PartitionId, ReadPosition]:
        """Return where a micro-batch ends that may have been planned before the store was changed.

        A log that was rolled back since ends earlier for it: what is stored there by now belongs to
        the next micro-batch. Raises as `begin`.
        """
        ours = {
            each: position
            for each, position in planned.items()
            if each in begin and begin[each].offset < position.offset
        }
        return {**planned, **self._checked(CHECKPOINT, ours)}

    def ranges(self, begin: Offsets, end: Offsets) -> list[Range]:
        """Return what lies between two places, one range per partition that has something."""
        return [
            Range(
                partition=partition,
                start=begin[partition].offset,
                stop=stop.offset,
                start_epoch=begin[partition].append_broker_epoch,
                stop_epoch=stop.append_broker_epoch,
                most_epoch=stop.append_broker_epoch,
                kept_from=begin[partition].offset,
            )
            for partition, stop in sorted(end.items())
            if partition in begin and begin[partition].offset < stop.offset
        ]

    def _resolve(
        self, place: ReadBound, name: str, unnamed: int
    ) -> dict[PartitionId, ReadPosition]:
        layout = self._log.layout()
        partitions = list(layout.partitions())
        if place.everywhere == "group":
            found = self._log.positions({"group": self._options.group}, partitions)
            return _positions(found.values())
        if place.everywhere == "latest":
            return self.latest()
        if place.everywhere is not None:
            return _positions(self._log.positions(place.everywhere, partitions).values())
        if place.at_ms is not None:
            return _positions(self._log.positions({"at_ms": place.at_ms}, partitions).values())
        default: Where = "earliest" if unnamed == EARLIEST else "latest"
        positions = _positions(self._log.positions(default, partitions).values())
        for at_ms in sorted(set((place.times_ms or {}).values())):
            ours = [each for each, time in (place.times_ms or {}).items() if time == at_ms]
            positions |= _positions(self._log.positions({"at_ms": at_ms}, ours).values())
        given = place.offsets or {}
        standing: tuple[tuple[int, Where], ...] = ((EARLIEST, "earliest"), (LATEST, "latest"))
        for stands_for, where in standing:
            ours = [each for each, position in given.items() if position.offset == stands_for]
            if ours:
                positions |= _positions(self._log.positions(where, ours).values())
        exact = {each: position for each, position in given.items() if position.offset >= 0}
        return positions | self._checked(name, exact)

    def _checked(self, name: str, known: Offsets) -> dict[PartitionId, ReadPosition]:
        """Return positions as they can be read from; lost ones are moved, or refused."""
        if not known:
            return {}
        found = self._log.positions({"offsets": {each: known[each].offset for each in known}})
        checked = {}
        for partition, position in known.items():
            now = found[partition]
            epoch = position.append_broker_epoch
            if not epoch and name != CHECKPOINT:
                self._check_end(name, position, now)
            place = f"queue {self._queue!r}, partition {partition}: {name} is at {position.offset}"
            if now.end < position.offset or (
                epoch and now.append_broker_epoch and epoch != now.append_broker_epoch
            ):
                self._lost(
                    RolledBackError,
                    f"{place}, of messages that are not in this log (it ends at {now.end}): its "
                    "store was rolled back, or the queue was deleted and created again",
                    "to continue with what was stored since",
                )
                at = self._parting(position, now)
                now = self._log.positions({"offsets": {partition: at}})[partition]
                position = ReadPosition(now.offset, now.append_broker_epoch)
            if position.offset < now.first:
                self._lost(
                    DataLossError,
                    f"{place}, and what is stored begins at {now.first}: "
                    f"{now.first - position.offset} messages were trimmed or have expired",
                    "to continue without them, or startingOffsets to earliest to begin with what "
                    "there is",
                )
                position = ReadPosition(now.first)
            checked[partition] = position
        return checked

    def _parting(self, known: ReadPosition, now: LogPosition) -> int:
        """Return the offset of the first message that was stored after the log was rolled back.

        Its broker epoch is higher than that of the message that was read last, and from there on
        all are: epochs never go down along a log.
        """
        low, high = now.first, min(known.offset, now.end)
        if not known.append_broker_epoch:
            return high
        while low < high:
            middle = (low + high) // 2
            below = self._log.positions({"offsets": {now.partition: middle + 1}})[now.partition]
            if below.append_broker_epoch > known.append_broker_epoch:
                high = middle
            else:
                low = middle + 1
        return low

    def _lost(self, kind: type[PartqError], what: str, why: str) -> None:
        """Refuse to continue, or warn: `what` has happened, `why` is what to set the option for."""
        if self._options.fail_on_data_loss:
            raise kind(f"{what}; set failOnDataLoss to false {why}")
        log.warning("%s; the query continues, for failOnDataLoss is false", what)


def _positions(found: Iterable[LogPosition]) -> dict[PartitionId, ReadPosition]:
    return {each.partition: ReadPosition(each.offset, each.append_broker_epoch) for each in found}


def _names(partitions: Iterable[PartitionId]) -> str:
    names = [str(each) for each in partitions]
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"


def log_positions(offsets: Offsets) -> Mapping[PartitionId, LogPosition]:
    """Return positions as the client takes them."""
    return {
        partition: LogPosition(partition, position.append_broker_epoch, position.offset)
        for partition, position in offsets.items()
    }
