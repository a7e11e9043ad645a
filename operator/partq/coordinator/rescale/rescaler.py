"""Changes the partition count of a queue: prepares, commits, settles, removes what is retired.

Each look takes the steps that the records allow by now. `core/rescale/` decides. The layout
record holds all state, and its revision lets only one of two coordinators take a step.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from partq.aio import TaskSet
from partq.coordinator.chunks import in_chunks
from partq.coordinator.group.queue_observation import QueueObservation, owners
from partq.coordinator.ports import BrokerAdmin, PartitionRecord, RescaleListener, StorePorts
from partq.coordinator.rescale.layout_restorer import LayoutRestorer
from partq.core.layout import Layout, RescaleRecord
from partq.core.model import BrokerId, PartitionId
from partq.core.records import LeaseRecord, lacking_rescale
from partq.core.rescale.gates import GroupProgress, PredecessorView
from partq.core.rescale.layout_steps import RescaleEvent, abort, commit, prepare, remove, settle
from partq.core.rescale.preparation import Preparation, waits_before_commit
from partq.core.rescale.restoration import restored
from partq.core.rescale.settlement import (
    is_passed_by_all,
    is_settled,
    ready_to_remove,
    ready_to_settle,
)
from partq.errors import ConflictError, PartqError, StoreUnavailableError
from partq.settings import RETIRE_AFTER_S

SETTLE_GAP_S = 1.0
"""How often predecessors are checked: have they settled? A look reads each one's record."""
REMOVED_GAP_S = 5.0
"""How often partitions are looked for whose keys another coordinator has left."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RescaleTimes:
    """How long the steps after a commit wait, in seconds; tests shorten them."""

    retire_after_s: float = RETIRE_AFTER_S
    settle_gap_s: float = SETTLE_GAP_S


class Rescaler:
    """Takes the steps of changes of one queue's partition count."""

    def __init__(
        self,
        queue: str,
        store: StorePorts,
        brokers: BrokerAdmin,
        *,
        urls: Callable[[], Collection[str]],
        clock: Callable[[], float],
        on_event: RescaleListener | None = None,
        times: RescaleTimes | None = None,
    ) -> None:
        """`urls`: of the living brokers, which hear of each step."""
        self._queue = queue
        self._store = store
        self._brokers = brokers
        self._urls = urls
        self._clock = clock
        self._on_event = on_event
        self._times = times or RescaleTimes()
        self._refreshes = TaskSet()
        self._settled_at = self._read_removed_at = -math.inf
        self._removed: set[PartitionId] = set()
        """Those that the layout has no more, and whose keys may still be there."""
        self._unopened: set[int] = set()
        self._opened: set[int] = set()
        self._unsettled: set[int] = set()
        self._settled: set[int] = set()
        """Generations of changes that this process has seen so."""
        self._earlier: dict[int, QueueObservation] = {}
        """Generation of a change → what brokers said when it was first seen to be open, if that
        was from before the opening."""
        self._uncertain: tuple[RescaleEvent, RescaleRecord] | None = None
        """The last step, if the answer to its write was lost."""
        self._may_be_in_force: set[int] = set()
        """Generations of changes whose commit had no answer. If the store has lost it since, a
        broker may have read it, and seals by it: such a change is not aborted."""
        self._restorer = LayoutRestorer(queue, store.partitions)
        self._waits_for: tuple[str, ...] = ()
        """What the log has told that the change waits for; it tells when that differs."""

    async def plan(self, layout: Layout, wanted: int | None) -> Layout:
        """Begin the change to the wanted partition count, or abort one that is not wanted any more.

        Returns the layout as it is stored then. `wanted`: None: whatever it has.

        Raises:
            SettingsError: not 1 to 4,096 partitions.
            StoreUnavailableError: no answer; the next look knows what came of it.
        """
        await self._tell_uncertain(layout)
        if self._restorer.is_suspect(layout):
            layout = await self._restore(layout)
        else:
            self._restorer.keep(layout)
        if wanted is None:
            return layout
        if self._is_abort_wanted(layout, wanted):
            # The store may have lost the commit, which another coordinator made, or this one.
            layout = await self._restore(layout)
        if layout.next is not None and self._is_abort_wanted(layout, wanted):
            aborted = abort(layout)
            removed = layout.next.lineage
            layout = await self._write(aborted, RescaleEvent.ABORTED, removed=removed)
            if layout is not aborted:
                return layout  # another coordinator was first, and may know another wanted count
        if layout.next is None and wanted != layout.partition_count:
            layout = await self._prepare(layout, wanted)
        return layout

    async def advance(
        self,
        layout: Layout,
        queue: QueueObservation,
        leases: Mapping[BrokerId, LeaseRecord],
        named: Collection[str],
        unfit: Collection[PartitionId] = (),
    ) -> Layout:
        """Take the steps that brokers and records allow, and return the layout as it is stored.

        Args:
            layout: as stored.
            queue: what the living brokers say.
            leases: of the living brokers.
            named: all groups of the queue.
            unfit: partitions of the change that is being prepared whose records are of another
                change of its number.

        Raises:
            StoreUnavailableError: no answer; the next look goes on.
        """
        others = {each for each in owners(queue) if each.generation > layout.last_generation}
        if others:
            layout = await self._restore(layout, others)
        if layout.next is not None and not layout.next.lineage.keys().isdisjoint(unfit):
            return await self._replace_number(layout)
        if layout.next is not None:
            layout = await self._commit(layout, queue, leases, named)
        if not layout.revision:
            return layout
        await self._follow(layout, named, queue)
        now = self._clock()
        if now - self._settled_at >= self._times.settle_gap_s:
            self._settled_at = now
            layout = await self._settle(layout, named)
            layout = await self._remove(layout)
            await self._follow(layout, named, queue)
        if now - self._read_removed_at >= REMOVED_GAP_S:
            self._read_removed_at = now
            self._removed.update(await self._store.layouts.read_removed())
        if self._removed and queue.is_complete:
            await self._erase(self._removed.difference(layout.all_partitions(), owners(queue)))
        return layout

    def doubt(self) -> None:
        """Compare the next layout with the records: a partition that it has cannot be created."""
        self._restorer.doubt()

    async def close(self) -> None:
        """Give up the calls that are out."""
        await self._refreshes.close()

    # ---- steps ----------------------------------------------------------------------------------

    def _is_abort_wanted(self, layout: Layout, wanted: int) -> bool:
        """Whether another partition count is wanted than that of a change that may be aborted."""
        return (
            layout.next is not None
            and layout.next.table.partition_count != wanted
            and not layout.must_commit
            and layout.last_generation not in self._may_be_in_force
        )

    async def _prepare(self, layout: Layout, wanted: int) -> Layout:
        try:
            prepared = prepare(layout, wanted, await self._store.layouts.now_ms())
        except ConflictError as error:
            self._wait_for(str(error))
            return layout
        in_line = await self._restore(layout)  # reads all records: once, as the change begins
        if in_line is not layout:
            return in_line
        return await self._write(prepared, RescaleEvent.STARTED)

    async def _restore(self, layout: Layout, others: Collection[PartitionId] = ()) -> Layout:
        """Return the layout with what the store has lost of it, if it was set back.

        `others`: partitions that brokers own, and that it does not know.

        Raises:
            ConflictError: the records of partitions do not add up to a layout.
        """
        records = await self._restorer.find_lost(layout, others)
        if records is None:
            self._restorer.keep(layout)
            return layout
        found = restored(layout, records, await self._store.layouts.now_ms())
        return await self._write(found.layout, removed=found.removed)

    async def _replace_number(self, layout: Layout) -> Layout:
        """Abort a change whose number another one has used: the next look begins with a higher one.

        The store has lost that other one, while records of its partitions are there. If the other
        one was in force, it is so again instead.
        """
        in_line = await self._restore(layout)
        if in_line is not layout:
            return in_line
        unused = await self._restorer.read_unused(layout.last_generation)
        return await self._write(abort(layout), RescaleEvent.ABORTED, removed=unused)

    def _wait_for(self, *texts: str) -> None:
        """Take what the change waits for, and tell the log."""
        if texts and texts != self._waits_for:
            _log.info("queue %s: the change waits for %s", self._queue, "; ".join(texts))
        self._waits_for = texts

    async def _commit(
        self,
        layout: Layout,
        queue: QueueObservation,
        leases: Mapping[BrokerId, LeaseRecord],
        named: Collection[str],
    ) -> Layout:
        records = await self._store.partitions.read_many(layout.all_partitions())
        preparation = Preparation(
            outdated=lacking_rescale(leases),
            owned=owners(queue).keys(),
            groups={partition: record.groups for partition, record in records.items()},
            named=named,
            unopened=[each for each, record in records.items() if not record.layout.is_open],
        )
        self._wait_for(*waits_before_commit(layout, preparation))
        if self._waits_for:
            return layout
        now_ms = await self._store.layouts.now_ms()
        return await self._write(commit(layout, now_ms), RescaleEvent.COMMITTED)

    async def _settle(self, layout: Layout, named: Collection[str]) -> Layout:
        """Let the lineage forget the predecessors that nobody has to read first any more."""
        candidates = ready_to_settle(layout)
        if not candidates:
            return layout
        records = await self._store.partitions.read_many(list(candidates))
        # Cursors are read only where nothing below the seal is stored: mostly, they are past it.
        trimmed = {
            partition: record
            for partition, record in records.items()
            if record.layout.seals.get(candidates[partition], record.trimmed + 1) <= record.trimmed
        }
        views = await self._views(trimmed, candidates)
        passed = [each for each, view in views.items() if is_passed_by_all(view, named)]
        settled = sorted([each for each in passed if await self._is_carried(layout, views, each)])
        if not settled:
            return layout
        _log.info("queue %s: settled: %s", self._queue, ", ".join(map(str, settled)))
        return await self._write(settle(layout, *settled))

    async def _is_carried(
        self, layout: Layout, views: Mapping[PartitionId, PredecessorView], giver: PartitionId
    ) -> bool:
        """Whether no successor waits for states of keys that a predecessor has."""
        places = [
            (successor, group)
            for group, progress in views[giver].groups.items()
            if progress.has_states
            for successor, givers in layout.lineage.items()
            if giver in givers
        ]
        if not places:
            return True
        found = await self._store.seals.read_progress(places)
        return len(found) == len(places) and all(each.is_gate_open for each in found.values())

    async def _views(
        self, records: Mapping[PartitionId, PartitionRecord], changes: Mapping[PartitionId, int]
    ) -> dict[PartitionId, PredecessorView]:
        """Return what the records say of predecessors. `changes`: that took their slots."""
        places = [(each, group) for each, record in records.items() for group in record.groups]
        progress: dict[PartitionId, dict[str, GroupProgress]] = {each: {} for each in records}
        for (partition, group), found in (await self._store.seals.read_progress(places)).items():
            progress[partition][group] = found
        return {
            each: PredecessorView(
                record.layout.seals.get(changes[each]),
                record.trimmed,
                progress[each],
            )
            for each, record in records.items()
            # A group that was removed between the two reads, or cannot be read, has not passed.
            if progress[each].keys() == set(record.groups)
        }

    async def _remove(self, layout: Layout) -> Layout:
        """Take retired partitions out of the layout that nobody reads or archives any more."""
        if not layout.retired:
            return layout
        now_ms = await self._store.layouts.now_ms()
        ready = ready_to_remove(layout, now_ms - round(self._times.retire_after_s * 1000))
        if not ready:
            return layout
        records = await self._store.partitions.read_many(ready)
        # One without a record is lost; nobody can read it.
        held = {each for each, record in records.items() if record.is_held(now_ms)}
        removed = tuple(each for each in ready if each not in held)
        if not removed:
            return layout
        _log.info("queue %s: removed: %s", self._queue, ", ".join(map(str, removed)))
        return await self._write(remove(layout, *removed), removed=removed)

    async def _erase(self, partitions: Collection[PartitionId]) -> None:
        """Unlink the keys of partitions that the layout has no more, and no broker serves."""
        if not partitions:
            return
        store = self._store
        await in_chunks(store.seals.erase(partition) for partition in partitions)
        await in_chunks(store.leases.record_owner(partition, None) for partition in partitions)
        await store.layouts.forget_removed(partitions)
        self._removed.difference_update(partitions)

    async def _write(
        self,
        layout: Layout,
        event: RescaleEvent | None = None,
        *,
        removed: Collection[PartitionId] = (),
    ) -> Layout:
        """Store a step, and return the layout that is stored then.

        That is another one if another coordinator was first.
        """
        try:
            await self._store.layouts.write(layout, removed=removed)
        except ConflictError as error:
            _log.info("queue %s: %s", self._queue, error)
            return (await self._store.layouts.read()).layout  # the next look compares it
        except StoreUnavailableError:
            # Whether it is stored, the next look knows.
            self._uncertain = (event, layout.changes[-1]) if event is not None else None
            if event is RescaleEvent.COMMITTED:
                self._may_be_in_force.add(layout.generation)
            raise
        self._restorer.keep(layout)
        self._removed.update(removed)
        if event is not None and layout.changes:
            await self._tell(event, layout.changes[-1])
        for url in self._urls():
            self._refreshes.start(self._refresh(url), name=f"refresh {url}")
        return layout

    async def _refresh(self, url: str) -> None:
        """Let a broker read the layout now; it does so by itself within a second."""
        try:
            await self._brokers.refresh(url)
        except PartqError as error:
            _log.info("broker %s has not heard of the new layout: %s", url, error)

    # ---- for people -----------------------------------------------------------------------------

    async def _follow(
        self, layout: Layout, named: Collection[str], queue: QueueObservation
    ) -> None:
        """Tell which changes were seen to open, and to settle, since the look before.

        No step waits for it: where records cannot be read, the next look tells it.
        """
        try:
            for change in layout.changes:
                if change.committed_at_ms and change.generation not in self._settled:
                    await self._follow_change(layout, change, named, queue)
        except PartqError as error:
            _log.info("queue %s: it is not known how far changes are: %s", self._queue, error)

    async def _follow_change(
        self,
        layout: Layout,
        change: RescaleRecord,
        named: Collection[str],
        queue: QueueObservation,
    ) -> None:
        number = change.generation
        if number not in self._opened and await self._is_open(layout, number):
            pauses_ms = _pauses_ms(queue, layout, number)
            if None in pauses_ms and self._earlier.setdefault(number, queue) is queue:
                return  # the next look knows the pauses
            self._earlier.pop(number, None)
            self._opened.add(number)
            if number in self._unopened:
                known_ms = (each for each in pauses_ms if each is not None)
                pause_ms = max(known_ms, default=None)
                await self._tell(RescaleEvent.OPENED, change, pause_ms=pause_ms)
        if number not in self._opened:
            self._unopened.add(number)
            self._unsettled.add(number)
        elif is_settled(layout, change, named):
            self._settled.add(number)
            if number in self._unsettled:
                await self._tell(RescaleEvent.SETTLED, change)
        else:
            self._unsettled.add(number)

    async def _is_open(self, layout: Layout, generation: int) -> bool:
        """Whether all partitions that a change has made take messages."""
        if generation < layout.generation:
            return True  # or the next change would not have been committed
        new = [each for each in layout.table.slots if each.generation == generation]
        records = await self._store.partitions.read_many(new)
        return len(records) == len(new) and all(each.layout.is_open for each in records.values())

    async def _tell_uncertain(self, layout: Layout) -> None:
        """Tell the step whose answer was lost, if the layout has it."""
        step, self._uncertain = self._uncertain, None
        if step is not None and step[1] in layout.changes:
            await self._tell(*step)

    async def _tell(
        self, event: RescaleEvent, change: RescaleRecord, *, pause_ms: int | None = None
    ) -> None:
        _log.info(
            "queue %s: %s: change %d of the partition count, from %d to %d",
            *(self._queue, event, change.generation, change.from_count, change.to_count),
        )
        if self._on_event is not None:
            await self._on_event(event, change, pause_ms=pause_ms)


def _pauses_ms(queue: QueueObservation, layout: Layout, generation: int) -> list[int | None]:
    """Return for how long publishes waited for each partition of a change; None: not known."""
    found = owners(queue)
    new = [each for each in layout.table.slots if each.generation == generation]
    return [found[each][1].opened_after_ms if each in found else None for each in new]
