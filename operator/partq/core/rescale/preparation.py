"""What the commit of a change waits for: brokers, new partitions, and groups in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import prepared_change
from partq.core.slot_table import SlotChange

MAX_LISTED = 3
"""How many partitions or brokers a text names."""
MAX_RETIRED = 1024
"""How many partitions without slots a queue keeps, unless one change alone leaves more.

They stay for ten minutes to answer repeats, however many changes there are, and longer for groups,
pins and archives. Each has keys, an owner and a place in the layout, which brokers read each
second.
"""
REMOVAL_WAITS = (
    "each stays for ten minutes, and until groups have acknowledged its messages, pins of it have "
    "ended, and its audit record is archived"
)
"""Why a partition without slots is still there, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """How far a change is prepared, as brokers and records say."""

    outdated: Collection[str]
    """Living brokers of a version that does not know such changes."""
    owned: Collection[PartitionId]
    """Partitions that a living broker has claimed."""
    groups: Mapping[PartitionId, Collection[str]]
    """Of each partition that has a record: the groups with a cursor there."""
    named: Collection[str]
    """Groups that the queue is to have."""
    unopened: Collection[PartitionId]
    """Partitions of earlier changes that do not take messages yet."""


def update_of(brokers: Collection[str]) -> str:
    """Return what a change waits for while living brokers do not know such changes."""
    return f"an update of brokers of an earlier version: {_listed(sorted(brokers))}"


def waits_before_commit(layout: Layout, preparation: Preparation) -> tuple[str, ...]:
    """Return for what the commit of the prepared change waits, for people; empty: for nothing.

    Every group counts that has a cursor anywhere, also one that is being made: its other cursors
    were chosen by a layout without the new partitions.
    """
    change = prepared_change(layout)
    new = sorted(change.lineage)
    groups = set(preparation.named).union(*preparation.groups.values())
    unowned = [each for each in new if each not in preparation.owned]
    incomplete = [each for each in new if not groups.issubset(preparation.groups.get(each, ()))]
    unopened = sorted(set(preparation.unopened) - set(new))
    waits = []
    if preparation.outdated:
        waits.append(update_of(preparation.outdated))
    if unowned:
        waits.append(f"new partitions without a broker: {_listed(unowned)}")
    if incomplete:
        waits.append(f"new partitions that do not have every group: {_listed(incomplete)}")
    if unopened:
        waits.append(f"partitions of the last change that are not open: {_listed(unopened)}")
    if leaves_too_many(layout):
        waits.append(
            f"the removal of partitions without slots: {len(layout.retired)} are there, this "
            f"change leaves {_emptied_count(change)}, and at most {MAX_RETIRED} may be; "
            f"{REMOVAL_WAITS}"
        )
    return tuple(waits)


def leaves_too_many(layout: Layout) -> bool:
    """Whether the prepared change waits for the removal of partitions that earlier ones left."""
    emptied, kept = _emptied_count(prepared_change(layout)), len(layout.retired)
    return bool(emptied and kept) and kept + emptied > MAX_RETIRED


def _emptied_count(change: SlotChange) -> int:
    return sum(not left for left in change.sealed.values())


def _listed(names: Sequence[object]) -> str:
    """Return `2.16, 2.17 and 6 more`."""
    text = ", ".join(map(str, names[:MAX_LISTED]))
    return f"{text} and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else text
