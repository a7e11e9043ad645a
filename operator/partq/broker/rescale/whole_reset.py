"""The reset of a group in all partitions of a queue, whose count may be changed meanwhile."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.resets import by_generation, new_reset_id
from partq.errors import ConflictError
from partq.store.connection import Store
from partq.store.refusals import kept_states
from partq.wire.calls.answers import UNSET, ResetResult
from partq.wire.calls.bodies import ResetBody
from partq.wire.calls.replies import error_detail

MAX_TRIES = 3
"""How often a reset of all partitions begins again, because their count is changed meanwhile."""

Results = dict[PartitionId, ResetResult]
FindKept = Callable[[Sequence[PartitionId]], Awaitable[Collection[PartitionId]]]
"""Returns those of some partitions in which the group has states of keys."""
FindBirths = Callable[[Sequence[PartitionId]], Awaitable[Mapping[PartitionId, int]]]
"""Returns when the group began in those of some partitions that have it."""
Move = Callable[[Sequence[PartitionId], ResetBody], Awaitable[Results]]
"""Has the owners of partitions move the cursors there; returns what each has answered."""


async def reset_all(
    body: ResetBody,
    move: Move,
    *,
    group: str,
    find_kept: FindKept,
    find_births: FindBirths,
    store: Store,
    read_layout: Callable[[], Layout],
    refresh: Callable[[], Awaitable[None]],
) -> Results:
    """Move the cursors in all partitions of a queue.

    If their count is changed meanwhile, for the first time or again, all are reset again, by the
    new layout: else what moves to a new partition could be delivered before what is repeated in an
    old one. To an offset they are not, as offsets count per partition.

    Args:
        body: where to; it gets the id of the reset, and the births of the group: of one that is
            created meanwhile under the same name nothing is moved.
        move: has the owners move the cursors.
        group: whose.
        find_kept: finds states of keys, which the reset may not part from older messages.
        find_births: finds when the group began.
        store: has the time of Redis.
        read_layout: returns the layout that the broker knows.
        refresh: has the broker read it again.

    Raises:
        StoreUnavailableError: no answer to a look at the time, the group or the layout; some
            partitions may have been reset. A repeat resets all of them.
    """
    epochs, births = dict(body.epochs or {}), dict[PartitionId, int]()
    answers: Results = {}
    for _ in range(MAX_TRIES):
        layout = read_layout()
        if not body.clears_states and not answers:
            followers = [p for p in layout.partitions() if layout.predecessors(p)]
            kept = await find_kept(followers) if followers else []
            if kept:
                return {p: _refused(p, group, kept) for p in layout.partitions()}
        births = {**await find_births(layout.partitions()), **births}
        body.births = {str(partition): born for partition, born in births.items()}
        clocks_ms = await store.read_clocks()
        body.reset = new_reset_id(min(clocks_ms.values()), secrets.token_hex(4), layout.generation)
        answers = await _reset_by(layout, body, move)
        failed = [each for each, answer in answers.items() if answer.error is not UNSET]
        if not failed:
            break
        await refresh()
        if read_layout().generation == layout.generation or body.offset is not None:
            break
        # What was moved has another epoch by now.
        moved = {str(p): each.epoch for p, each in answers.items() if each.epoch is not UNSET}
        body.epochs = {**epochs, **moved} or UNSET
    return answers


async def _reset_by(layout: Layout, body: ResetBody, move: Move) -> Results:
    """Move the cursors in all partitions of a layout, in the ones that follow others first.

    These deliver nothing until the others are reset, too: else messages of a key would be repeated
    before older ones.
    """
    answers: Results = {}
    for partitions in reversed(by_generation(layout.partitions())):
        due = []
        for partition in partitions:
            left = _unmoved_successor(layout, partition, answers)
            if left is None:
                due.append(partition)
            else:
                answers[partition] = ResetResult(error=error_detail(_not_moved(partition, left)))
        answers |= await move(due, body)
    return {partition: answers[partition] for partition in layout.partitions()}


def _refused(partition: PartitionId, group: str, kept: Collection[PartitionId]) -> ResetResult:
    """Return why a partition was not moved, before any was: else some would wait for the others."""
    is_kept = partition in kept
    error = kept_states(partition, group) if is_kept else _not_moved(partition, min(kept))
    return ResetResult(error=error_detail(error))


def _unmoved_successor(
    layout: Layout, partition: PartitionId, answers: Results
) -> PartitionId | None:
    """Return a partition that follows this one and was not moved; None: all were."""
    return next(
        (
            successor
            for successor, givers in sorted(layout.lineage.items())
            if partition in givers and answers[successor].error is not UNSET
        ),
        None,
    )


def _not_moved(partition: PartitionId, successor: PartitionId) -> ConflictError:
    return ConflictError(
        f"partition {partition}: not moved, as partition {successor}, which follows it, was not; "
        "its messages would be delivered between older ones: repeat the reset of all partitions"
    )
