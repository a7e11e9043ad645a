"""Tries numbers of partitions and consumers on the real keys, and chooses. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from partq.core.group.assignors import sticky
from partq.core.model import PartitionId
from partq.core.slot_table import SlotTable
from partq.errors import BadRequestError
from partq.pipeline.advise.loads import Loads

Rates = npt.NDArray[np.float64]

CANDIDATES: Final = (
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
)  # fmt: skip
"""Numbers with many divisors: consumers get shares of equal size."""
NEARLY_ALL: Final = 0.9
"""Share of the possible parallel work; a partition count that reaches it is enough."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the suggestion has to hold for."""

    consumer_per_s: float | None
    """Messages that one consumer processes per second; None: unknown."""
    utilization: float = 0.7
    """How busy a consumer may be in the busiest window, above 0, at most 1."""
    growth: float = 1.5
    """How many times the load that was seen must fit, from 1 on."""

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            BadRequestError: a number is outside of its range.
        """
        if self.consumer_per_s is not None and not 0 < self.consumer_per_s <= 1e9:
            raise BadRequestError(
                f"a consumer's rate of {self.consumer_per_s:g}; expected messages per second, "
                "above 0"
            )
        if not 0 < self.utilization <= 1:
            raise BadRequestError(f"utilization {self.utilization:g}; expected above 0, at most 1")
        if not 1 <= self.growth <= 1000:
            raise BadRequestError(f"growth {self.growth:g}; expected from 1 to 1000")

    @property
    def room_per_s(self) -> float | None:
        """What one consumer may get per second of the load that was seen."""
        if self.consumer_per_s is None:
            return None
        return self.consumer_per_s * self.utilization / self.growth


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number of partitions, tried on the real keys."""

    partitions: int
    hottest_share: float
    """Of all messages, in the partition that has the most."""
    parallelism: float
    """How many consumers could be busy all the time: all messages / those of the hottest one."""
    peak_per_s: float
    """Of the busiest partition, in its busiest window."""
    consumers: int | None
    """The fewest that keep up; None: no number does, or their speed is unknown."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What is suggested, and why."""

    partitions: int
    consumers: int | None
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    simulated_lag: int | None
    """The most messages that wait, with the suggested numbers and the load as it was."""


def partition_rates(loads: Loads, table: SlotTable) -> Rates:
    """Return messages per second as [window, index]; those without a key spread evenly."""
    owned = sorted(
        (each.start, partition.index)
        for partition, ranges in table.slots.items()
        for each in ranges
    )
    by_range = np.add.reduceat(loads.by_slot, [start for start, _ in owned], axis=1)
    keyed = np.zeros((by_range.shape[0], table.partition_count))
    np.add.at(keyed.T, [index for _, index in owned], by_range.T)
    rates: Rates = (keyed + loads.keyless[:, None] / table.partition_count) / loads.window_s
    return rates


def table_of(partition_count: int, current: SlotTable | None) -> SlotTable:
    """Return the slots of a new queue, or of a queue whose partition count is changed to this."""
    if current is None or current.partition_count == partition_count:
        return current or SlotTable.first(partition_count)
    return current.resized(partition_count, current.generation + 1).table


def member_rates(rates: Rates, member_count: int) -> Rates:
    """Return messages per second as [window, member], assigned as a consumer group is."""
    partition_count = rates.shape[1]
    members = [f"{index:06d}" for index in range(member_count)]
    owners = sticky([PartitionId(1, index) for index in range(partition_count)], members, {})
    place = np.array([int(owners[PartitionId(1, index)]) for index in range(partition_count)])
    found = np.zeros((rates.shape[0], member_count))
    np.add.at(found.T, place, rates.T)
    return found


def consumers_needed(rates: Rates, room_per_s: float) -> int | None:
    """Return the fewest members of which none gets more than there is room for; None: no number."""
    partition_count = int(rates.shape[1])
    if rates.max() > room_per_s:
        return None
    fewest = max(1, int(np.ceil(rates.sum(axis=1).max() / room_per_s)))
    for count in range(fewest, partition_count):
        # With a share of equal size for most, the hottest one decides; each count is tried.
        if member_rates(rates, count).max() <= room_per_s:
            return count
    return partition_count


def simulate_lag(rates: Rates, consumer_per_s: float, window_s: int) -> int:
    """Return the most messages that wait at the end of a window, when members work so fast."""
    waiting = np.zeros(rates.shape[1])
    most = 0.0
    for arriving in rates:
        waiting = np.maximum(0.0, waiting + (arriving - consumer_per_s) * window_s)
        most = max(most, float(waiting.sum()))
    return int(most)


def try_candidates(
    loads: Loads, needs: Needs, counts: Sequence[int], current: SlotTable | None
) -> list[Candidate]:
    """Return what each number of partitions would have meant."""
    found = []
    for count in counts:
        rates = partition_rates(loads, table_of(count, current))
        totals = rates.sum(axis=0)
        hottest = float(totals.max() / totals.sum())
        room = needs.room_per_s
        found.append(
            Candidate(
                partitions=count,
                hottest_share=hottest,
                parallelism=1 / hottest,
                peak_per_s=float(rates.max()),
                consumers=None if room is None else consumers_needed(rates, room),
            )
        )
    return found


def advise(loads: Loads, needs: Needs, *, current: SlotTable | None = None) -> Advice:
    """Choose the fewest partitions that hold what is needed, and say why.

    Args:
        loads: what the queue has carried.
        needs: what has to hold.
        current: the partitions that it has. Their number is tried as well, and others as what a
            change to them would make of these.

    Raises:
        BadRequestError: the needs make no sense.
    """
    needs.check()
    counts = sorted({*CANDIDATES, *([current.partition_count] if current else [])})
    candidates = try_candidates(loads, needs, counts, current)
    chosen, reasons, warnings = _choose(loads, needs, candidates)
    if current is not None:
        reasons.append(_compare(chosen.partitions, current.partition_count))
    lag = None
    if needs.consumer_per_s is not None and chosen.consumers is not None:
        table = table_of(chosen.partitions, current)
        rates = member_rates(partition_rates(loads, table), chosen.consumers)
        lag = simulate_lag(rates, needs.consumer_per_s, loads.window_s)
        reasons.append(
            f"with the load as it was, and {chosen.consumers} consumers at "
            f"{needs.consumer_per_s:,.0f}/s, at most {lag:,} messages would have waited at the end "
            f"of a window of {loads.window_s} s"
        )
    return Advice(
        chosen.partitions,
        chosen.consumers,
        tuple(reasons),
        tuple(warnings + _skew(loads)),
        tuple(candidates),
        lag,
    )


def _choose(
    loads: Loads, needs: Needs, candidates: Sequence[Candidate]
) -> tuple[Candidate, list[str], list[str]]:
    most = max(each.parallelism for each in candidates)
    enough = next(each for each in candidates if each.parallelism >= NEARLY_ALL * most)
    room = needs.room_per_s
    if room is None or needs.consumer_per_s is None:
        reasons = [
            f"{enough.partitions} partitions let {enough.parallelism:.1f} consumers be busy at the "
            f"same time; more partitions bring that to {most:.1f} at most"
        ]
        return (
            enough,
            reasons,
            ["the rate of a consumer is unknown: none are suggested"],
        )
    chosen = next((each for each in candidates if each.consumers is not None), None)
    if chosen is not None:
        reasons = [
            f"{chosen.partitions} is the first number at which the busiest partition "
            f"({chosen.peak_per_s:,.1f}/s) fits into what one consumer may get: {room:,.1f}/s, "
            f"which is {needs.consumer_per_s:,.0f}/s x {needs.utilization:g} / {needs.growth:g}",
            f"{chosen.consumers} consumers are the fewest of which none gets more than that; the "
            f"queue's peak is {loads.peak_per_s:,.1f}/s",
        ]
        return chosen, reasons, []
    reasons = [
        f"no number up to {candidates[-1].partitions} lets one consumer keep up with the busiest "
        f"partition; from {enough.partitions} on more partitions hardly help"
    ]
    hottest = loads.keys.hot[0] if loads.keys.hot else None
    if hottest is not None and hottest.peak_per_s > room:
        warning = (
            f"the key {hottest.key!r} alone has {hottest.peak_per_s:,.1f}/s, and a consumer may "
            f"get {room:,.1f}/s: one key is never in two partitions, so no number helps; make "
            "consumers faster, or the key finer"
        )
    else:
        warning = (
            f"several busy keys share a partition ({enough.peak_per_s:,.1f}/s) and a consumer may "
            f"get {room:,.1f}/s: make consumers faster"
        )
    return enough, reasons, [warning]


def _compare(suggested: int, current: int) -> str:
    if suggested == current:
        return f"that is what the queue has: {current}"
    return f"the queue has {current}; " + (
        "fewer would do" if current > suggested else "it needs more"
    )


def _skew(loads: Loads) -> list[str]:
    """Say what the keys make impossible."""
    if not loads.keys.hot:
        return ["no message has a key: any number of partitions spreads them evenly"]
    hottest = loads.keys.hot[0]
    if hottest.share < 0.1:
        return []
    return [
        f"the key {hottest.key!r} has {hottest.share:.0%} of the messages: more than "
        f"{1 / hottest.share:.0f} consumers cannot be busy all the time"
    ]
