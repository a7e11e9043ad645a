"""What the operator reports about changes of the number of partitions: status and Events."""

from collections.abc import Collection, Sequence

from partq.coordinator.ports import StorePorts
from partq.coordinator.reports.rescale_progress import ProgressStore, read_rescale_progress
from partq.core.layout import RescaleRecord
from partq.core.model import BrokerId
from partq.core.records import lacking_rescale
from partq.core.rescale.layout_steps import RescaleEvent
from partq.core.views.rescale_status import (
    HeldGroup,
    RescaleStatus,
    held_since,
    percent,
    rescale_status,
)
from partq.excerpts import counted
from partq.kube.names import EventReason
from partq.kube.status.event_diff import PendingEvent

HELD_MS = 3_600_000
"""How long after the commit of a change groups may hold new partitions before it is reported."""

_EVENTS = {
    RescaleEvent.STARTED: (
        EventReason.RESCALE_STARTED,
        "is being prepared; {moved:g} % of the keys move",
    ),
    RescaleEvent.COMMITTED: (EventReason.RESCALE_COMMITTED, "is in force"),
    RescaleEvent.OPENED: (EventReason.RESCALE_OPENED, "all new partitions take messages"),
    RescaleEvent.SETTLED: (EventReason.RESCALE_SETTLED, "is over: no group has older messages"),
    RescaleEvent.ABORTED: (EventReason.RESCALE_ABORTED, "is taken back; nothing has changed"),
}


class RescaleWatch:
    """Knows the latest change of one queue."""

    def __init__(self) -> None:
        self.status: RescaleStatus | None = None
        """As the last look found it; None: there was none, and none is wanted."""
        self.retired_bytes = 0
        """What partitions hold that take no messages any more."""
        self._reported: set[int] = set()
        """The generations for which it was told that groups hold partitions."""

    async def look(
        self,
        ports: StorePorts,
        partitions: ProgressStore,
        *,
        wanted_count: int,
        groups: Collection[str],
        brokers: Collection[BrokerId],
        now_ms: int,
    ) -> list[PendingEvent]:
        """Read how far the latest change has come, and return what is to be reported.

        Args:
            ports: of the queue's store.
            partitions: its partitions.
            wanted_count: what the spec says.
            groups: of the queue.
            brokers: with a lease.
            now_ms: since 1970, by the operator's clock.

        Raises:
            StoreUnavailableError: no answer.
        """
        layout = (await ports.layouts.read()).layout
        if not layout.changes and wanted_count == layout.partition_count:
            self.status, self.retired_bytes = None, 0
            return []
        retired = await partitions.read_many(tuple(layout.retired), only_reachable=True)
        self.retired_bytes = sum(record.bytes for record in retired.values())
        leases = (await ports.leases.read()).leases
        lacking = lacking_rescale({b: leases[b] for b in brokers if b in leases})
        progress = await read_rescale_progress(
            partitions, ports.seals, layout, brokers, wanted_count
        )
        self.status = rescale_status(
            layout,
            progress,
            wanted_count=wanted_count,
            groups=groups,
            lacking=lacking,
        )
        held = held_since(layout, progress, now_ms - HELD_MS)
        late = {number: found for number, found in held.items() if found}
        told = [each for number in late.keys() - self._reported for each in late[number]]
        self._reported.update(late)
        return held_events(told)


def held_events(held: Sequence[HeldGroup]) -> list[PendingEvent]:
    """Return a warning for each group that holds new partitions back."""
    return [
        PendingEvent(
            EventReason.OLD_PARTITIONS_HELD,
            f"group {each.group} does not get the messages of "
            f"{counted(each.partitions, 'new partition')} for more than an hour: it has "
            f"{counted(each.messages, 'older message', spec=',')} to acknowledge; start its "
            "consumers, release its blocked keys with `partq keys release`, move it with "
            f"`partq reset --group {each.group}`, or delete the group",
            is_warning=True,
        )
        for each in held
    ]


def event_of(
    event: RescaleEvent, change: RescaleRecord, pause_ms: int | None = None
) -> PendingEvent:
    """Return the Event about a step of a change.

    `pause_ms`: the longest time that publishes have waited for a new partition; None: not known.
    """
    reason, text = _EVENTS[event]
    count = f"{change.from_count} -> {counted(change.to_count, 'partition')}"
    told = text.format(moved=percent(change.moved_slots))
    if pause_ms is not None:
        told += f"; publishes to them waited for {pause_ms} ms at most"
    return PendingEvent(reason, f"{count}, generation {change.generation}: {told}")
