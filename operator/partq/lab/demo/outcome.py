"""What came of a run of the demo: the journals' verdict, and what each change did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from partq.core.slot_table import SlotTable
from partq.lab.demo.inspection import Inspection
from partq.lab.verdict.journal import in_order
from partq.lab.verdict.judge import Verdict, find_duplicates, judge
from partq.lab.verdict.progress import RunProgress
from partq.lab.verdict.rescale_figures import ObservedRescale, measure_rescale
from partq.lab.verdict.timeline import (
    ObservedRebalance,
    RecordedPause,
    RunChange,
    hit_live_traffic,
    measure,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """What came of a run."""

    verdict: Verdict
    rebalances: tuple[ObservedRebalance, ...]
    duplicates: tuple[int, ...]
    """How many came between each change and the next one."""
    rescales: tuple[ObservedRescale, ...]
    """What each change of the partition count did to the traffic."""
    failures: tuple[str, ...]
    """Why the run has failed apart from the verdict: a sentence each."""
    inspection: Inspection | None = None
    """What the jobs on Spark say of it, if they were asked."""

    @property
    def is_good(self) -> bool:
        """Whether the run has shown what it was to show."""
        return self.verdict.is_good and not self.failures


def conclude(
    progress: RunProgress,
    changes: Sequence[RunChange],
    event_count: int,
    recorded: Sequence[RecordedPause] = (),
    tables: Mapping[str, tuple[SlotTable, SlotTable]] = MappingProxyType({}),
) -> DemoOutcome:
    """Judge a run by its journals.

    `recorded`: the coordinator's word on its rebalances. `tables`: of each change of the partition
    count, by its trigger, the slots of the partitions before it and after it.
    """
    published, deliveries = in_order(progress.published), in_order(progress.deliveries)
    held = in_order(progress.held)
    verdict = judge(published, deliveries)
    repeats = [row.at_ns for _, row in find_duplicates(deliveries)]
    published_ns = [row.at_ns for row in published]
    processed_ns = [row.at_ns for row in deliveries]
    failures = [
        f"{change.trigger!r} did not hit live traffic"
        for change in changes
        if not hit_live_traffic(change, published_ns, processed_ns)
    ]
    rescales = tuple(
        measure_rescale(change, *tables[change.trigger], published, deliveries)
        for change in changes
        if change.trigger in tables
    )
    failures += [
        f"{each.from_count} -> {each.to_count} partitions: {each.moved_slots} slots have moved, "
        f"{each.least_slots} had to"
        for each in rescales
        if not each.is_least
    ]
    if verdict.published != event_count:
        failures.append(f"{verdict.published} of {event_count} events were published")
    return DemoOutcome(
        verdict=verdict,
        rebalances=tuple(measure(change, held, recorded) for change in changes),
        duplicates=tuple(
            sum(change.at_ns <= at_ns < change.until_ns for at_ns in repeats) for change in changes
        ),
        rescales=rescales,
        failures=tuple(failures),
    )
